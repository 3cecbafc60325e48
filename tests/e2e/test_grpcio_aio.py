"""Servicers and stubs written for ``grpc.aio``: each test holds between grpcio and itself, too."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import nearcall
import nearcall.grpcio

from .grpcio_servers import DETAILS, SERVICE, add
from .process import start_program
from .test_grpcio import PAIRS, PATIENCE, PROGRAM, Stub


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, Any]]:
    with start_program(PROGRAM, "loops", f"shm://grpcio-aio-{os.getpid()}") as program:
        assert program.stdout is not None
        yield json.loads(program.stdout.readline())


@pytest.fixture(params=PAIRS)
def run(
    request: pytest.FixtureRequest, addresses: dict[str, Any]
) -> Callable[[Callable[[Stub], Awaitable[None]]], None]:
    """Runs a test's coroutine with a stub."""
    client, _, server = request.param.partition("-")

    def run(test: Callable[[Stub], Awaitable[None]]) -> None:
        async def main() -> None:
            if server == "shm":
                channel: Any = nearcall.grpcio.aio.channel(addresses["shm"])
            else:
                make = grpc if client == "grpcio" else nearcall.grpcio
                channel = make.aio.insecure_channel(f"127.0.0.1:{addresses[server]}")
            async with channel:
                await asyncio.wait_for(test(Stub(channel)), PATIENCE)

        asyncio.run(main())

    return run


async def status(call: Awaitable[object]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def all_of(items: AsyncIterator[str]) -> list[str]:
    return [item async for item in items]


async def log_of(stub: Stub, wanted: str) -> str:
    """What the servicer has seen, once it has seen that."""
    seen = ""
    for _ in range(2000):
        seen = ",".join(filter(None, (seen, await stub.unary("log"))))
        if wanted in seen:
            break
        await asyncio.sleep(0.01)
    return seen


def test_every_shape_of_method_is_served(run: Any) -> None:
    async def test(stub: Stub) -> None:
        assert await stub.unary("a") == "a"
        assert await all_of(stub.many("of 3")) == ["0", "1", "2"]
        assert await stub.total(iter("abc")) == "a+b+c"
        assert await all_of(stub.chat(iter(("ab", "cd")))) == ["ba", "dc"]
        assert await asyncio.gather(*(stub.unary(str(number)) for number in range(20))) == list(map(str, range(20)))

    run(test)


def test_requests_are_written_and_responses_read_one_by_one(run: Any) -> None:
    async def test(stub: Stub) -> None:
        total = stub.total()
        for letter in "abc":
            await total.write(letter)
        await total.done_writing()
        assert await total == "a+b+c"
        chat = stub.chat()
        for text in ("ab", "cd"):
            await chat.write(text)
            assert await chat.read() == text[::-1]
        await chat.done_writing()
        assert await chat.read() is grpc.aio.EOF
        assert await chat.code() is grpc.StatusCode.OK

    run(test)


def test_a_servicer_says_how_its_call_ends(run: Any) -> None:
    async def test(stub: Stub) -> None:
        assert await status(stub.unary("abort the name")) == ("ALREADY_EXISTS", "the name")
        assert await status(stub.unary("swallow it")) == ("ABORTED", "it")
        assert await status(stub.unary("code far")) == ("OUT_OF_RANGE", "far")
        assert (await status(stub.unary("raise")))[0] == "UNKNOWN"
        assert (await status(stub.missing("a")))[0] == "UNIMPLEMENTED"  # type: ignore[attr-defined]
        assert await status(all_of(stub.many("abort 2"))) == ("ABORTED", "enough")
        assert (await status(all_of(stub.many("raise 2"))))[0] == "UNKNOWN"
        assert await status(all_of(stub.chat(iter(("abort",))))) == ("FAILED_PRECONDITION", "no chat")
        assert (await status(stub.unary("unread")))[0] in ("INTERNAL", "UNKNOWN")

    run(test)


def test_details_and_metadata_go_both_ways(run: Any) -> None:
    async def test(stub: Stub) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.unary("status")
        assert dict(caught.value.trailing_metadata() or ()).get("grpc-status-details-bin") == DETAILS
        sent = (("x-raw-bin", b"\xff\0"), ("x-text", "a"))
        call = stub.unary("metadata", metadata=sent)
        assert await call == repr(sorted(sent))
        assert dict(await call.initial_metadata()) == {"x-initial": "i"}
        assert dict(await call.trailing_metadata()) == {"x-trailing": "t", "x-bytes-bin": b"\0\1"}
        assert await call.code() is grpc.StatusCode.OK

    run(test)


def test_calls_that_end_early_cancel_their_handlers(run: Any) -> None:
    async def test(stub: Stub) -> None:
        assert await stub.unary("left") == "none"
        assert 90 < int(await stub.unary("left", timeout=100)) < 102
        seen = ""
        for seconds in (0.1, 1, 5):  # on a busy machine it may pass before the handler has begun
            assert (await status(stub.unary("hold", timeout=seconds)))[0] == "DEADLINE_EXCEEDED"
            seen += await stub.unary("log")
            if "held" in seen:
                break
        if "done" not in seen:
            seen += await log_of(stub, "done")
        assert "cancelled" in seen
        call = stub.unary("hold")
        assert "held" in await log_of(stub, "held")
        assert call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert call.cancelled()
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert "cancelled" in await log_of(stub, "done")

    run(test)


# What is ours alone.


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Any, int]]:
    lock, home = asyncio.Lock(), threading.get_ident()

    class Servicer:
        async def unary(self, request: str, context: Any) -> str:
            async with lock:
                return f"{request} {threading.get_ident() == home}"

        def many(self, request: str, context: Any) -> Iterator[str]:
            yield f"{request} {threading.get_ident() == home}"

        async def total(self, requests: AsyncIterator[str], context: Any) -> str:
            return "".join([request async for request in requests])

        async def chat(self, requests: AsyncIterator[str], context: Any) -> AsyncIterator[str]:
            async for request in requests:
                yield request

    server = nearcall.grpcio.aio.server(**options)
    add(Servicer(), server)
    port = server.add_insecure_port("localhost:0")
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(0)
        assert await server.wait_for_termination(PATIENCE)


