"""The study's own method: server and client in one process, one connection, batch time divided by the number of calls.

Each mechanism is called in the same way as in the study: gRPC on the same event loop as its server and with its log
lines, Pyro4 and RPyC by executor threads that share one proxy, ZeroMQ with a lock around each round trip.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from nearcall_lab.studies.replica import TRIAL, Findings, main

LEVELS = (1, 5, 10, 20, 50, 100)
CALLS = 200
TRIED = 20
"""Instead, where the study is only tried out."""
ITEMS = 1000
SIZES = (1_000, 10_000, 100_000, 1_000_000)
PAYLOADS = {size: bytes(i % 251 for i in range(size)) for size in SIZES}


class Client(Protocol):
    """The interface that every mechanism is wrapped into."""

    async def call(self, value: int) -> int: ...

    async def stream(self, items: int) -> list[int]: ...

    async def payload(self, size: int) -> bytes: ...


async def batch(client: Client, calls: int, at_once: int) -> float:
    """Seconds for `calls` simple calls, of which a semaphore lets `at_once` run: the study called these that many
    clients.
    """
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate:
            if await client.call(42) != 42:
                raise AssertionError("wrong reply")

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(calls)))
    return time.perf_counter() - begin


async def measure(name: str, client: Client, findings: Findings, rounds: int, calls: int) -> None:
    """Measure the rows of one mechanism in all tables, each as the mean of `rounds` with so many calls."""
    await batch(client, 20, 1)
    for level in LEVELS:
        times = [await batch(client, calls, level) for _ in range(rounds)]
        seconds = sum(times) / rounds
        findings.tables.setdefault("concurrency", {}).setdefault(f"{name}, ms", []).append(seconds * 1e3)
        findings.tables["concurrency"].setdefault(f"{name}, calls/s", []).append(calls / seconds)
        if level == 1:
            # The published row of simple calls comes from the same measurement.
            findings.put("simple", name, [seconds / calls * 1e6, calls / seconds])
        findings.check("semaphore", **{f"{name} at {level}": calls / seconds})
    seconds = await average(lambda: client.stream(ITEMS), rounds)
    findings.put("stream", name, [seconds / ITEMS * 1e6, ITEMS / seconds])

    async def all_sizes() -> None:
        replies = await asyncio.gather(*(client.payload(size) for size in SIZES))
        if [len(reply) for reply in replies] != list(SIZES):
            raise AssertionError("wrong reply")

    seconds = await average(all_sizes, rounds)
    findings.put("payload", name, [seconds / len(SIZES) * 1e3, len(SIZES) / seconds])
    for size in SIZES:
        alone = await average(lambda size=size: client.payload(size), rounds)  # type: ignore[misc]
        findings.check("averaged sizes", **{f"{name}, {size // 1000} KB, ms": alone * 1e3})


async def average(work: Callable[[], Awaitable[object]], rounds: int) -> float:
    """Mean seconds of `rounds` runs, after one that is not counted."""
    await work()
    begin = time.perf_counter()
    for _ in range(rounds):
        await work()
    return (time.perf_counter() - begin) / rounds


class Threaded:
    """A blocking client called from the event loop through a pool of threads, as in the study."""

    def __init__(self, pool: ThreadPoolExecutor, call: Any, stream: Any, payload: Any) -> None:
        self._pool, self._call, self._stream, self._payload = pool, call, stream, payload

    async def _run(self, function: Any, argument: int) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, argument)

    async def call(self, value: int) -> int:
        return int(await self._run(self._call, value))

    async def stream(self, items: int) -> list[int]:
        return list(await self._run(self._stream, items))

    async def payload(self, size: int) -> bytes:
        return bytes(await self._run(self._payload, size))


@asynccontextmanager
async def grpc_client(log_lines: int = 4) -> AsyncIterator[Client]:
    """gRPC's asyncio API; server and client on one event loop. The study logged about four lines per call."""
    import grpc

    log = logging.getLogger("nearcall_lab.studies.art")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115 - lives as long as the handler
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    log.addHandler(handler)

    def note(what: str) -> None:
        for _ in range(log_lines // 2):
            log.info("%s: 42", what)

    async def call(request: bytes, context: Any) -> bytes:
        note("request")
        return request

    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    async def payload(request: bytes, context: Any) -> bytes:
        return PAYLOADS[int(request)]

    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    handlers = {
        "Call": grpc.unary_unary_rpc_method_handler(call),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Payload": grpc.unary_unary_rpc_method_handler(payload),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("art.Bench", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = (("grpc.max_receive_message_length", -1),)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            remote_call = channel.unary_unary("/art.Bench/Call")
            remote_stream = channel.unary_stream("/art.Bench/Stream")
            remote_payload = channel.unary_unary("/art.Bench/Payload")

            class Grpc:
                async def call(self, value: int) -> int:
                    note("call")
                    return int(await remote_call(b"%d" % value))

                async def stream(self, items: int) -> list[int]:
                    return [int(item) async for item in remote_stream(b"%d" % items)]

                async def payload(self, size: int) -> bytes:
                    return bytes(await remote_payload(b"%d" % size))

            yield Grpc()
    finally:
        await server.stop(None)
        log.removeHandler(handler)


@asynccontextmanager
async def pyro_client() -> AsyncIterator[Client]:
    """Pyro4; its server in a thread of this process, one proxy for all executor threads."""
    import Pyro4

    Pyro4.config.SERIALIZER = "marshal"
    Pyro4.config.SERIALIZERS_ACCEPTED.add("marshal")

    @Pyro4.expose
    class Bench:
        def call(self, value: int) -> int:
            return value

        def stream(self, items: int) -> Any:
            yield from range(items)

        def payload(self, size: int) -> bytes:
            return PAYLOADS[size]

    with tempfile.TemporaryDirectory() as directory:
        daemon = Pyro4.Daemon(unixsocket=os.path.join(directory, "pyro.sock"))
        uri = daemon.register(Bench(), "bench")
        thread = threading.Thread(target=daemon.requestLoop, daemon=True)
        thread.start()
        proxy = Pyro4.Proxy(uri)
        lock = threading.Lock()

        def guarded(name: str) -> Callable[[int], Any]:
            def function(argument: int) -> Any:
                with lock:
                    return getattr(proxy, name)(argument)

            return function

        class Pyro(Threaded):
            async def stream(self, items: int) -> list[int]:
                # One hop to the pool, and one round trip, for each item.
                remote = await self._run(guarded("stream"), items)
                return [item async for item in hops(self, remote)]

        async def hops(client: Threaded, remote: Any) -> AsyncIterator[int]:
            while (item := await client._run(lambda _: next(remote, None), 0)) is not None:
                yield item

        with ThreadPoolExecutor(100) as pool:
            yield Pyro(pool, guarded("call"), None, guarded("payload"))
        proxy._pyroRelease()
        daemon.shutdown()
        thread.join(5)


@asynccontextmanager
async def rpyc_client() -> AsyncIterator[Client]:
    """RPyC; its threaded server in this process, one connection for all executor threads."""
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Bench(rpyc.Service):  # type: ignore[misc]
        def exposed_call(self, value: int) -> int:
            return value

        def exposed_stream(self, items: int) -> Any:
            return iter(range(items))

        def exposed_payload(self, size: int) -> bytes:
            return PAYLOADS[size]

    server = ThreadedServer(Bench(), hostname="127.0.0.1", port=0, logger=logging.getLogger("nearcall_lab.quiet"))
    logging.getLogger("nearcall_lab.quiet").setLevel(logging.CRITICAL)
    thread = threading.Thread(target=server.start, daemon=True)
    thread.start()
    while not server.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        await asyncio.sleep(0.001)
    # The study's figures do not show the stalls that Linux has when Nagle's algorithm and delayed acknowledgements are
    # both active: 40 ms for each reply of several writes. Connections inherit the listener's option.
    server.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = rpyc.connect_stream(rpyc.SocketStream.connect("127.0.0.1", server.port, nodelay=True))
    root = connection.root

    def stream(items: int) -> list[int]:
        # A list built in one job of the pool, with a round trip for each item.
        return list(root.stream(items))

    with ThreadPoolExecutor(100) as pool:
        yield Threaded(pool, root.call, stream, root.payload)
    connection.close()
    server.close()


@asynccontextmanager
async def zmq_client() -> AsyncIterator[Client]:
    """ZeroMQ REQ and REP on one event loop, JSON, a lock across the round trip; a stream is one request per item."""
    import zmq
    import zmq.asyncio

    context = zmq.asyncio.Context()
    replier = context.socket(zmq.REP)
    port = replier.bind_to_random_port("tcp://127.0.0.1")

    async def serve() -> None:
        while True:
            request = json.loads(await replier.recv())
            if request["method"] == "payload":
                await replier.send(PAYLOADS[request["value"]])
            else:
                await replier.send(json.dumps({"value": request["value"]}).encode())

    serving = asyncio.create_task(serve())
    requester = context.socket(zmq.REQ)
    requester.connect(f"tcp://127.0.0.1:{port}")
    lock = asyncio.Lock()

    class Zmq:
        async def _ask(self, method: str, value: int) -> bytes:
            async with lock:
                await requester.send(json.dumps({"method": method, "value": value}).encode())
                return bytes(await requester.recv())

        async def call(self, value: int) -> int:
            return int(json.loads(await self._ask("call", value))["value"])

        async def stream(self, items: int) -> list[int]:
            return [await self.call(number) for number in range(items)]

        async def payload(self, size: int) -> bytes:
            return await self._ask("payload", size)

    try:
        yield Zmq()
    finally:
        serving.cancel()
        requester.close(0)
        replier.close(0)
        context.term()


CLIENTS: dict[str, Any] = {"gRPC": grpc_client, "Pyro4": pyro_client, "RPyC": rpyc_client, "ZeroMQ": zmq_client}


def run(findings: Findings, scale: float) -> None:
    """All mechanisms, one after the other, in the order of the study."""
    rounds, calls = max(1, round(5 * scale)), CALLS if scale >= TRIAL else TRIED

    async def one(name: str, make: Any) -> None:
        async with AsyncExitStack() as stack:
            await measure(name, await stack.enter_async_context(make()), findings, rounds, calls)

    for name, make in CLIENTS.items():
        findings.attempt(name, lambda name=name, make=make: asyncio.run(one(name, make)))  # type: ignore[misc]

    async def logged(lines: int) -> float:
        async with grpc_client(lines) as client:
            # The first thousand calls of a process, which the study times, cost more than later ones.
            await batch(client, 10 * calls, 1)
            return sum([await batch(client, calls, 1) for _ in range(rounds)]) / rounds / calls * 1e6

    def logging_costs() -> None:
        findings.check("logging", with_log_us=asyncio.run(logged(4)), without_log_us=asyncio.run(logged(0)))

    findings.attempt("gRPC, with and without its log", logging_costs)


if __name__ == "__main__":
    main(run)
