"""What the victims serve and call."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import nearcall

from ..hostile import raw
from ..hostile.frames import CALL, PING, frame
from ..soak.services import Ear, Passing

SMALL = bytes(range(16))
LARGE = 5 << 20


@dataclass
class Laborious:
    """Takes its time to be made, where `lasts` says so."""

    number: int
    lasts: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        time.sleep(self.lasts)


@nearcall.service
class Target:
    def __init__(self) -> None:
        self._taken: list[int] = []
        self._begun: set[str] = set()
        self._closed: dict[str, int] = {}

    def pid(self) -> int:
        return os.getpid()

    def echo(self, data: bytes) -> bytes:
        return data

    def length(self, data: memoryview) -> int:
        return len(data)

    def make(self, size: int) -> bytes:
        return bytes(size)

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    def doubled(self, numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            yield number * 2

    def convert(self, value: dict[str, list[int]]) -> dict[str, list[int]]:
        return value

    def laborious(self, number: int) -> Laborious:
        return Laborious(number)

    def laborious_items(self) -> Iterator[Laborious]:
        while True:
            yield Laborious(1)

    def make_later(self, size: int, gate: str) -> bytes:
        """As `make`, once the file is there."""
        while not os.path.exists(gate):
            time.sleep(0.001)
        return bytes(size)

    def take_descriptors(self) -> None:
        """All that this process may still have."""
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(os.dup(0))

    def give_descriptors(self) -> None:
        while self._taken:
            os.close(self._taken.pop())

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def noted_nap(self, key: str, seconds: float) -> None:
        self._begun.add(key)
        time.sleep(seconds)

    def endless(self, key: str) -> Iterator[int]:
        self._begun.add(key)
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            self._closed[key] = time.monotonic_ns()

    def has_begun(self, key: str) -> bool:
        return key in self._begun

    def closed_at(self, key: str) -> int | None:
        """When the stream with the key was closed, nanoseconds of the monotonic clock."""
        return self._closed.get(key)


def one_of_each(url: str, large: bytes, key: str = "") -> None:
    """Connects, one small call, one large call, closes: the life of a client."""
    with nearcall.connect(url, Target) as target:
        assert target.echo(SMALL) == SMALL
        assert target.echo(large) == large


class OwnEar(Ear):
    def hear(self, nonce: int) -> int:
        return nonce + 1


def passes_one_of_each(url: str, large: bytes, key: str = "") -> None:
    """Connects, is called back, calls an object that it was given, and hands over memory that comes back."""
    with nearcall.connect(url, Passing) as passing:
        assert passing.heard(OwnEar(), 1, 3) == [2, 3, 4]
        seat = passing.seat(5)
        assert seat.say(6, SMALL)[:2] == (5, 6)
        memory = nearcall.buffer(len(large))
        memory[:] = large
        assert passing.mirror(memory) == large


def many_of_each(url: str, large: bytes, key: str = "") -> None:
    """Small and large calls and a stream, without end."""
    client: Any = nearcall.connect(url, Target).service
    while True:
        for _ in range(20):
            assert client.echo(SMALL) == SMALL
        assert client.length(large) == len(large)
        stream = client.endless("many")
        assert [next(stream) for _ in range(20)] == list(range(20))
        stream.close()


def reads_without_end(url: str, large: bytes, key: str) -> None:
    for _ in nearcall.connect(url, Target).endless(key):
        pass


def reads_nothing(url: str, large: bytes, key: str) -> None:
    """Calls and pings in plain Python, without end, and never looks at what comes."""
    with raw.connect(url) as peer:
        call = frame(CALL, bytes(20_000), method=peer.methods["echo"])
        while True:
            peer.flood([call, *[frame(PING, bytes(1000), call=2)] * 20], 0.1)
            time.sleep(0.001)


def served() -> list[object]:
    return [Target(), Passing()]


@nearcall.service
class Newcomer:
    def hello(self) -> str:
        return "hello"


def served_and_more() -> list[object]:
    """The same after an update: the methods have other numbers, so that clients ask anew what is served."""
    return [Newcomer(), *served()]
