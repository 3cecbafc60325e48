"""A handler leaves something behind that refers to its call, and its client goes: the server keeps nothing of it."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

import nearcall
from nearcall.introspection import Introspection

from ..survival.observing import Holdings, comes_back_to, eventually
from .process import ServerProcess

FAR = 3600.0
"""Seconds until a timer's time comes. asyncio keeps it so long, although it was cancelled."""


@dataclass
class Seen:
    """What a context says of its call."""

    method: str
    peer: list[str]
    metadata: str
    has_time_left: bool
    cancelled: bool
    compressed: bool
    session: str


@nearcall.service
class Listener:
    """What clients pass."""

    def hear(self, number: int) -> None:
        raise NotImplementedError


def seen(context: nearcall.Context) -> Seen:
    try:
        session = type(context.session).__name__
    except RuntimeError as error:
        session = str(error)
    peer = sorted(context.peer)
    left, compressed = context.time_left is not None, context.received_compressed
    context.add_trailing_metadata({"late": "1"})
    context.send_metadata({"late": "1"})
    context.on_cancel(lambda: None)
    return Seen(context.method, peer, str(context.metadata["word"]), left, context.cancelled, compressed, session)


def stay_timer() -> None:
    """A timer whose time comes first: asyncio lets go of cancelled ones only once they are the next."""
    asyncio.get_running_loop().call_later(FAR / 2, print, context=contextvars.Context())


def leave_timer() -> None:
    stay_timer()
    asyncio.get_running_loop().call_later(FAR, print).cancel()


