"""Services that pass objects: what the tests of references call, served from threads and from an event loop."""

# mypy: disable-error-code="arg-type, attr-defined, empty-body, func-returns-value, misc, override, union-attr"
# An interface of ordinary functions is implemented with 'async def', and what it passes is awaited: of that no type
# checker can know.

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from typing_extensions import TypedDict

import nearcall

from .process import serve_encrypted


@nearcall.service
class Listener(Protocol):
    """What clients pass."""

    def said(self, text: str) -> int: ...
    @nearcall.oneway
    def noted(self, text: str) -> None: ...
    def numbers(self, n: int) -> Iterator[int]: ...
    def total(self, xs: Iterator[int]) -> int: ...
    def each(self, xs: Iterator[int], *, plus: int = 0) -> Iterator[int]: ...
    def fail(self, why: str) -> None: ...


@nearcall.service
class Counter:
    """What servers pass."""

    def add(self, n: int) -> int: ...
    @nearcall.oneway
    def note(self, n: int) -> None: ...
    def count_to(self, n: int) -> Iterator[int]: ...
    def next_one(self) -> Counter: ...
    def pid(self) -> int: ...


ALIVE: weakref.WeakSet[Thing] = weakref.WeakSet()
"""Things that somebody still refers to."""


@nearcall.service
class Thing:
    def name(self) -> str: ...


class OwnThing(Thing):
    def __init__(self) -> None:
        ALIVE.add(self)

    def name(self) -> str:
        return "thing"


@dataclass
class Team:
    name: str
    lead: Listener
    others: list[Listener] = field(default_factory=list)


class Pair(msgspec.Struct):
    left: Counter
    right: Counter | None = None


class Named(TypedDict):
    counter: Counter


@nearcall.service
class Hub:
    """An interface: one class implements it in threads, another in an event loop."""

    # From the server.
    def counter(self, start: int = 0) -> Counter: ...
    def again(self, number: int) -> Counter | None: ...
    def pair(self, *, alone: bool = False) -> Pair: ...
    def named(self, names: list[str]) -> dict[str, Named]: ...
    def counters(self, n: int) -> Iterator[Counter]: ...
    # Home again.
    def is_that(self, counter: Counter, number: int) -> bool: ...
    def add_to(self, counter: Counter, n: int) -> int: ...
    def sum_of(self, counters: Iterator[Counter]) -> int: ...
    # From the client.
    def tell(self, listener: Listener, text: str) -> int: ...
    def tell_all(self, team: Team, text: str) -> list[int]: ...
    def maybe(self, listener: Listener | None = None) -> int: ...
    def echo(self, listener: Listener) -> Listener: ...
    def echoes(self, listeners: Iterator[Listener]) -> Iterator[Listener]: ...
    def keep(self, listener: Listener) -> int: ...
    def forget(self) -> None: ...
    def tell_kept(self, text: str) -> int: ...
    @nearcall.oneway
    def note_kept(self, text: str) -> None: ...
    def numbers_of(self, listener: Listener, n: int) -> list[int]: ...
    def total_of(self, listener: Listener, xs: list[int]) -> int: ...
    def each_of(self, listener: Listener, xs: list[int]) -> list[int]: ...
    def fail_in(self, listener: Listener, why: str) -> str: ...
    # About it all.
    def ended(self) -> int: ...
    def forget_counters(self) -> None: ...
    def pid(self) -> int: ...
    def die(self) -> None: ...


class ThreadCounter(Counter):
    def __init__(self, hub: ThreadHub | LoopHub, value: int) -> None:
        self.hub = hub
        self.value = value

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    def note(self, n: int) -> None:
        self.value += n

    def count_to(self, n: int) -> Iterator[int]:
        yield from range(self.value, n)

    def next_one(self) -> Counter:
        return self.hub.made(ThreadCounter, self.value + 1)

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.hub.note_end()


class LoopCounter(Counter):
    def __init__(self, hub: ThreadHub | LoopHub, value: int) -> None:
        self.hub = hub
        self.value = value

    async def add(self, n: int) -> int:
        self.value += n
        return self.value

    async def note(self, n: int) -> None:
        self.value += n

    async def count_to(self, n: int) -> AsyncIterator[int]:
        for number in range(self.value, n):
            yield number

    async def next_one(self) -> Counter:
        return self.hub.made(LoopCounter, self.value + 1)

    async def pid(self) -> int:
        return os.getpid()

    async def aclose(self) -> None:
        self.hub.note_end()


class Shared:
    """What both hubs have."""

    def __init__(self) -> None:
        self.made_counters: list[Counter] = []
        self.kept: Listener | None = None
        self._ended = 0
        self._lock = threading.Lock()

    def made(self, kind: type[ThreadCounter | LoopCounter], value: int) -> Counter:
        counter = kind(self, value)
        self.made_counters.append(counter)
        return counter

    def note_end(self) -> None:
        with self._lock:
            self._ended += 1


