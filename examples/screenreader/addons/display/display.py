"""A braille driver. Its reader presses the key for more as soon as a line is full."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

from screen_api import Display

from nearcall import plugin

WIDTH = 24


class Paper(Display):
    def __init__(self) -> None:
        self._keys: SimpleQueue[str] = SimpleQueue()

    def width(self) -> int:
        return WIDTH

    def show(self, cells: bytes) -> None:
        print("".join(chr(0x2800 + cell) for cell in cells))
        if len(cells) == WIDTH:
            self._keys.put("more")

    def pressed(self) -> Iterator[str]:
        while True:
            yield self._keys.get()


plugin.offer(Paper())
