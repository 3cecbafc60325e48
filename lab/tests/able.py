"""An adapter that can do everything the contract knows, in both styles: what the load generators are tested with.

One frame is a length, a call's number, an operation and a payload, in both directions. The server is one asyncio
program; a stream's end is an empty frame. Variants after a dash script its behaviour.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from nearcall_lab.contract import AsyncSession, Mechanism, Operation, Ready, Session, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

OPERATIONS: tuple[Operation, ...] = ("echo", "quote", "wait", "count", "send")

HEAD = struct.Struct("<IQB")
CODE = {operation: number for number, operation in enumerate(OPERATIONS)}


def _mechanism(name: str, variant: str = "", **more: Any) -> Mechanism:
    return Mechanism(name, name, "rpc", variant, operations=OPERATIONS, typed="JSON", **more)


MECHANISMS = (
    _mechanism("able"),
    _mechanism("able-async", style="asyncio", concurrent_calls=True),
    _mechanism("able-uvloop", style="asyncio", concurrent_calls=True, loop="uvloop", requires=("uvloop",)),
    _mechanism("able-lazy", "lazy"),
    _mechanism("able-loses", "loses"),
    _mechanism("able-repeats", "repeats"),
    _mechanism("able-swaps", "swaps"),
    _mechanism("able-spoils", "spoils"),
    _mechanism("able-says-dropped", "says-dropped"),
    _mechanism("able-hangs", "hangs"),
    _mechanism("able-fails-sometimes", "fails-sometimes"),
    _mechanism("able-invents-streams", "invents-streams"),
    _mechanism("able-spins", "spins", busy_polls=True),
    _mechanism("able-leaves-a-process", "leaves-a-process"),
)


class _Server:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.way = spec.mechanism.variant
        self.held: bytes | None = None
        self.calls = itertools.count(1)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks = set()
        try:
            while True:
                size, number, code = HEAD.unpack(await reader.readexactly(HEAD.size))
                data = await reader.readexactly(size)
                task = asyncio.ensure_future(self.handle(writer, number, OPERATIONS[code], data))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def handle(self, writer: asyncio.StreamWriter, number: int, operation: Operation, data: bytes) -> None:
        self.spec.served.count()
        if operation == "send":
            self.receive(data)
            return
        if self.way == "hangs" and next(self.calls) > 3:
            return
        if operation == "quote":
            result = fill(Order(**json.loads(data)))
            data = json.dumps(vars(result)).encode()
        elif operation == "wait":
            delay = json.loads(data)
            await asyncio.sleep(delay)
            data = json.dumps(vars(named(delay))).encode()
        elif operation == "count":
            for item in range(json.loads(data)):
                writer.write(HEAD.pack(8, number, 0) + item.to_bytes(8, "little"))
            data = b""
        writer.write(HEAD.pack(len(data), number, 0) + data)

    def receive(self, data: bytes) -> None:
        """Scripted faults of messages whose sequence number ends in 7 (of ten)."""
        receive, chosen = self.spec.receive, data[0] % 10 == 7
        if self.way in ("loses", "says-dropped") and chosen:
            return
        if self.way == "spoils":
            receive(data[:-1] if chosen else data)
            return
        if self.way == "swaps" and chosen and self.held is None:
            self.held = data
            return
        receive(data)
        if self.way == "repeats" and chosen:
            receive(data)
        if self.held is not None:
            receive(self.held)
            self.held = None


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        stop.on(lambda: loop.call_soon_threadsafe(stopped.set))
        path = os.path.join(spec.directory, "able.sock")
        server = await asyncio.start_unix_server(_Server(spec).connection, path, limit=1 << 24)
        if spec.mechanism.variant == "spins":
            loop.call_soon(_again, loop)
        ready(path)
        await stopped.wait()
        server.close()

    if spec.mechanism.variant == "leaves-a-process" and not os.fork():
        os.setsid()
        time.sleep(60)
        os._exit(0)
    asyncio.run(run())


def _again(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(_again, loop)


def _encode(operation: Operation, value: Any) -> bytes:
    if operation in ("echo", "send"):
        return bytes(value)
    return json.dumps(vars(value) if operation == "quote" else value).encode()


def _decode(operation: Operation, data: bytes) -> Any:
    if operation == "quote":
        return Fill(**json.loads(data))
    return Named(**json.loads(data)) if operation == "wait" else data


class Blocking:
    """One call at a time."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.way = spec.mechanism.variant
        self.sent = self.calls = 0

    def open(self) -> None:
        if self.way != "lazy":
            self._connect()

    def _connect(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.spec.address)
        self.file = self.socket.makefile("rb")

    def _send(self, operation: Operation, data: bytes) -> None:
        if not hasattr(self, "socket"):
            self._connect()
        self.socket.sendall(HEAD.pack(len(data), 0, CODE[operation]) + data)

    def _receive(self) -> bytes:
        head = self.file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise ConnectionResetError("the server is gone")
        return self.file.read(HEAD.unpack(head)[0])

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        def call(value: Any) -> Any:
            self.calls += 1
            if self.way == "fails-sometimes" and self.calls > 100 and self.calls % 10 == 0:
                raise TimeoutError("not this time")
            self._send(operation, _encode(operation, value))
            return _decode(operation, self._receive())

        def send(message: bytes) -> None:
            self.sent += message[0] % 10 == 7
            self._send("send", message)

        return send if operation == "send" else call

    def stream(self, items: int) -> Iterator[int]:
        if self.way == "invents-streams":
            yield from range(items - 1)
            return
        self._send("count", json.dumps(items).encode())
        while data := self._receive():
            yield int.from_bytes(data, "little")

    def flush(self) -> None:
        return None

    def dropped(self) -> int:
        return self.sent if self.way == "says-dropped" else 0

    def close(self) -> None:
        if hasattr(self, "socket"):
            self.file.close()
            self.socket.close()


class Asynchronous:
    """Any number of calls at a time."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.numbers = itertools.count()
        self.waiting: dict[int, asyncio.Queue[bytes]] = {}

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(self.spec.address)
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            while True:
                size, number, _ = HEAD.unpack(await self.reader.readexactly(HEAD.size))
                self.waiting[number].put_nowait(await self.reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _begin(self, operation: Operation, value: Any) -> tuple[int, asyncio.Queue[bytes]]:
        number = next(self.numbers)
        data = _encode(operation, value)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if operation != "send":
            self.waiting[number] = queue
        self.writer.write(HEAD.pack(len(data), number, CODE[operation]) + data)
        return number, queue

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        async def call(value: Any) -> Any:
            number, queue = self._begin(operation, value)
            if operation == "send":
                await self.writer.drain()
                return None
            data = await queue.get()
            del self.waiting[number]
            return _decode(operation, data)

        return call

    async def stream(self, items: int) -> AsyncIterator[int]:
        number, queue = self._begin("count", items)
        while data := await queue.get():
            yield int.from_bytes(data, "little")
        del self.waiting[number]

    async def flush(self) -> None:
        await self.writer.drain()

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        self.task.cancel()
        self.writer.close()


def connect(spec: Spec) -> Session | AsyncSession:
    return Asynchronous(spec) if spec.mechanism.style == "asyncio" else Blocking(spec)
