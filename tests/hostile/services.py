"""What the attacked server serves: something of every kind, and handlers that take their time."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import decimal
import enum
import functools
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

import nearcall

from .naps import nap

SECRET = b"this-belongs-to-another-connection!"
TOKEN = "let-me-in"


@functools.cache
def block_of(size: int) -> bytes:
    return bytes(size)


async def total_of(blocks: AsyncIterator[bytes]) -> int:
    """How long they are together. A loop over them would have the last one for as long as it waits for the next."""
    total = 0
    with contextlib.suppress(StopAsyncIteration):
        while True:
            total += len(await anext(blocks))
    return total


@nearcall.service
class Target:
    def __init__(self) -> None:
        self._naps_in_loop = 0
        self._naps = self._notes = 0
        self._news = nearcall.Topic[bytes]()
        self._latest = nearcall.Topic[bytes](when_full="drop_oldest", keep_last=True)

    def echo(self, data: bytes) -> bytes:
        return data

    async def echo_in_loop(self, data: bytes) -> bytes:
        return data

    def length(self, data: memoryview) -> int:
        return len(data)

    def make(self, size: int) -> bytes:
        return bytes(size)

    def nap(self, seconds: float) -> None:
        self._naps += 1
        nap(seconds)

    def naps_and_notes(self) -> tuple[int, int]:
        """How many of them were begun."""
        return self._naps, self._notes

    async def nap_in_loop(self, seconds: float) -> int:
        """Holds the event loop for so long. How many have."""
        self._naps_in_loop += 1
        time.sleep(seconds)  # noqa: ASYNC251 - as a slow handler does
        return self._naps_in_loop

    async def hold(self, data: bytes, seconds: float) -> int:
        """Keeps its argument for a while, and no thread."""
        await asyncio.sleep(seconds)
        return len(data)

    async def hold_values(self, values: list[Any], seconds: float) -> int:
        await asyncio.sleep(seconds)
        return len(values)

    def array(self, values: NDArray[Any]) -> NDArray[Any]:
        return values

    def floats(self, values: NDArray[np.float64]) -> float:
        return float(values.sum())

    def many(self, values: list[Any]) -> int:
        return len(values)

    def anything(self, value: Any) -> Any:
        return value

    def numbered(self, values: dict[int, Any]) -> int:
        return len(values)

    def members(self, values: set[tuple[int, ...]]) -> int:
        return len(values)

    def prices(self, values: dict[decimal.Decimal, None]) -> int:
        return len(values)

    def names(self, first: int = 1, second: str = "") -> int:
        return first

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def blocks(self, size: int) -> Iterator[bytes]:
        # The same for all: what handlers have of their own is not what the server keeps.
        block = block_of(size)
        while True:
            yield block

    def total(self, blocks: Iterator[bytes]) -> int:
        return sum(map(len, blocks))

    async def slow_total(self, blocks: AsyncIterator[bytes], seconds: float) -> int:
        """Looks at nothing before so long."""
        await asyncio.sleep(seconds)
        return await total_of(blocks)

    async def slow_values(self, lists: AsyncIterator[list[Any]], seconds: float) -> int:
        """Looks long at each of them."""
        total = 0
        async for values in lists:
            await asyncio.sleep(seconds)
            total += len(values)
        return total

    def mirrored(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        yield from blocks

    def news(self) -> Iterator[bytes]:
        return self._news.subscribe()

    def news_in_loop(self) -> AsyncIterator[bytes]:
        return self._news.subscribe()

    def latest(self) -> Iterator[bytes]:
        return self._latest.subscribe()

    def publish(self, size: int) -> int:
        """To all subscribers; how many there are."""
        item = bytes(size)
        return self._news.publish(item) + self._latest.publish(item)

    def was_cancelled(self) -> bool:
        """Whether the server believes that this call was given up; after a moment in which it could learn of it."""
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            if nearcall.context().cancelled:
                return True
            time.sleep(0.001)
        return False

    def refuse(self, text: str) -> None:
        raise nearcall.NotFound(text)

    @nearcall.oneway
    def note(self, data: bytes) -> None:
        pass

    @nearcall.oneway
    def slow_note(self, data: bytes) -> None:
        self._notes += 1
        nap(0.001)

    @nearcall.oneway
    def fail(self, text: str) -> None:
        raise ValueError(text)


@dataclass
class Node:
    value: int = 0
    name: str = ""
    children: list[Node] = field(default_factory=list)
    next: Node | None = None


class Colour(enum.IntEnum):
    UNKNOWN = 0
    RED = 1


class Apple(msgspec.Struct, tag=True):
    weight: int


class Pear(msgspec.Struct, tag=True):
    name: str


@nearcall.service(name="hostile.Messages")
class Messages:
    """What is served over gRPC: something of every kind of field."""

    def echo(self, data: bytes) -> bytes:
        return data

    async def echo_in_loop(self, data: bytes) -> bytes:
        return data

    def length(self, data: memoryview) -> int:
        return len(data)

    def make(self, size: int) -> bytes:
        return bytes(size)

    def nap(self, seconds: float) -> None:
        nap(seconds)

    async def hold(self, data: bytes, seconds: float) -> int:
        """Keeps its argument for a while, and no thread."""
        await asyncio.sleep(seconds)
        return len(data)

    async def hold_nodes(self, values: list[Node], seconds: float) -> int:
        await asyncio.sleep(seconds)
        return len(values)

    def tree(self, node: Node) -> int:
        return node.value

    def anything(self, value: Any) -> Any:
        return value

    def many(self, values: list[Any]) -> int:
        return len(values)

    def numbers(self, values: list[int]) -> int:
        return len(values)

    def truths(self, values: list[bool]) -> int:
        return len(values)

    def nodes(self, values: list[Node]) -> int:
        return len(values)

    def numbered(self, values: dict[int, Node]) -> int:
        return len(values)

    def named(self, values: dict[str, int]) -> int:
        return len(values)

    def members(self, values: set[int]) -> int:
        return len(values)

    def text(self, value: str) -> str:
        return value

    def colour(self, value: Colour) -> int:
        return int(value)

    def fruit(self, value: Apple | Pear) -> str:
        return repr(value)

    def when(self, at: datetime.datetime, lasts: datetime.timedelta) -> str:
        return f"{at.isoformat()} {lasts}"

    def price(self, value: decimal.Decimal) -> str:
        return str(value)

    def array(self, values: NDArray[np.float64]) -> float:
        return float(values.sum())

    def refuse(self, text: str) -> None:
        raise nearcall.NotFound(text)

    def left(self) -> float | None:
        """Seconds that are left, if there is a deadline."""
        return nearcall.context().time_left

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def blocks(self, size: int) -> Iterator[bytes]:
        # The same for all: what handlers have of their own is not what the server keeps.
        block = block_of(size)
        while True:
            yield block

    def total(self, blocks: Iterator[bytes]) -> int:
        return sum(map(len, blocks))

    async def slow_total(self, blocks: AsyncIterator[bytes]) -> int:
        """Looks at nothing before a second has passed."""
        await asyncio.sleep(1.0)
        return await total_of(blocks)

    def mirrored(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        yield from blocks

    @nearcall.oneway
    def note(self, data: bytes) -> None:
        pass


def target() -> list[object]:
    """For servers of a test's own."""
    return [Target()]


def served_at(url: str) -> type[Target] | type[Messages]:
    """The class that is served at the URL, and that its honest client has."""
    return Messages if url.startswith("grpc") else Target
