"""Our client against gRPC's own server, and against ours, by gRPC and by Connect: processes of their own, and
bytes without Protobuf.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall import _core
from nearcall.client.callables import make_callable
from nearcall.client.options import check_options
from nearcall.service.service import plan_of

from .deadlines import longer_and_longer
from .grpc_services import Raw
from .http1_only import Http1Only
from .process import ServerProcess, start_program

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
PEER = "from tests.e2e.grpc_peer import main; main()"


class WithPath:
    """A method's plan, with the path that gRPC's servers know it by."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self.path = f"/test.Raw/{plan.full_name.rpartition('.')[2]}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


class Client:
    """The methods of :class:`Raw`, and one that no server has, over one connection."""

    nothing: Any
    kind: str

    def __init__(self, url: str, **options: Any) -> None:
        settings = check_options(url, None, **options)
        self.connection = _core.Connection(
            url, on_change=lambda _: None, make_passage=lambda _: None, **settings.of_connection
        )
        self.connection.connect()
        for plan in plan_of(Raw).methods:
            known: Any = WithPath(plan)
            method = _core.Method(known, max_values=1000)
            setattr(self, plan.full_name.rpartition(".")[2], make_callable(self.connection, plan, method))
        other: Any = WithPath(plan_of(Raw).methods[0])
        other.path = "/test.Raw/nothing"
        self.nothing = self.connection.unary(_core.Method(other, max_values=1000))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.fixture(scope="module")
def peer() -> Iterator[str]:
    with start_program(PEER) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"grpc://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()
        process.wait(10)


@pytest.fixture(scope="module")
def server(runtime_dir: Path) -> Iterator[ServerProcess]:
    urls = (
        "grpc://127.0.0.1:0",
        f"grpc+unix://{runtime_dir}/raw2.grpc",
        "grpcs://127.0.0.1:0",
        "http://127.0.0.1:0",
        f"http+unix://{runtime_dir}/raw2.http",
        "https://127.0.0.1:0",
    )
    with ServerProcess(*urls, services="tests.e2e.grpc_services:raw", compression="gzip") as server:
        yield server


@pytest.fixture(scope="module")
def old(server: ServerProcess) -> Iterator[str]:
    """The same server, for those who know HTTP/1.1 only."""
    with Http1Only(server.urls[3]) as relay:
        yield relay.url


KINDS = ["tcp", "unix", "tls", "http", "http+unix", "https"]


