"""A service to which buffers and arrays are handed over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nearcall

Pixels = NDArray[np.uint8]


@dataclass
class Frame:
    number: int
    pixels: Pixels
    more: list[Pixels] = field(default_factory=list)


@nearcall.service
class Frames:
    def __init__(self) -> None:
        self.kept: Any = None

    def echo(self, pixels: Pixels) -> Pixels:
        return pixels

    async def echo_in_loop(self, pixels: Pixels) -> Pixels:
        return pixels

    def part(self, data: memoryview, start: int, stop: int) -> memoryview:
        return data[start:stop]

    def whole(self, data: memoryview) -> memoryview:
        return data

    def frame(self, frame: Frame) -> Frame:
        return frame

    def either(self, value: Any) -> Any:
        return value

    def write(self, pixels: Pixels) -> None:
        pixels[:] = 0

    def keep(self, pixels: Pixels) -> None:
        self.kept = pixels

    def shown(self) -> int:
        """The sum of what was kept."""
        return int(self.kept.sum(dtype=np.int64))

    def drop(self) -> None:
        self.kept = None

    def make(self, length: int, value: int) -> Pixels:
        pixels = nearcall.empty(length, np.uint8)
        pixels[:] = value
        return pixels

    async def make_in_loop(self, length: int, value: int) -> Pixels:
        return self.make(length, value)

    def count(self, n: int, length: int) -> Iterator[Pixels]:
        for number in range(n):
            yield self.make(length, number)

    def mirror(self, frames: Iterator[Pixels]) -> Iterator[Pixels]:
        yield from frames

    @nearcall.oneway
    def log(self, pixels: Pixels) -> None:
        pass

    def held(self) -> tuple[int, int]:
        return held()


def services() -> list[object]:
    return [Frames()]


def held() -> tuple[int, int]:
    """Descriptors of this process, and shared memories that it has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = sum("/memfd:nearcall" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), mapped
