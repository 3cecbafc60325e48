"""Services that take and return functions, for threads and for an event loop."""

# mypy: disable-error-code="misc"
# In the event loop functions are awaited: a class for threads cannot say so.

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import msgspec

import nearcall

from .process import serve_encrypted


@dataclass
class Frame:
    number: int


@dataclass
class Job:
    name: str
    done: Callable[[Frame, int], str] | None = None
    others: list[Callable[[int], None]] = field(default_factory=list)


class Table(msgspec.Struct):
    by_name: dict[str, Callable[[int], int]]
    pair: tuple[int, Callable[[], int]]


@nearcall.service
class Tool(Protocol):
    def each(self, count: int, tell: Callable[[int], None]) -> int: ...
    def run(self, job: Job) -> str: ...
    def table(self, table: Table) -> list[int]: ...
    def times(self, factor: int) -> Callable[[int], int]: ...
    def subscribe(self, listener: Callable[[str], str]) -> int: ...
    def unsubscribe(self, listener: Callable[[str], str]) -> int: ...
    def back(self, function: Callable[[str], str]) -> Callable[[str], str]: ...
    def perhaps(self, function: Callable[[], None] | None = None) -> bool: ...
    def items(self, numbers: Callable[[int], Iterator[int]]) -> list[int]: ...
    def made(self) -> int: ...


class Multiplier:
    alive: ClassVar[weakref.WeakSet[Multiplier]] = weakref.WeakSet()

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.alive.add(self)

    def __call__(self, number: int) -> int:
        return number * self.factor


class ThreadTool(Tool):
    def __init__(self) -> None:
        self.listeners: list[Callable[[str], str]] = []

    def each(self, count: int, tell: Callable[[int], None]) -> int:
        for number in range(count):
            tell(number)
        return count

    def run(self, job: Job) -> str:
        for other in job.others:
            other(7)
        return job.done(Frame(3), 4) if job.done is not None else job.name

    def table(self, table: Table) -> list[int]:
        return [*(function(10) for function in table.by_name.values()), table.pair[1]()]

    def times(self, factor: int) -> Callable[[int], int]:
        return Multiplier(factor)

    def subscribe(self, listener: Callable[[str], str]) -> int:
        self.listeners.append(listener)
        return len(self.listeners)

    def unsubscribe(self, listener: Callable[[str], str]) -> int:
        self.listeners.remove(listener)
        return len(self.listeners)

    def back(self, function: Callable[[str], str]) -> Callable[[str], str]:
        return function

    def perhaps(self, function: Callable[[], None] | None = None) -> bool:
        if function is not None:
            function()
        return function is not None

    def items(self, numbers: Callable[[int], Iterator[int]]) -> list[int]:
        return list(numbers(3))

    def made(self) -> int:
        return len(Multiplier.alive)


class LoopTool(Tool):
    def __init__(self) -> None:
        self.listeners: list[Callable[[str], Awaitable[str]]] = []

    async def each(self, count: int, tell: Callable[[int], Awaitable[None]]) -> int:  # type: ignore[override]
        for number in range(count):
            await tell(number)
        return count

    async def run(self, job: Job) -> str:  # type: ignore[override]
        for other in job.others:
            await other(7)  # type: ignore[func-returns-value]
        return await job.done(Frame(3), 4) if job.done is not None else job.name  # type: ignore[no-any-return]

    async def table(self, table: Table) -> list[int]:  # type: ignore[override]
        return [*[await function(10) for function in table.by_name.values()], await table.pair[1]()]

    async def times(self, factor: int) -> Callable[[int], int]:  # type: ignore[override]
        return Multiplier(factor)

    async def subscribe(self, listener: Callable[[str], Awaitable[str]]) -> int:  # type: ignore[override]
        self.listeners.append(listener)
        return len(self.listeners)

    async def unsubscribe(self, listener: Callable[[str], Awaitable[str]]) -> int:  # type: ignore[override]
        self.listeners.remove(listener)
        return len(self.listeners)

    async def back(self, function: Callable[[str], str]) -> Callable[[str], str]:  # type: ignore[override]
        return function

    async def perhaps(self, function: Callable[[], Awaitable[None]] | None = None) -> bool:  # type: ignore[override]
        if function is not None:
            await function()
        return function is not None

    async def items(self, numbers: Callable[[int], AsyncIterator[int]]) -> list[int]:  # type: ignore[override]
        return [number async for number in numbers(3)]

    async def made(self) -> int:  # type: ignore[override]
        return len(Multiplier.alive)


def in_threads() -> list[object]:
    serve_encrypted()
    return [ThreadTool()]


def in_loop() -> list[object]:
    serve_encrypted()
    return [LoopTool()]