def test_handlers_run_in_the_loop_that_runs_and_others_in_threads() -> None:
    async def main() -> None:
        async with served() as (server, port), grpc.aio.insecure_channel(f"localhost:{port}") as channel:
            stub = Stub(channel)
            assert await asyncio.gather(*(stub.unary("a") for _ in range(10))) == ["a True"] * 10
            assert await all_of(stub.many("a")) == ["a False"]
            assert not await server.wait_for_termination(0.01)

    asyncio.run(main())


def test_a_loop_that_ends_before_its_server_harms_nobody() -> None:
    async def main() -> tuple[Any, int]:
        server = nearcall.grpcio.aio.server()

        async def unary(request: bytes, context: Any) -> bytes:
            return request

        server.add_registered_method_handlers(SERVICE, {"unary": grpc.unary_unary_rpc_method_handler(unary)})
        port = server.add_insecure_port("localhost:0")
        await server.start()
        return server, port

    server, _ = asyncio.run(main())
    server._stop(None)


def test_interceptors_of_servers_are_awaited() -> None:
    class Refusing(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
            if ("x-token", "right") in handler_call_details.invocation_metadata:
                return await continuation(handler_call_details)

            async def refuse(request: Any, context: Any) -> None:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")

            return grpc.unary_unary_rpc_method_handler(refuse)

    async def echo(request: str, context: Any) -> str:
        return request

    async def chat(requests: AsyncIterator[str], context: Any) -> AsyncIterator[str]:
        async for request in requests:
            yield request

    async def main() -> None:
        server = nearcall.grpcio.aio.server(interceptors=[Refusing()])
        handlers = {
            "unary": grpc.unary_unary_rpc_method_handler(echo),
            "chat": grpc.stream_stream_rpc_method_handler(chat),
        }
        server.add_registered_method_handlers(SERVICE, handlers)
        port = server.add_insecure_port("localhost:0")
        async with server, grpc.aio.insecure_channel(f"localhost:{port}") as channel:
            stub, token = Stub(channel), (("x-token", "right"),)
            assert await stub.unary("a", metadata=token) == "a"
            assert await all_of(stub.chat(iter("ab"), metadata=token)) == ["a", "b"]
            assert await status(stub.unary("a")) == ("UNAUTHENTICATED", "no token")
            # What it would send may meet a call that is over, which grpcio takes for an error of its own.
            assert await status(all_of(stub.chat(iter("")))) == ("UNAUTHENTICATED", "no token")

    asyncio.run(main())


@pytest.mark.parametrize("make", [grpc.aio.server, nearcall.grpcio.aio.server])
def test_interceptors_are_around_ordinary_functions_too(make: Any) -> None:
    """As of a servicer that has not all methods: those of the generated base class are ordinary functions."""
    seen: list[str] = []
    main_thread = threading.current_thread()

    class Seeing(grpc.aio.ServerInterceptor):  # type: ignore[misc]
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            await asyncio.sleep(0)
            seen.append(details.method.rpartition("/")[2])
            return await continuation(details)

    def unary(request: bytes, context: Any) -> bytes:
        assert threading.current_thread() is not main_thread
        if request == b"abort":
            context.abort(grpc.StatusCode.NOT_FOUND, "nothing")
        return request

    def many(request: bytes, context: Any) -> Iterator[bytes]:
        for number in range(int(request)):
            yield str(number).encode()
        if request == b"2":
            raise NotImplementedError("Method not implemented!")

    def total(requests: Iterator[bytes], context: Any) -> bytes:
        return b"+".join(requests)

    def chat(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            yield request[::-1]

    async def main() -> None:
        server = make(interceptors=[Seeing()])
        handlers = {
            "unary": grpc.unary_unary_rpc_method_handler(unary),
            "many": grpc.unary_stream_rpc_method_handler(many),
            "total": grpc.stream_unary_rpc_method_handler(total),
            "chat": grpc.stream_stream_rpc_method_handler(chat),
        }
        server.add_registered_method_handlers(SERVICE, handlers)
        port = server.add_insecure_port("localhost:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
            stub = Stub(channel)
            assert await stub.unary("a") == "a"
            assert await status(stub.unary("abort")) == ("NOT_FOUND", "nothing")
            assert await all_of(stub.many("3")) == ["0", "1", "2"]
            assert (await status(all_of(stub.many("2"))))[0] in {"UNKNOWN", "UNIMPLEMENTED"}
            assert await stub.total(iter("abc")) == "a+b+c"
            assert await all_of(stub.chat(iter(("ab", "cd")))) == ["ba", "dc"]
        await server.stop(None)
        assert seen == ["unary", "unary", "many", "many", "total", "chat"]

    asyncio.run(main())


def test_a_channel_connects_with_its_first_call_and_waits_where_asked() -> None:
    async def main() -> None:
        gone = nearcall.grpcio.aio.server()
        port = gone.add_insecure_port("localhost:0")
        await gone.stop(None)
        async with nearcall.grpcio.aio.insecure_channel(f"localhost:{port}") as channel:
            assert channel.get_state() is grpc.ChannelConnectivity.IDLE
            stub = Stub(channel)
            assert (await status(stub.unary("a")))[0] == "UNAVAILABLE"
            assert (await status(all_of(stub.many("of 1"))))[0] == "UNAVAILABLE"
            patient = stub.unary("b", wait_for_ready=True)
            await asyncio.sleep(0.05)

            async def unary(request: bytes, context: Any) -> bytes:
                return request

            late = nearcall.grpcio.aio.server()
            late.add_registered_method_handlers(SERVICE, {"unary": grpc.unary_unary_rpc_method_handler(unary)})
            late.add_insecure_port(f"localhost:{port}")
            async with late:
                assert await patient == "b"
                await channel.channel_ready()
                assert channel.get_state() is grpc.ChannelConnectivity.READY
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN

    asyncio.run(main())


def test_what_has_no_counterpart_is_said() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=r"give nearcall's to channel\(url, interceptors="):
            nearcall.grpcio.aio.insecure_channel("localhost:1", interceptors=[object()])
        async with nearcall.grpcio.aio.insecure_channel("localhost:1") as channel:
            with pytest.raises(ValueError, match="credentials cannot be read"):
                Stub(channel).unary("a", credentials=object())

    asyncio.run(main())
