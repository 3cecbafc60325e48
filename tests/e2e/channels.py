"""Services that share a connection, in two versions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import nearcall

from .events import Events
from .process import serve_encrypted

PATIENCE = 30.0


@nearcall.service
class Left:
    def __init__(self) -> None:
        self.heard: list[int] = []
        self.begun = Events()
        self.go_on = Events()

    def name(self) -> str:
        return "left"

    def pid(self) -> int:
        return os.getpid()

    def wait(self, key: str) -> str:
        self.begun[key].set()
        self.go_on[key].wait(PATIENCE)
        return "waited"

    @nearcall.oneway
    def hear(self, number: int) -> None:
        self.heard.append(number)

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def total(self, xs: Iterable[int]) -> int:
        return sum(xs)


@nearcall.service
class Right:
    def name(self) -> str:
        return "right"

    def double(self, xs: Iterable[int]) -> Iterator[int]:
        for x in xs:
            yield 2 * x

    async def shout(self, text: str) -> str:
        return text.upper()


@nearcall.service(name="Right")
class LaterRight:
    def more(self) -> int:
        return 7

    def name(self, language: str) -> str:
        return f"right in {language}"

    async def shout(self, text: str) -> str:
        return text.upper()


def early() -> list[object]:
    serve_encrypted()
    return [Left(), Right()]


def late() -> list[object]:
    """Their methods have other numbers."""
    serve_encrypted()
    return [LaterRight(), Left()]