class ThreadHub(Shared, Hub):
    def counter(self, start: int = 0) -> Counter:
        return self.made(ThreadCounter, start)

    def again(self, number: int) -> Counter | None:
        return self.made_counters[number] if number < len(self.made_counters) else None

    def pair(self, *, alone: bool = False) -> Pair:
        return Pair(self.counter(1), None if alone else self.counter(2))

    def named(self, names: list[str]) -> dict[str, Named]:
        return {name: Named(counter=self.counter(len(name))) for name in names}

    def counters(self, n: int) -> Iterator[Counter]:
        for number in range(n):
            yield self.counter(number)

    def is_that(self, counter: Counter, number: int) -> bool:
        return counter is self.made_counters[number]

    def add_to(self, counter: Counter, n: int) -> int:
        return counter.add(n)

    def sum_of(self, counters: Iterator[Counter]) -> int:
        return sum(counter.add(0) for counter in counters)

    def tell(self, listener: Listener, text: str) -> int:
        return listener.said(text)

    def tell_all(self, team: Team, text: str) -> list[int]:
        return [listener.said(f"{team.name}: {text}") for listener in (team.lead, *team.others)]

    def maybe(self, listener: Listener | None = None) -> int:
        return -1 if listener is None else listener.said("maybe")

    def echo(self, listener: Listener) -> Listener:
        return listener

    def echoes(self, listeners: Iterator[Listener]) -> Iterator[Listener]:
        yield from listeners

    def keep(self, listener: Listener) -> int:
        self.kept = listener
        return id(listener)

    def forget(self) -> None:
        self.kept = None

    def tell_kept(self, text: str) -> int:
        assert self.kept is not None
        return self.kept.said(text)

    def note_kept(self, text: str) -> None:
        assert self.kept is not None
        self.kept.noted(text)

    def numbers_of(self, listener: Listener, n: int) -> list[int]:
        return list(listener.numbers(n))

    def total_of(self, listener: Listener, xs: list[int]) -> int:
        return listener.total(iter(xs))

    def each_of(self, listener: Listener, xs: list[int]) -> list[int]:
        return list(listener.each(iter(xs), plus=10))

    def fail_in(self, listener: Listener, why: str) -> str:
        try:
            listener.fail(why)
        except nearcall.RpcError as error:
            return f"{error.code.name}: {error.message}"
        return "it did not fail"

    def ended(self) -> int:
        return self._ended

    def forget_counters(self) -> None:
        self.made_counters.clear()

    def pid(self) -> int:
        return os.getpid()

    def die(self) -> None:
        os.kill(os.getpid(), 9)


class LoopHub(Shared, Hub):
    async def counter(self, start: int = 0) -> Counter:
        return self.made(LoopCounter, start)

    async def again(self, number: int) -> Counter | None:
        return self.made_counters[number] if number < len(self.made_counters) else None

    async def pair(self, *, alone: bool = False) -> Pair:
        return Pair(self.made(LoopCounter, 1), None if alone else self.made(LoopCounter, 2))

    async def named(self, names: list[str]) -> dict[str, Named]:
        return {name: Named(counter=self.made(LoopCounter, len(name))) for name in names}

    async def counters(self, n: int) -> AsyncIterator[Counter]:
        for number in range(n):
            yield self.made(LoopCounter, number)

    async def is_that(self, counter: Counter, number: int) -> bool:
        return counter is self.made_counters[number]

    async def add_to(self, counter: Counter, n: int) -> int:
        return await counter.add(n)

    async def sum_of(self, counters: AsyncIterator[Counter]) -> int:
        return sum([await counter.add(0) async for counter in counters])

    async def tell(self, listener: Listener, text: str) -> int:
        return await listener.said(text)

    async def tell_all(self, team: Team, text: str) -> list[int]:
        return [await each.said(f"{team.name}: {text}") for each in (team.lead, *team.others)]

    async def maybe(self, listener: Listener | None = None) -> int:
        return -1 if listener is None else await listener.said("maybe")

    async def echo(self, listener: Listener) -> Listener:
        return listener

    async def echoes(self, listeners: AsyncIterator[Listener]) -> AsyncIterator[Listener]:
        async for listener in listeners:
            yield listener

    async def keep(self, listener: Listener) -> int:
        self.kept = listener
        return id(listener)

    async def forget(self) -> None:
        self.kept = None

    async def tell_kept(self, text: str) -> int:
        return await self.kept.said(text)

    async def note_kept(self, text: str) -> None:
        await self.kept.noted(text)

    async def numbers_of(self, listener: Listener, n: int) -> list[int]:
        return [number async for number in listener.numbers(n)]

    async def total_of(self, listener: Listener, xs: list[int]) -> int:
        return await listener.total(iter(xs))

    async def each_of(self, listener: Listener, xs: list[int]) -> list[int]:
        return [number async for number in listener.each(iter(xs), plus=10)]

    async def fail_in(self, listener: Listener, why: str) -> str:
        try:
            await listener.fail(why)
        except nearcall.RpcError as error:
            return f"{error.code.name}: {error.message}"
        return "it did not fail"

    async def ended(self) -> int:
        return self._ended

    async def forget_counters(self) -> None:
        self.made_counters.clear()

    async def pid(self) -> int:
        return os.getpid()

    async def die(self) -> None:
        os.kill(os.getpid(), 9)


class Ear(Listener):
    """A client's object, for threads."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.noted_all = threading.Semaphore(0)
        self.threads: list[str] = []
        self.left: list[float | None] = []

    def said(self, text: str) -> int:
        self.heard.append(text)
        self.threads.append(threading.current_thread().name)
        self.left.append(nearcall.context().time_left)
        return len(text)

    def noted(self, text: str) -> None:
        self.heard.append(text)
        self.noted_all.release()

    def numbers(self, n: int) -> Iterator[int]:
        yield from range(n)

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    def each(self, xs: Iterator[int], *, plus: int = 0) -> Iterator[int]:
        for x in xs:
            yield x + plus

    def fail(self, why: str) -> None:
        raise nearcall.NotFound(why)


def in_threads() -> list[object]:
    serve_encrypted()
    return [ThreadHub()]


def in_loop() -> list[object]:
    serve_encrypted()
    return [LoopHub()]
