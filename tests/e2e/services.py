"""The services that the end-to-end tests call. The server process imports this, too."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import nearcall

from .events import Events
from .process import serve_encrypted

PATIENCE = 30.0
"""Seconds after which a handler that waits for another call gives up; no test waits that long unless it fails."""

serve_encrypted()

Numbers = NDArray[np.float64]


@dataclass
class Point:
    x: int
    label: str = ""
    data: bytes = b""


@dataclass
class Frame:
    name: str
    pixels: Numbers
    masks: list[Numbers] = field(default_factory=list)


def digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@nearcall.service
class Basics:
    """Calls with one argument list and one result."""

    def __init__(self) -> None:
        self._kept: dict[str, list[memoryview]] = defaultdict(list)

    def add(self, a: int, b: int = 5) -> int:
        """Adds."""
        return a + b

    async def add_in_loop(self, a: int, b: int = 5) -> int:
        await asyncio.sleep(0)
        return a + b

    def call_forms(self, a: int, /, b: int, c: int = 3, *, d: int, e: int = 5) -> list[int]:
        return [a, b, c, d, e]

    def nothing(self) -> None: ...

    def pid(self) -> int:
        return os.getpid()

    def thread(self) -> str:
        return threading.current_thread().name

    def echo(self, data: bytes) -> bytes:
        return data

    def echo_bytearray(self, data: bytearray) -> bytearray:
        assert type(data) is bytearray
        return data

    def echo_view(self, data: memoryview) -> memoryview:
        assert type(data) is memoryview
        return data

    async def echo_in_loop(self, data: bytes) -> bytes:
        return data

    def echo_text(self, text: str) -> str:
        return text

    def echo_point(self, point: Point) -> Point:
        return point

    def digest_of(self, first: bytes, data: memoryview, last: str) -> str:
        return f"{digest(first)} {digest(data)} {last}"

    def make(self, size: int, seed: int) -> bytes:
        return bytes([seed]) * size

    def keep(self, key: str, data: memoryview) -> None:
        """Keeps the view itself, after the handler has returned."""
        self._kept[key].append(data)

    def kept(self, key: str) -> list[str]:
        return [digest(view) for view in self._kept[key]]

    def let_go(self, key: str) -> int:
        return len(self._kept.pop(key, []))

    def scale(self, values: Numbers, by: float) -> Numbers:
        return values * by

    def same_array(self, values: Numbers) -> Numbers:
        return values

    def same_frame(self, frame: Frame) -> Frame:
        return Frame(frame.name, frame.pixels, frame.masks)

    def arrays(self, by_name: dict[str, Numbers]) -> dict[str, float]:
        return {name: float(values.sum()) for name, values in by_name.items()}

    @nearcall.idempotent
    def anything(self, value: Any) -> Any:
        return value


@nearcall.service
class Streams:
    """Calls with streams of every kind, in threads and in the event loop."""

    def __init__(self) -> None:
        self._closed = Events()
        self._told = Events()
        self._how: dict[str, str] = {}

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def listed(self, n: int) -> Iterator[int]:
        return iter(list(range(n)))

    async def count_in_loop(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number
            if number % 100 == 0:
                await asyncio.sleep(0)

    def count_and_wait(self, n: int, key: str) -> Iterator[int]:
        """Sends quickly, and waits then until it is told to go on."""
        yield from range(n)
        if not self._told[key].wait(PATIENCE):
            raise TimeoutError("nobody says that the items have come")

    async def count_and_wait_in_loop(self, n: int, key: str) -> AsyncIterator[int]:
        for number in range(n):
            yield number
        if not await asyncio.to_thread(self._told[key].wait, PATIENCE):
            raise TimeoutError("nobody says that the items have come")

    def go_on(self, key: str) -> None:
        self._told[key].set()

    def blocks(self, n: int, size: int) -> Iterator[bytes]:
        for number in range(n):
            yield bytes([number % 256]) * size

    def total(self, numbers: Iterator[int], start: int = 0) -> int:
        return sum(numbers, start)

    async def total_in_loop(self, numbers: AsyncIterator[int], start: int = 0) -> int:
        async for number in numbers:
            start += number
        return start

    def lengths(self, blocks: Iterator[memoryview]) -> list[int]:
        return [len(block) for block in blocks]

    def first(self, numbers: Iterator[int], n: int) -> list[int]:
        """Takes some of the items, and returns before the rest."""
        return [next(numbers) for _ in range(n)]

    def scaled(self, numbers: Iterator[float], by: float) -> Iterator[float]:
        for number in numbers:
            yield number * by

    async def scaled_in_loop(self, numbers: AsyncIterator[float], by: float) -> AsyncIterator[float]:
        async for number in numbers:
            yield number * by

    def points(self, points: Iterator[Point]) -> Iterator[Point]:
        for point in points:
            yield Point(point.x + 1, point.label, point.data)

    def arrays(self, arrays: Iterator[Numbers]) -> Iterator[Numbers]:
        for values in arrays:
            yield values * 2

    def all_then_all(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Answers only when it has everything."""
        yield from list(blocks)

    def fail_after(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise nearcall.OutOfRange(f"only {n}", details={"n": n})

    async def fail_after_in_loop(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number
        raise nearcall.OutOfRange(f"only {n}", details={"n": n})

    def wrong_item(self, n: int) -> Iterator[int]:
        yield from range(n)
        yield "not an int"  # type: ignore[misc]

    def endless(self, key: str) -> Iterator[int]:
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            self._note(key, "closed")

    async def endless_in_loop(self, key: str) -> AsyncIterator[int]:
        number = 0
        try:
            while True:
                yield number
                number += 1
                await asyncio.sleep(0)
        finally:
            self._note(key, "closed")

    async def silent_in_loop(self, key: str) -> AsyncIterator[int]:
        """One item, and then nothing more."""
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            self._note(key, "closed")

    def take_until_cancelled(self, key: str, numbers: Iterator[int]) -> int:
        try:
            return sum(numbers)
        except nearcall.Cancelled:
            self._note(key, "cancelled")
            raise

    def endless_echo(self, key: str, numbers: Iterator[int]) -> Iterator[int]:
        try:
            yield from numbers
        finally:
            self._note(key, "closed")

    async def endless_echo_in_loop(self, key: str, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        try:
            async for number in numbers:
                yield number
        finally:
            self._note(key, "closed")

    def _note(self, key: str, how: str) -> None:
        self._how[key] = how
        self._closed[key].set()

    def how_it_closed(self, key: str) -> str:
        """Waits until the handler that was given the key has cleaned up."""
        self._closed[key].wait(PATIENCE)
        return self._how.get(key, "still open")


class Strange(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED: dict[str, BaseException] = {
    "value": ValueError("a bad value"),
    "silent": KeyError(),
    "strange": Strange(),
    "surrogate": RuntimeError("\ud800"),
    "long": RuntimeError("x" * 100_000),
    "stop": StopIteration(3),
    "stop_async": StopAsyncIteration(),
    "exit": SystemExit(7),
    "interrupt": KeyboardInterrupt(),
    "generator_exit": GeneratorExit(),
    "cancelled": asyncio.CancelledError(),
    "base": BaseException("the root"),
    "group": RuntimeError("two\nlines"),
}


@nearcall.service
class Errors:
    """Handlers that fail in every way."""

    def __init__(self) -> None:
        self._oneway = threading.Event()

    def status(self, code: int, message: str, details: Any) -> None:
        raise nearcall.errors.error_class(code)(message, details=details)  # type: ignore[attr-defined]

    def raised(self, name: str) -> int:
        raise RAISED[name]

    async def raised_in_loop(self, name: str) -> int:
        raise RAISED[name]

    def raised_in_stream(self, name: str) -> Iterator[int]:
        yield 1
        raise RAISED[name]

    async def raised_in_loop_stream(self, name: str) -> AsyncIterator[int]:
        yield 1
        raise RAISED[name]

    @nearcall.oneway
    def raised_one_way(self, name: str) -> None:
        raise RAISED[name]

    @nearcall.oneway
    async def raised_one_way_in_loop(self, name: str) -> None:
        raise RAISED[name]

    def wrong_result(self) -> int:
        return "x"  # type: ignore[return-value]

    def wrong_inside(self) -> list[Point]:
        return [Point("x")]  # type: ignore[arg-type]

    def unencodable(self) -> Any:
        return object()

    async def wrong_result_in_loop(self) -> int:
        return "x"  # type: ignore[return-value]

    def recursion(self) -> int:
        return self.recursion()

    def fine(self) -> str:
        return "fine"


@nearcall.service
class Lines:
    """One-way calls, and what came of them."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = defaultdict(list)
        self._changed = threading.Condition()

    @nearcall.oneway
    def log(self, key: str, number: int) -> None:
        self._add(key, number)

    @nearcall.oneway
    async def log_in_loop(self, key: str, number: int) -> None:
        self._add(key, number)

    @nearcall.oneway
    def blob(self, key: str, data: bytes) -> None:
        self._add(key, len(data))

    def _add(self, key: str, number: int) -> None:
        with self._changed:
            self._lines[key].append(number)
            self._changed.notify_all()

    def wait_for(self, key: str, count: int) -> list[int]:
        """What came, once it is as many."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._lines[key]) >= count, PATIENCE)
            return self._lines[key]


@nearcall.service
class Waiting:
    """Handlers that take as long as the test wants."""

    def __init__(self) -> None:
        self._entered = Events()
        self._released = Events()
        self._over = Events()
        self._how: dict[str, str] = {}

    def hold(self, key: str) -> str:
        """Returns when released."""
        self._entered[key].set()
        self._released[key].wait(PATIENCE)
        return key

    async def hold_in_loop(self, key: str) -> str:
        self._entered[key].set()
        try:
            while not self._released[key].is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self._how[key] = "cancelled"
            raise
        finally:
            self._over[key].set()
        return key

    def entered(self, key: str) -> bool:
        """Waits until the handler with the key runs."""
        return self._entered[key].wait(PATIENCE)

    def has_entered(self, key: str) -> bool:
        return self._entered[key].is_set()

    def release(self, key: str) -> None:
        self._released[key].set()

    def how_it_ended(self, key: str) -> str:
        """Waits until the coroutine with the key is over."""
        self._over[key].wait(PATIENCE)
        return self._how.get(key, "finished")

    def spin(self, key: str) -> None:
        """Keeps the interpreter busy until released."""
        self._entered[key].set()
        released = self._released[key]
        while not released.is_set():
            pass


class Shape(Protocol):
    """Written with a Protocol, implemented below."""

    def area(self, width: float, height: float) -> float: ...

    def sides(self, n: int) -> Iterator[int]: ...


nearcall.service(Shape)


class Rectangle(Shape):
    def area(self, width: float, height: float) -> float:
        return width * height

    def sides(self, n: int) -> Iterator[int]:
        yield from range(n)


@nearcall.service(name="zoo.Animals")
class Animals:
    """An interface with bodies of dots."""

    def names(self) -> list[str]: ...

    def sound(self, of: str, *, loud: bool = False) -> str: ...


class Farm(Animals):
    def names(self):  # type: ignore[no-untyped-def]
        return ["cow", "hen"]

    def sound(self, of: str, *, loud: bool = False) -> str:
        sound = {"cow": "moo", "hen": "cluck"}[of]
        return sound.upper() if loud else sound


def everything() -> list[object]:
    return [Basics(), Streams(), Errors(), Lines(), Waiting(), Rectangle(), Farm()]
