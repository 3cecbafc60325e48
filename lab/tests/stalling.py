"""A server that takes scripted times, as a process of its own, which writes down how long it really took.

Both sides keep the times of every call, on the clock that all processes share, and write them down when they end: the
server when it had read the request and when it was about to reply; the client's session right before sending, right
after the reply, and when the load generator looks at the reply, which it does after its last stamp.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nearcall_lab.contract import AsyncSession, Mechanism, Operation, Ready, Session, SimpleSession, Spec, Stop

SCRIPT_NS = (10_000_000,) * 9 + (50_000_000,)
"""What the handler takes for one call after the other, again and again."""
DIRECTORY = "STALLING_DIRECTORY"
"""Environment variable: where the times are written."""
SIZE = 50

MECHANISMS = (
    Mechanism("stalling", "stalling", "rpc", operations=("echo",)),
    Mechanism("stalling-async", "stalling-async", "rpc", operations=("echo",), style="asyncio"),
)


def _keep(name: str, times: array[int]) -> None:
    (Path(os.environ[DIRECTORY]) / name).write_bytes(times.tobytes())


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    times = array("q")
    path = os.path.join(spec.directory, "stalling.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        ready(path)
        connection, _ = listener.accept()
        with connection:
            number = 0
            while len(data := connection.recv(SIZE, socket.MSG_WAITALL)) == SIZE:
                received = time.monotonic_ns()
                spec.served.count()
                until = received + SCRIPT_NS[number % len(SCRIPT_NS)]
                while (left := until - time.monotonic_ns()) > 0:  # some kernels wake a sleeper early
                    time.sleep(left / 1e9)
                times.extend((received, time.monotonic_ns()))
                connection.sendall(data)
                number += 1
    _keep("server", times)


class _Seen(bytes):
    """A reply that notes when it is looked at."""

    note: Callable[[], object]

    def __eq__(self, other: object) -> bool:
        self.note()
        return super().__eq__(other)

    __hash__ = bytes.__hash__


class _Times:
    """Of one session: sent, replied and looked at, call after call."""

    def __init__(self) -> None:
        self.kept = array("q")

    def stamp(self) -> None:
        self.kept.append(time.monotonic_ns())

    def reply(self, data: bytes) -> bytes:
        """The reply as the load generator gets it."""
        seen = _Seen(data)
        seen.note = self.stamp
        self.stamp()
        return seen


class _Blocking(SimpleSession):
    def __init__(self, spec: Spec) -> None:
        self._address, self._times = spec.address, _Times()

    def open(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self._address)

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        times, connection = self._times, self._socket

        def echo(data: bytes) -> bytes:
            times.stamp()
            connection.sendall(data)
            return times.reply(connection.recv(SIZE, socket.MSG_WAITALL))

        return echo

    def close(self) -> None:
        self._socket.close()
        _keep("client", self._times.kept)


class _Asynchronous:
    def __init__(self, spec: Spec) -> None:
        self._address, self._times = spec.address, _Times()

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(self._address)

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        async def echo(data: bytes) -> bytes:
            self._times.stamp()
            self._writer.write(data)
            return self._times.reply(await self._reader.readexactly(SIZE))

        return echo

    async def close(self) -> None:
        self._writer.close()
        _keep("client", self._times.kept)


def connect(spec: Spec) -> Session | AsyncSession:
    return _Asynchronous(spec) if spec.mechanism.style == "asyncio" else _Blocking(spec)  # type: ignore[return-value]