@pytest.fixture(params=["grpcio", *KINDS, "http1", "packed"])
def client(request: pytest.FixtureRequest, certificates: Path) -> Iterator[Client]:
    kind: str = request.param
    options: dict[str, Any] = {}
    if kind == "grpcio":
        url = request.getfixturevalue("peer")
    elif kind == "http1":
        url = request.getfixturevalue("old")
    elif kind == "packed":
        url, options = request.getfixturevalue("server").urls[3], {"compression": "gzip", "use_get": True}
    else:
        url = request.getfixturevalue("server").urls[KINDS.index(kind)]
    client = Client(url, **options)
    client.kind = kind
    client.shut(b"")
    yield client
    client.connection.close()


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("length", [0, 1, 60, 5000, 16_380, 70_000, 3_000_000])
def test_messages_of_any_length(client: Client, length: int) -> None:
    message = (bytes(range(256)) * (length // 256 + 1))[:length]
    assert client.echo(message) == message


def test_failures_are_raised(client: Client) -> None:
    with pytest.raises(nearcall.NotFound, match="Käse is out"):
        client.fail("Käse is out".encode())
    with pytest.raises(nearcall.Unimplemented):
        client.nothing(b"")
    assert client.echo(b"still here") == b"still here"


def test_streams_of_the_server(client: Client) -> None:
    for length in (0, 1, 1000):
        assert list(client.count(str(length).encode())) == [str(number).encode() for number in range(length)]
    assert sum(map(len, client.blocks(b"100"))) == 100 * (64 << 10)


def test_a_stream_that_fails_keeps_what_came_before(client: Client) -> None:
    items = client.fail_after(b"first")
    assert next(items) == b"first"
    with pytest.raises(nearcall.Aborted, match="enough"):
        next(items)


def test_streams_of_the_client(client: Client) -> None:
    for blocks in ([], [b"one"], [b"x" * 10_000] * 500, [b""] * 40_000):
        assert client.total(iter(blocks)) == str(sum(map(len, blocks))).encode()


def test_streams_both_ways(client: Client) -> None:
    blocks = [str(number).encode() * 100 for number in range(500)]
    assert list(client.both(iter(blocks))) == [block[::-1] for block in blocks]


def test_a_stream_that_is_left_early(client: Client) -> None:
    blocks = client.blocks(b"100000")
    assert len(next(blocks)) == 64 << 10
    assert client.echo(b"meanwhile") == b"meanwhile"
    blocks.close()
    assert client.echo(b"afterwards") == b"afterwards"


def test_metadata_goes_both_ways(client: Client) -> None:
    with nearcall.metadata({"x-word": "hello", "x-bytes-bin": b"\x00\xff"}) as metadata:
        client.metadata(b"")
    assert metadata.initial["x-word"] == "hello"
    assert metadata.initial["x-bytes-bin"] == b"\x00\xff"
    assert set(metadata.trailing) & {"x-word", "x-word-back"}


def test_metadata_that_http_cannot_carry_is_refused(client: Client) -> None:
    for name, value in (("x-lines", "one\ntwo"), ("x-name", "Käse"), ("grpc-own", "x" * 100_000), ("te", "x")):
        code = nearcall.ResourceExhausted if name == "grpc-own" else nearcall.InvalidArgument
        with nearcall.metadata({name: value}), pytest.raises(code, match=r"Raw.echo: the metadata") as caught:
            client.echo(b"")
        assert name in caught.value.message or code is nearcall.ResourceExhausted
    assert client.echo(b"x") == b"x"


def test_deadlines_travel_and_end_the_call(client: Client) -> None:
    assert client.left(b"") == b"None"
    with nearcall.timeout(PATIENCE):
        assert 0 < float(client.left(b"")) <= PATIENCE
    for seconds in longer_and_longer():
        with nearcall.timeout(seconds), pytest.raises(nearcall.DeadlineExceeded):
            client.hold(b"")
        if b"held" in client.log(b""):
            break
    until(lambda: b"cancelled" in client.log(b""))


def test_many_calls_at_once(client: Client) -> None:
    sent = [str(number).encode() for number in range(300)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(client.echo, sent)) == sent


def test_a_thread_sends_a_stream_while_another_waits(client: Client) -> None:
    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(client.hold, b"held")
        until(lambda: b"held" in client.log(b""))
        # The thread that waits receives for this one, too.
        blocks = itertools.repeat(b"x" * 10_000, 1000)
        assert client.total(blocks) == b"10000000"
        assert not held.done()
        client.open(b"")
        assert held.result(PATIENCE) == b"held"


def test_a_server_that_comes_back_is_found(runtime_dir: Path) -> None:
    url = f"grpc+unix://{runtime_dir}/again.grpc"
    with ServerProcess(url, services="tests.e2e.grpc_services:raw") as server:
        client = Client(url, wait_for_ready=True)
        assert client.echo(b"x") == b"x"
        server.close()
    with pytest.raises(nearcall.Unavailable):
        Client(url).echo(b"x")
    with ServerProcess(url, services="tests.e2e.grpc_services:raw"):
        assert client.echo(b"again") == b"again"
    client.connection.close()


def test_a_killed_server_is_noticed() -> None:
    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        client = Client(server.url)
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(client.hold, b"")
            until(lambda: b"held" in client.log(b""))
            server.kill()
            with pytest.raises(nearcall.Unavailable):
                held.result(PATIENCE)
        client.connection.close()


def test_servers_that_do_not_speak_grpc_are_told_apart(runtime_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(nearcall.DeadlineExceeded, match="handshake"):
            Client(url, handshake_timeout=0.2)


def test_a_ping_is_answered(client: Client) -> None:
    if client.kind == "http1":
        with pytest.raises(nearcall.RpcError, match=r"HTTP/1.1, which has no ping"):
            client.connection.ping(PATIENCE)
        return
    assert client.connection.ping(PATIENCE) >= 0


def test_more_calls_than_the_server_takes_wait(certificates: Path) -> None:
    with start_program(PEER, "grpc.max_concurrent_streams=3") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        client = Client(f"grpc://127.0.0.1:{process.stdout.readline().strip()}")
        with ThreadPoolExecutor(8) as pool:
            held = [pool.submit(client.hold, b"held") for _ in range(3)]
            until(lambda: client.connection.in_flight == 3)
            more = [pool.submit(client.echo, b"more") for _ in range(5)]
            assert not any(call.done() for call in more)
            for call in held[:1]:
                call.cancel()
            other = Client(client.connection.url)
            other.open(b"")
            assert [call.result(PATIENCE) for call in (*held, *more)] == [b"held"] * 3 + [b"more"] * 5
            other.connection.close()
        client.connection.close()
        process.stdin.close()
        process.wait(10)


class AsyncClient:
    """The same for an event loop."""

    def __init__(self, channel: nearcall.aio.Channel) -> None:
        for plan in plan_of(Raw).methods:
            known: Any = WithPath(plan)
            method = _core.Method(known, max_values=1000)
            setattr(self, plan.full_name.rpartition(".")[2], channel._callable(channel._opened(), known, method))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def url_of(request: pytest.FixtureRequest, kind: str) -> str:
    if kind == "grpcio":
        return str(request.getfixturevalue("peer"))
    if kind == "http1":
        return str(request.getfixturevalue("old"))
    return str(request.getfixturevalue("server").urls[KINDS.index(kind)])


@pytest.mark.parametrize("kind", ["grpcio", "tcp", "http", "http1"])
def test_an_event_loop_calls(request: pytest.FixtureRequest, kind: str) -> None:
    async def blocks(block: bytes, count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield block

    async def main() -> None:
        async with nearcall.aio.Channel(url_of(request, kind)) as channel:
            client = AsyncClient(channel)
            sent = [str(number).encode() for number in range(300)]
            assert await asyncio.gather(*map(client.echo, sent)) == sent
            assert [item async for item in client.count(b"500")] == [str(number).encode() for number in range(500)]
            assert await client.total(blocks(b"x" * 10_000, 1000)) == b"10000000"
            assert await client.total(blocks(b"", 40_000)) == b"0"
            assert [item async for item in client.both(blocks(b"ab", 300))] == [b"ba"] * 300
            with pytest.raises(nearcall.NotFound):
                await client.fail(b"nothing")
            await client.shut(b"")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.hold(b""), 0.1)
            assert await client.echo(b"x" * 3_000_000) == b"x" * 3_000_000

    asyncio.run(main())


def test_more_calls_of_an_event_loop_than_the_server_takes_wait() -> None:
    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"four"

    async def main(url: str) -> None:
        other = Client(url)
        async with nearcall.aio.Channel(url) as channel:
            client = AsyncClient(channel)
            held = [asyncio.create_task(client.hold(b"held")) for _ in range(3)]
            await asyncio.to_thread(until, lambda: other.log(b"").count(b"held") == 3)
            more = [asyncio.create_task(client.echo(str(number).encode())) for number in range(300)]
            totals = [asyncio.create_task(client.total(blocks())) for _ in range(20)]
            given_up = [asyncio.create_task(client.echo(b"never")) for _ in range(20)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.echo(b"late"), 0.05)
            with nearcall.timeout(0.05), pytest.raises(nearcall.DeadlineExceeded):
                await client.echo(b"late")
            for call in given_up:
                call.cancel()
            assert not any(call.done() for call in (*more, *totals))
            await asyncio.to_thread(other.open, b"")
            assert await asyncio.gather(*held, *more) == [b"held"] * 3 + [str(number).encode() for number in range(300)]
            assert await asyncio.gather(*totals) == [b"12"] * 20
            counted = await asyncio.gather(*(collected(client.count(b"50")) for _ in range(20)))
            assert counted == [[str(number).encode() for number in range(50)]] * 20
        other.connection.close()

    async def collected(items: AsyncIterator[bytes]) -> list[bytes]:
        return [item async for item in items]

    # Else it refuses some at random, although they are not too many.
    limits = ("grpc.max_concurrent_streams=3", "grpc.http.overload_protection=0")
    with start_program(PEER, *limits) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        asyncio.run(main(f"grpc://127.0.0.1:{process.stdout.readline().strip()}"))
        process.stdin.close()
        process.wait(10)


def test_a_loop_may_have_any_number_of_calls_under_way(server: ServerProcess) -> None:
    """A server of ours takes a thousand of a connection."""

    async def main() -> None:
        async with nearcall.aio.Channel(server.urls[0]) as channel:
            client = AsyncClient(channel)
            sent = [str(number).encode() for number in range(5000)]
            assert await asyncio.gather(*map(client.echo_in_loop, sent)) == sent

    asyncio.run(main())


def test_calls_that_wait_fail_with_their_connection() -> None:
    async def main(server: ServerProcess) -> None:
        async with nearcall.aio.Channel(server.url) as channel:
            client = AsyncClient(channel)
            calls = [asyncio.create_task(client.hold(b"")) for _ in range(1200)]
            other = Client(server.url)
            # Those were sent before it that the server does not take yet, too.
            await asyncio.to_thread(until, lambda: b"held" in other.log_in_loop(b""))
            server.kill()
            other.connection.close()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in ended} == {nearcall.Unavailable}

    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        asyncio.run(main(server))
