"""A service for the type checkers to look at; nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
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


@nearcall.service(name="Calculator")
class AsyncCalculator(nearcall.aio.Interface, Protocol):
    async def add(self, a: int, b: int = ...) -> int: ...
    async def add_in_loop(self, a: int, b: int) -> int: ...
    def listen(self) -> AsyncIterator[int]: ...
    def count(self, n: int) -> AsyncIterator[int]: ...
    def countdown(self, n: int) -> nearcall.aio.AsyncStream[int]: ...
    async def total(self, xs: AsyncIterable[int] | Iterable[int]) -> int: ...
    @nearcall.oneway
    async def log(self, line: str) -> None: ...


@nearcall.service(name="Calculator")
class CalculatorForThreads(Protocol):
    def add(self, a: int, b: int = ...) -> int: ...
    def add_in_loop(self, a: int, b: int) -> int: ...
    def count(self, n: int) -> Iterator[int]: ...
    def countdown(self, n: int) -> nearcall.Stream[int]: ...
    def total(self, xs: Iterable[int]) -> int: ...


@nearcall.service
class Pages(nearcall.aio.Interface):
    """A class whose handlers are all for an event loop."""

    async def fetch(self, number: int) -> str:
        return f"page {number}"


@nearcall.service(name="zoo.Animals", errors=[ValueError])
class Animals(Protocol):
    def names(self) -> list[str]: ...


@nearcall.service
class Listener(Protocol):
    def said(self, text: str) -> None: ...


@nearcall.service
class Room(Protocol):
    def join(self, listener: Listener) -> Listener: ...


@nearcall.service(name="Listener")
class AsyncListener(nearcall.aio.Interface, Protocol):
    async def said(self, text: str) -> None: ...


@nearcall.service(name="Room")
class AsyncRoom(nearcall.aio.Interface, Protocol):
    async def join(self, listener: AsyncListener) -> AsyncListener: ...


class AsyncEar(AsyncListener):
    async def said(self, text: str) -> None: ...


class Ear(Listener):
    def said(self, text: str) -> None: ...