@nearcall.service
class Leaver:
    """Each method leaves something behind."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._asked: asyncio.Event | None = None
        self._look: asyncio.Future[Seen] | None = None
        self._told: list[str] = []

    async def timer(self) -> None:
        leave_timer()

    async def timer_beside_waiting(self) -> None:
        leave_timer()
        await asyncio.sleep(0)

    async def time_limit(self) -> None:
        stay_timer()
        await asyncio.wait_for(asyncio.sleep(0), FAR)

    async def task(self) -> None:
        self._kept.append(asyncio.create_task(asyncio.Event().wait()))

    async def task_beside_waiting(self) -> None:
        await self.task()
        await asyncio.sleep(0)

    async def copied(self) -> None:
        self._kept.append(contextvars.copy_context())

    async def context(self) -> None:
        self._kept.append(nearcall.context())
        await asyncio.sleep(0)

    def context_of_thread(self) -> None:
        self._kept.append(nearcall.context())

    async def error(self) -> None:
        await asyncio.sleep(0)
        error = nearcall.NotFound("kept with its traceback")
        self._kept.append(error)
        raise error

    def error_of_thread(self) -> None:
        error = nearcall.NotFound("kept with its traceback")
        self._kept.append(error)
        raise error

    async def items(self) -> AsyncIterator[int]:
        leave_timer()
        self._kept.append(nearcall.context())
        for number in range(3):
            yield number

    async def first(self, numbers: AsyncIterator[int]) -> int:
        leave_timer()
        self._kept.append(numbers)
        return await numbers.__anext__()

    def first_in_thread(self, numbers: Iterator[int]) -> int:
        self._kept.append(numbers)
        return next(numbers)

    async def meet(self, listener: Listener) -> None:
        leave_timer()
        self._kept.append(listener)

    def meet_in_thread(self, listener: Listener) -> None:
        self._kept += (listener, nearcall.context())

    async def rest(self, numbers: AsyncIterator[int]) -> int:
        """Leaves a task that reads on."""

        async def read() -> None:
            try:
                while True:
                    await numbers.__anext__()
            except nearcall.Cancelled as error:
                self._told.append(str(error))

        number = await numbers.__anext__()
        self._kept.append(asyncio.create_task(read()))
        await asyncio.sleep(0)
        return number

    def rest_in_thread(self, numbers: Iterator[int]) -> int:
        """Leaves a thread that reads on."""

        def read() -> None:
            try:
                while True:
                    next(numbers)
            except nearcall.Cancelled as error:
                self._told.append(str(error))

        number = next(numbers)
        threading.Thread(target=read, daemon=True).start()
        return number

    def told(self) -> list[str]:
        return self._told

    async def look_later(self) -> None:
        """Leaves a task that looks at the call when it is asked to, and has not looked before."""

        async def look() -> Seen:
            await asked.wait()
            return seen(nearcall.context())

        self._asked = asked = asyncio.Event()
        self._look = asyncio.create_task(look())

    async def look_again(self) -> None:
        """As `look_later`, of a context that the handler has looked at."""
        kept = nearcall.context()
        seen(kept)

        async def look() -> Seen:
            await asked.wait()
            return seen(kept)

        self._asked = asked = asyncio.Event()
        self._look = asyncio.create_task(look())
        await asyncio.sleep(0)

    async def look(self) -> Seen:
        assert self._asked is not None
        assert self._look is not None
        self._asked.set()
        return await self._look

    async def take(self, data: list[bytes]) -> None:
        leave_timer()
        await asyncio.sleep(0)

    def peer(self) -> list[str]:
        return list(nearcall.context().peer)


def services() -> list[object]:
    return [Leaver()]


class Here(Listener):
    def hear(self, number: int) -> None:
        raise AssertionError(number)


def endless() -> Iterator[int]:
    yield 1
    yield 2


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(nearcall.NotFound):
        call()


WAYS: dict[str, Callable[[Any], object]] = {
    "items": lambda leaver: list(leaver.items()),
    "some_items": lambda leaver: next(leaver.items()),
    "first": lambda leaver: leaver.first(endless()),
    "first_in_thread": lambda leaver: leaver.first_in_thread(endless()),
    "meet": lambda leaver: leaver.meet(Here()),
    "meet_in_thread": lambda leaver: leaver.meet_in_thread(Here()),
    "error": lambda leaver: refused(leaver.error),
    "error_of_thread": lambda leaver: refused(leaver.error_of_thread),
    "timer": lambda leaver: leaver.timer(),
    "timer_beside_waiting": lambda leaver: leaver.timer_beside_waiting(),
    "time_limit": lambda leaver: leaver.time_limit(),
    "task": lambda leaver: leaver.task(),
    "task_beside_waiting": lambda leaver: leaver.task_beside_waiting(),
    "copied": lambda leaver: leaver.copied(),
    "context": lambda leaver: leaver.context(),
    "context_of_thread": lambda leaver: leaver.context_of_thread(),
}


@pytest.fixture
def server(outside_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(outside_url, services="tests.e2e.test_left_behind:services") as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_client_is_kept(server: ServerProcess, way: str) -> None:
    def come_and_go() -> None:
        with nearcall.connect(server.url, Leaver) as leaver:
            WAYS[way](leaver)

    # The first one has the server begin its threads.
    come_and_go()
    with nearcall.connect(server.url, Introspection) as looks:
        eventually(lambda: looks.read().connections == 1, "the client is gone")
        before = Holdings.of(server.pid)
        for _ in range(3):
            come_and_go()
        comes_back_to(server.pid, before)


@pytest.mark.slow
def test_nothing_of_a_call_is_kept(server: ServerProcess) -> None:
    """The memory that a client may make the server keep is its again when the call is over."""
    with nearcall.connect(server.url, Leaver) as leaver, nearcall.connect(server.url, Introspection) as looks:
        at_rest = looks.read().memory
        for _ in range(3):
            cast(Any, leaver).take([bytes(1000)] * 300)
        eventually(lambda: looks.read().memory <= at_rest, lambda: f"{looks.read().memory} after {at_rest}")


@pytest.mark.slow
def test_what_is_kept_of_a_call_is_counted(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Leaver) as leaver, nearcall.connect(server.url, Introspection) as looks:
        at_rest = looks.read().memory
        with nearcall.metadata({"word": "w" * 50_000}):
            cast(Any, leaver).timer_beside_waiting()
        assert looks.read().memory > at_rest + 50_000


@pytest.mark.slow
@pytest.mark.parametrize("way", ["look_later", "look_again"])
def test_what_is_kept_tells_of_the_call(server: ServerProcess, way: str) -> None:
    with nearcall.connect(server.url, Leaver) as stays, nearcall.connect(server.url, Introspection) as looks:
        peer = sorted(cast(Any, stays).peer())
        at_rest = looks.read().connections
        with nearcall.connect(server.url, Leaver, timeout=1000) as leaver, nearcall.metadata({"word": "said"}):
            getattr(leaver, way)()
        eventually(lambda: looks.read().connections == at_rest, "the client is gone")
        seen = cast(Any, stays).look()
        assert seen.session.startswith("the client's connection is gone")
        assert seen == Seen(f"Leaver.{way}", peer, "said", True, True, False, seen.session)


@pytest.mark.slow
def test_what_is_kept_tells_of_the_call_of_a_client_that_is_there(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Leaver, timeout=1000) as leaver:
        with nearcall.metadata({"word": "said"}):
            cast(Any, leaver).look_later()
        peer = sorted(cast(Any, leaver).peer())
        seen = cast(Any, leaver).look()
        assert seen == Seen("Leaver.look_later", peer, "said", True, False, False, "Session")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rest", "rest_in_thread"])
def test_who_reads_on_is_told_that_the_call_is_over(server: ServerProcess, way: str) -> None:
    with nearcall.connect(server.url, Leaver) as leaver:
        client = cast(Any, leaver)
        assert getattr(client, way)(itertools.count(1)) == 1
        eventually(client.told, "the reader is told")
        assert client.told() == [f"the call of Leaver.{way} is over, and with it what its caller sent"]
