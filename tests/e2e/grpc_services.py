"""Services for clients of other makes, without Protobuf or JSON: a message is what a parameter of bytes is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import wraps
from typing import Any

import nearcall
from nearcall import _core
from nearcall.server.entries import PathEntry

STREAMS_IN = {"total", "total_in_loop", "slow_total", "both", "both_in_loop"}
"""Methods whose client sends a stream."""
STREAMS_OUT = {
    "count",
    "count_in_loop",
    "blocks",
    "long_in_loop",
    "fail_after",
    "late_items",
    "late_items_in_loop",
    "both",
    "both_in_loop",
}
"""Methods whose server does."""
NO_SIDE_EFFECTS = {"echo", "left"}
"""Methods that may be called by GET."""
CODECS = ("proto", "json", "plain json")


def until_nobody_waits() -> None:
    given_up = threading.Event()
    nearcall.context().on_cancel(given_up.set)
    given_up.wait(30)


def returned_or_raised(data: bytes) -> bytes:
    if data == b"raise":
        raise OSError("what it waited for was closed")
    return data


@nearcall.service
class Raw:
    def __init__(self) -> None:
        self._gate = threading.Event()
        self._log: list[str] = []

    def echo(self, data: bytes) -> bytes:
        return data

    async def echo_in_loop(self, data: bytes) -> bytes:
        await asyncio.sleep(0)
        return data

    def fail(self, data: bytes) -> bytes:
        raise nearcall.NotFound(data.decode())

    def crash(self, data: bytes) -> bytes:
        raise RuntimeError("a fault of its own")

    def length(self, data: memoryview) -> bytes:
        return str(len(data)).encode()

    def many(self, data: bytes) -> bytes:
        return bytes(int(data))

    def metadata(self, data: bytes) -> bytes:
        """Sends back what it was sent beside the message: ahead of the result and behind it."""
        context = nearcall.context()
        came = [(key, value) for key, value in context.metadata.pairs() if key.startswith("x-")]
        context.send_metadata(came)
        context.add_trailing_metadata([(_back(key), value) for key, value in came])
        return repr(came).encode()

    def unfit(self, data: bytes) -> bytes:
        """Metadata that HTTP cannot carry."""
        nearcall.context().add_trailing_metadata([("x-lines", "one\ntwo")])
        return data

    def who(self, data: bytes) -> bytes:
        """Who calls."""
        return repr(nearcall.context().peer).encode()

    def left(self, data: bytes) -> bytes:
        """Seconds that are left, if there is a deadline."""
        return repr(nearcall.context().time_left).encode()

    def nap(self, data: bytes) -> bytes:
        time.sleep(float(data))
        return data

    def late(self, data: bytes) -> bytes:
        """Returns or fails as soon as nobody waits any more."""
        until_nobody_waits()
        return returned_or_raised(data)

    async def late_in_loop(self, data: bytes) -> bytes:
        """A coroutine that takes no notice of its cancellation."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        return returned_or_raised(data)

    def late_items(self, data: bytes) -> Iterator[bytes]:
        yield b"first"
        until_nobody_waits()
        if data == b"item":
            yield b"late"
        returned_or_raised(data)

    async def late_items_in_loop(self, data: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        if data == b"item":
            yield b"late"
        returned_or_raised(data)

    def hold(self, data: bytes) -> bytes:
        """Waits for `open`, or until it is cancelled."""
        context = nearcall.context()
        self._log.append("held")
        while not self._gate.wait(0.01):
            if context.cancelled:
                self._log.append("cancelled")
                break
        return data

    def open(self, data: bytes) -> bytes:
        self._gate.set()
        return b""

    def shut(self, data: bytes) -> bytes:
        self._gate.clear()
        return b""

    def log(self, data: bytes) -> bytes:
        return ",".join(self._log).encode()

    async def log_in_loop(self, data: bytes) -> bytes:
        return self.log(data)

    def count(self, data: bytes) -> Iterator[bytes]:
        for number in range(int(data)):
            yield str(number).encode()

    def blocks(self, data: bytes) -> Iterator[bytes]:
        """Blocks of 64 KiB, until nobody wants them."""
        try:
            for number in range(int(data)):
                yield bytes([number % 256]) * (64 << 10)
        finally:
            self._log.append("closed")

    async def long_in_loop(self, data: bytes) -> AsyncIterator[bytes]:
        """Items of so many bytes, until nobody wants them."""
        while True:
            yield bytes(int(data))

    async def count_in_loop(self, data: bytes) -> AsyncIterator[bytes]:
        for number in range(int(data)):
            yield str(number).encode()

    def fail_after(self, data: bytes) -> Iterator[bytes]:
        yield data
        raise nearcall.Aborted("enough")

    def total(self, blocks: Iterator[bytes]) -> bytes:
        return str(sum(len(block) for block in blocks)).encode()

    async def total_in_loop(self, blocks: AsyncIterator[bytes]) -> bytes:
        return str(sum([len(block) async for block in blocks])).encode()

    def slow_total(self, blocks: Iterator[bytes]) -> bytes:
        """Takes nothing before the gate is open."""
        self._gate.wait(20)
        return self.total(blocks)

    def both(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block[::-1]

    async def both_in_loop(self, blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for block in blocks:
            yield block[::-1]


def _back(key: str) -> str:
    return key.replace("-bin", "-back-bin") if key.endswith("-bin") else f"{key}-back"


def with_paths() -> None:
    """From here on, servers answer HTTP's clients with the methods as they are, whose messages are bytes."""
    original = _core.Server

    @wraps(original)
    def made(methods: list[tuple[Any, Any]], *args: Any, **options: Any) -> _core.Server:
        paths = {}
        for number, (method, _) in enumerate(methods):
            service, _, name = method.name.rpartition(".")
            if service == "Raw":
                kind = (name in STREAMS_IN, False, name in STREAMS_OUT, name in NO_SIDE_EFFECTS)
                paths.setdefault(f"/test.Raw/{name}", PathEntry(number, *kind))
        return original(methods, *args, **options | {"paths": dict.fromkeys(CODECS, paths)})

    _core.Server = made  # type: ignore[assignment,misc]


def raw() -> list[object]:
    """The services of a server program."""
    with_paths()
    return [Raw()]
