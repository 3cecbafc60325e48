"""A service for the type checkers to look at; nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import nearcall


@nearcall.service
class Calculator:
    def __init__(self) -> None:
        self.news = nearcall.Topic[int]()

    def add(self, a: int, b: int = 1) -> int:
        return a + b

    async def add_in_loop(self, a: int, b: int) -> int:
        return a + b

    def listen(self) -> Iterator[int]:
        return self.news.subscribe()

    def listen_in_loop(self) -> AsyncIterator[int]:
        return self.news.subscribe()

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    async def count(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    @nearcall.oneway
    def log(self, line: str) -> None: ...

    @nearcall.idempotent
    def get(self, key: str) -> bytes | None: ...


@nearcall.service(name="zoo.Animals", errors=[ValueError])
class Animals(Protocol):
    def names(self) -> list[str]: ...


@nearcall.service
class Listener(Protocol):
    def said(self, text: str) -> None: ...


@nearcall.service
class Room(Protocol):
    def join(self, listener: Listener) -> Listener: ...


class Ear(Listener):
    def said(self, text: str) -> None: ...
