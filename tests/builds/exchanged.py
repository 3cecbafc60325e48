"""What two builds of nearcall exchange in ``make test-builds``: services that both can import, whatever one of them
lacks. Only names that old builds have are used at the top; the rest is in :func:`abilities`.
"""

from __future__ import annotations

import os
import threading
import time as clock
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
from numpy.typing import NDArray

import nearcall

Numbers = NDArray[np.float64]


def has(name: str) -> bool:
    """Whether this build has that name."""
    return hasattr(nearcall, name)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    x: int
    y: float


class Named(TypedDict):
    name: str
    size: int


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float
    rounded: bool = False


@dataclass
class Point:
    x: int
    label: str = ""
    data: bytes = b""


@dataclass
class Everything:
    """A value of every kind."""

    text: str
    number: int
    ratio: float
    flag: bool
    missing: int | None
    choice: int | str
    at: datetime
    day: date
    clock: time
    took: timedelta
    id: UUID
    price: Decimal
    colours: set[Colour]
    pair: tuple[int, str]
    many: list[Point]
    named: dict[str, Point]
    shape: Circle | Square
    raw: bytes
    letter: Literal["a", "b"]
    frozen: frozenset[int] = frozenset()
    later: list[int] = field(default_factory=list)


ZONES = [timezone.utc, timezone(timedelta(hours=5, minutes=30)), None]


def everything() -> list[Everything]:
    """Values with edges of each kind."""
    return [
        Everything(
            text="käse\0 \U0001f9c0",
            number=-(2**53) + number,
            ratio=0.1 * number,
            flag=bool(number % 2),
            missing=None if number else 7,
            choice="seven" if number else 7,
            at=datetime(2024, 2, 29, 23, 59, 59, 999_999 - number, tzinfo=zone),
            day=date(1, 1, 1) if number else date(9999, 12, 31),
            clock=time(23, 59, 59, 1),
            took=timedelta(days=-3, microseconds=1),
            id=UUID(int=2**127 + number),
            price=Decimal("10.500"),
            colours={Colour.RED, Colour.BLUE} if number else set(),
            pair=(number, "pair"),
            many=[Point(1, "a", b"\0"), Point(2)],
            named={"": Point(0), "b": Point(-1)},
            shape=Square(2.0, True) if number else Circle(1.5),
            raw=bytes(range(256)),
            letter="b",
            frozen=frozenset({1, 2}),
            later=[number] * number,
        )
        for number, zone in enumerate(ZONES)
    ]


def anything() -> list[Any]:
    """Values for ``Any``: they must arrive as the types they were."""
    return [
        None,
        True,
        -1,
        2**63,
        1.5,
        "text",
        b"bytes",
        [1, [2, []]],
        {"a": {"b": [None]}},
        (1, (2, "x")),
        {1, 2},
        frozenset({"a"}),
        datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc),
        datetime(2020, 1, 2, 3, 4, 5, 6),
        datetime(2020, 7, 2, 3, 4, tzinfo=ZoneInfo("Europe/Berlin")),
        date(2020, 1, 2),
        time(1, 2, 3),
        timedelta(-1, 5, 7),
        UUID(int=5),
        Decimal("1.50"),
        np.float32(1.5),
        np.arange(6, dtype="<i2").reshape(2, 3),
        [np.zeros((0, 3)), np.asfortranarray(np.arange(4.0).reshape(2, 2))],
    ]


class Empty(Exception):
    """Declared by a service."""

    def __init__(self, shelf: str, number: int) -> None:
        super().__init__(shelf, number)
        self.since = [1.5, None]


