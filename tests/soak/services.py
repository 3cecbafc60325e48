"""What the soak's server does: it answers with what only the right answer can contain."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nearcall

from .journal import SERVER_FIELDS, Journal

JOURNAL = "NEARCALL_SOAK_JOURNAL"
ROWS = "NEARCALL_SOAK_ROWS"
DELIVERED, DISORDERED = range(len(SERVER_FIELDS))


def answer(client: int, nonce: int, data: bytes | memoryview) -> tuple[int, int, int]:
    """What the server must say to this client's question."""
    return (client, nonce, zlib.crc32(data))


def news(number: int) -> tuple[int, int]:
    """What is published with that number."""
    return number, zlib.crc32(b"%d" % number)


@nearcall.service
class Soaked:
    def __init__(self, passing: Passing) -> None:
        self._passing = passing
        self._journal = Journal(Path(os.environ[JOURNAL]), int(os.environ[ROWS]))
        self._lock = threading.Lock()
        self._last: dict[int, int] = {}
        self._news = nearcall.Topic[tuple[int, int]](when_full="drop_oldest", keep_last=True)
        self._published = 0

    def pid(self) -> int:
        return os.getpid()

    def seats(self) -> int:
        """How many objects that :class:`Passing` has given are held by somebody."""
        return self._passing.seats()

    def check(self, client: int, nonce: int, data: memoryview) -> tuple[int, int, int]:
        if nonce % 4 == 0:
            with self._lock:
                self._published += 1
                self._news.publish(news(self._published))
        return answer(client, nonce, data)

    def news(self) -> Iterator[tuple[int, int]]:
        """What is published whenever somebody asks for a check: each number once and in order; some may be missing."""
        return self._news.subscribe()

    async def check_in_loop(self, client: int, nonce: int, data: bytes) -> tuple[int, int, int]:
        await asyncio.sleep(0)
        return answer(client, nonce, data)

    def echo(self, client: int, nonce: int, data: bytes) -> bytes:
        return data

    def refuse(self, client: int, nonce: int) -> None:
        raise nearcall.NotFound(f"{client} {nonce}")

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    async def nap_in_loop(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def count(self, client: int, nonce: int, n: int) -> Iterator[int]:
        for number in range(n):
            yield client * 1_000_003 + nonce + number

    async def count_in_loop(self, client: int, nonce: int, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield client * 1_000_003 + nonce + number
            if number % 64 == 0:
                await asyncio.sleep(0)

    def total(self, client: int, nonce: int, blocks: Iterator[bytes]) -> tuple[int, int, int]:
        check = 0
        for block in blocks:
            check = zlib.crc32(block, check)
        return (client, nonce, check)

    def mirrored(self, client: int, nonce: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
        yield from blocks

    async def mirrored_in_loop(self, client: int, nonce: int, blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for block in blocks:
            yield block

    @nearcall.oneway
    def note(self, client: int, number: int, data: bytes) -> None:
        """One-way calls of one client come once each and in order; after a lost connection some may be missing."""
        with self._lock:
            self._journal.add(client, DELIVERED)
            if number <= self._last.get(client, 0):
                self._journal.add(client, DISORDERED)
            self._last[client] = number

    def noted(self, client: int) -> int:
        """How many of the client's one-way calls came, to this server and those before it."""
        with self._lock:
            return self._journal.get(client, DELIVERED)


@nearcall.service
class Ear:
    """What clients pass."""

    def hear(self, nonce: int) -> int:
        raise NotImplementedError


@nearcall.service
class Seat:
    """What the server passes."""

    def say(self, nonce: int, data: bytes) -> tuple[int, int, int]:
        raise NotImplementedError


class OwnSeat(Seat):
    def __init__(self, client: int) -> None:
        self._client = client

    def say(self, nonce: int, data: bytes) -> tuple[int, int, int]:
        return answer(self._client, nonce, data)


@nearcall.service
class Passing:
    """Passes objects and memory. Apart: connections whose clients pass objects are received from otherwise."""

    def __init__(self) -> None:
        self._seats: weakref.WeakSet[OwnSeat] = weakref.WeakSet()

    def heard(self, ear: Ear, nonce: int, n: int) -> list[int]:
        return [ear.hear(nonce + number) for number in range(n)]

    async def heard_in_loop(self, ear: Ear, nonce: int, n: int) -> list[int]:
        heard: Any = ear.hear  # in an event loop a call of an object is awaited
        return list(await asyncio.gather(*[heard(nonce + number) for number in range(n)]))

    def again(self, ear: Ear) -> Ear:
        return ear

    def seat(self, client: int) -> Seat:
        seat = OwnSeat(client)
        self._seats.add(seat)
        return seat

    def seats(self) -> int:
        """How many are held by somebody. `close()` would not tell: it is not called of what could not be given."""
        gc.collect()
        return len(self._seats)

    def mirror(self, data: memoryview) -> memoryview:
        return data


def served() -> list[object]:
    passing = Passing()
    return [Soaked(passing), passing]