@nearcall.service(errors=[Empty])
class Basics:
    """Calls of one value."""

    def __init__(self) -> None:
        self.noted = 0
        self.cancelled = threading.Event()

    def abilities(self) -> list[str]:
        """Names that the server's build has."""
        return [name for name in ("Topic", "Session", "release", "empty", "start") if has(name)]

    def pid(self) -> int:
        return os.getpid()

    @nearcall.idempotent
    def add(self, a: int, b: int = 5) -> int:
        return a + b

    def forms(self, a: int, /, b: int, c: int = 3, *, d: int, e: int = 5) -> list[int]:
        return [a, b, c, d, e]

    def same(self, value: Everything) -> Everything:
        return value

    def places(self, places: list[Place], named: Named) -> tuple[list[Place], Named]:
        return places, named

    def echo(self, data: bytes) -> bytes:
        return data

    def view(self, data: memoryview) -> memoryview:
        return data

    def text(self, text: str) -> str:
        return text

    def both(self, first: bytes, number: int, second: memoryview) -> list[int]:
        return [len(first), number, len(second)]

    def made(self, size: int) -> bytes:
        return (bytes(range(251)) * (size // 251 + 1))[:size]

    def fail(self, how: str) -> int:
        if how == "declared":
            raise Empty("top", 7)
        if how == "status":
            raise nearcall.NotFound("no such thing", details={"id": 7})
        raise ValueError("a mistake of the server")

    def left(self) -> float:
        """Seconds until the deadline."""
        found = nearcall.context().time_left
        return -1.0 if found is None else found

    def wait(self, seconds: float) -> bool:
        """Waits; whether it was cancelled."""
        if wait_until(lambda: nearcall.context().cancelled, seconds):
            self.cancelled.set()
            return True
        return False

    def was_cancelled(self) -> bool:
        return self.cancelled.wait(10)

    def told(self) -> list[tuple[str, str]]:
        given = nearcall.context().metadata
        return sorted((key, str(given[key])) for key in given if key.startswith("test"))

    @nearcall.oneway
    def note(self, n: int, data: bytes) -> None:
        self.noted += n

    def notes(self) -> int:
        return self.noted


@nearcall.service
class Loose:
    """Values of any type."""

    def same(self, value: Any) -> Any:
        return value


@nearcall.service
class Arrays:
    """Arrays and what they lie in."""

    def scale(self, values: Numbers, by: float) -> Numbers:
        return values * by

    def same(self, values: Numbers) -> Numbers:
        return values

    def total(self, by_name: dict[str, Numbers]) -> dict[str, float]:
        return {name: float(values.sum()) for name, values in by_name.items()}


@nearcall.service
class Streams:
    """Streams both ways."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def count(self, n: int) -> Iterator[int]:
        try:
            yield from range(n)
        finally:
            self.ended.set()

    def blocks(self, n: int, size: int) -> Iterator[bytes]:
        for number in range(n):
            yield bytes([number % 256]) * size

    def total(self, numbers: Iterable[int], start: int = 0) -> int:
        return sum(numbers, start)

    def first(self, numbers: Iterator[int], n: int) -> list[int]:
        return [next(numbers) for _ in range(n)]

    def doubled(self, points: Iterator[Point]) -> Iterator[Point]:
        for point in points:
            yield Point(point.x * 2, point.label, point.data)

    def arrays(self, arrays: Iterator[Numbers]) -> Iterator[Numbers]:
        for values in arrays:
            yield values + 1

    def has_ended(self) -> bool:
        found = self.ended.wait(10)
        self.ended.clear()
        return found

    def broken(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise nearcall.DataLoss("the rest is gone")


@nearcall.service(name="Moved")
class ServedMoved:
    """The server's version of a service whose client has another order of parameters."""

    def transfer(self, target: str, source: str, cents: int = 5, note: str = "none") -> str:
        return f"{source} {target} {cents} {note}"

    def draw(self, size: int, data: bytes, at: Point) -> str:
        return f"{size} {data!r} {at}"


@nearcall.service(name="Moved")
class CalledMoved:
    """The client's."""

    def transfer(self, source: str, target: str, cents: int = 7) -> str:
        raise NotImplementedError

    def draw(self, at: Point, data: bytes, size: int, colour: str = "red") -> str:
        raise NotImplementedError


@nearcall.service
class Listener:
    """What a client passes."""

    def said(self, text: str) -> str:
        raise NotImplementedError

    def many(self, n: int) -> Iterator[int]:
        raise NotImplementedError


class Ear(Listener):
    def said(self, text: str) -> str:
        return text.upper()

    def many(self, n: int) -> Iterator[int]:
        yield from range(n)


def services() -> list[Any]:
    """All that the server's build can serve over nearcall's own protocol."""
    found: list[Any] = [Basics(), Loose(), Arrays(), Streams(), ServedMoved()]
    if has("release"):
        from exchanged_objects import Room

        found.append(Room())
    if has("Topic"):
        from exchanged_topics import News

        found.append(News())
    if has("empty"):
        from exchanged_buffers import Lent

        found.append(Lent())
    return found


def wait_until(condition: Any, seconds: float = 10.0) -> bool:
    """Whether it came to be."""
    end = clock.monotonic() + seconds
    while not condition():
        if clock.monotonic() > end:
            return False
        clock.sleep(0.01)
    return True
