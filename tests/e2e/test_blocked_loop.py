"""Handlers that hold up the event loop in which they run: calls that would wait there are refused, and whatever else
does it is named in the log.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import pytest

import nearcall
import nearcall.aio
from nearcall.introspection import Introspection
from nearcall.loops.watch import LoopWatch

from .test_introspection import until

PATIENCE = 30.0
SOON = 0.1
"""The option in these tests."""


class LeavesForThreads:
    """The same as threads see it; under the name of :class:`Leaves`."""

    def leaf(self) -> int:
        raise NotImplementedError

    def items(self) -> Iterator[int]:
        raise NotImplementedError

    @nearcall.oneway
    def note(self) -> None:
        raise NotImplementedError


ForThreads: Any = nearcall.service(name="Leaves")(LeavesForThreads)


@nearcall.service
class Leaves:
    """What a careless handler calls, of its own server."""

    def __init__(self) -> None:
        self.url = ""
        self.client: Any = None
        self.items_for_it: Any = None

    async def leaf(self) -> int:
        return 1

    async def items(self) -> AsyncIterator[int]:
        yield 3

    @nearcall.oneway
    async def note(self) -> None:
        pass

    async def refused(self, way: str) -> int:
        return int(_REFUSED[way](self))

    async def fine(self, way: str) -> int:
        return await _FINE[way](self)


def _connects(leaves: Leaves) -> int:
    with nearcall.connect(leaves.url, ForThreads) as own:
        return int(own.leaf())


_REFUSED: dict[str, Callable[[Leaves], Any]] = {
    "connect": _connects,
    "call": lambda leaves: leaves.client.service.leaf(),
    "started": lambda leaves: nearcall.start(leaves.client.service.leaf).result(),
    "first of several": lambda leaves: next(
        nearcall.as_completed([nearcall.start(leaves.client.service.leaf)])
    ).result(),
    "stream": lambda leaves: next(leaves.client.service.items()),
    "stream that was opened elsewhere": lambda leaves: next(leaves.items_for_it),
    "ping": lambda leaves: leaves.client.ping(),
    "spawn": lambda leaves: nearcall.spawn([sys.executable, "-c", ""], ForThreads),
}
"""What waits."""


async def _in_thread(leaves: Leaves) -> int:
    return await asyncio.to_thread(leaves.client.service.leaf)


async def _oneway(leaves: Leaves) -> int:
    leaves.client.service.note()
    return 1


async def _awaited(leaves: Leaves) -> int:
    async with nearcall.aio.connect(leaves.url, Leaves) as own:
        return int(await own.leaf())


async def _ended(leaves: Leaves) -> int:
    started = nearcall.start(leaves.client.service.leaf)
    while not started.done():  # noqa: ASYNC110 - a call of a thread wakes no loop
        await asyncio.sleep(0)
    return int(started.result())


_FINE: dict[str, Callable[[Leaves], Awaitable[int]]] = {
    "in a thread": _in_thread,
    "one-way": _oneway,
    "awaited": _awaited,
    "started that has ended": _ended,
}
"""What does not."""


@pytest.mark.filterwarnings("error")
def test_a_call_that_would_wait_in_the_loop_is_refused_and_the_loop_goes_on(new_url: str) -> None:
    leaves = Leaves()
    with nearcall.Server(leaves, new_url) as server:
        leaves.url = server.urls[0]
        leaves.client = nearcall.connect(leaves.url, ForThreads)
        with leaves.client as service, nearcall.connect(leaves.url) as caller, nearcall.timeout(PATIENCE):
            leaves.items_for_it = service.items()
            for way in _REFUSED:
                with pytest.raises(nearcall.Unknown, match=r"hold up the event loop.*nearcall\.aio.*to_thread"):
                    caller.refused(way)
                assert caller.leaf() == 1, f"the loop turns after {way}"
            for way in _FINE:
                assert caller.fine(way) == 1, way


def test_the_users_own_loop_may_wait(new_url: str) -> None:
    """As a notebook's does, in which a cell calls: it holds up nobody but itself."""
    with nearcall.Server(Leaves(), new_url) as server:

        async def cell() -> int:
            with nearcall.connect(server.urls[0], ForThreads) as client:
                return int(client.leaf())

        assert asyncio.run(cell()) == 1


@nearcall.service
class Blocking:
    """Handlers that hold up the loop, each in its own way, until the test lets them go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    async def waits(self) -> int:
        self.go_on.wait(PATIENCE)
        return 1

    async def waits_later(self) -> int:
        await asyncio.sleep(0.001)
        self.go_on.wait(PATIENCE)
        return 1

    async def computes(self) -> int:
        number = 0
        while not self.go_on.is_set():
            number += 1
        return number

    async def in_a_task(self) -> int:
        async def aside() -> None:
            self.go_on.wait(PATIENCE)

        await asyncio.create_task(aside())
        return 1

    async def in_a_stream(self) -> AsyncIterator[int]:
        yield 1
        self.go_on.wait(PATIENCE)

    async def leaf(self) -> int:
        return 1


def held(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "holds it up" in record.getMessage()]


@pytest.mark.parametrize("way", ["waits", "waits_later", "computes", "in_a_task", "in_a_stream"])
def test_what_blocks_the_loop_is_named_with_its_stack(new_url: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    service = Blocking()
    caplog.set_level(logging.INFO, "nearcall")
    with nearcall.Server(service, new_url, blocked_loop_after=SOON) as server, ThreadPoolExecutor(2) as pool:
        url = server.urls[0]
        with (
            nearcall.connect(url) as one,
            nearcall.connect(url) as two,
            nearcall.connect(url, Introspection) as watcher,
        ):
            assert one.leaf() == 1
            assert watcher.read().loop_held_up == 0.0
            try:
                blocking = pool.submit(lambda: sum(one.in_a_stream()) if "stream" in way else getattr(one, way)())
                line = until(lambda: held(caplog))[0]
                other = pool.submit(two.leaf)
                assert watcher.read().loop_held_up >= SOON
            finally:
                service.go_on.set()
            assert blocking.result(PATIENCE)
            assert other.result(PATIENCE) == 1
            until(lambda: any("turns again" in record.getMessage() for record in caplog.records))
            assert watcher.read().loop_held_up == 0.0
            name = "aside" if way == "in_a_task" else f"Blocking.{way}"
            assert name in line.getMessage()
            assert line.levelno == logging.WARNING
            assert line.stack_info is not None
            assert "test_blocked_loop.py" in line.stack_info
            assert ("go_on.wait" in line.stack_info) == (way != "computes")
            assert "handlers.py" not in line.stack_info, "it begins with the user's code"


@pytest.mark.slow
def test_it_is_said_once_of_each_place_and_not_of_a_loop_that_turns(
    new_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Blocking()
    caplog.set_level(logging.INFO, "nearcall")

    def has_said(lines: int) -> bool:
        return len(held(caplog)) >= lines

    with (
        nearcall.Server(service, new_url, blocked_loop_after=SOON) as server,
        nearcall.connect(server.urls[0]) as client,
        nearcall.connect(server.urls[0], Introspection) as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        for way, lines in (("waits", 1), ("waits", 1), ("computes", 2)):
            service.go_on.clear()
            result = pool.submit(getattr(client, way))
            until(lambda: watcher.read().loop_held_up)
            until(partial(has_said, lines))  # the thread that looks needs the interpreter, too
            service.go_on.set()
            assert result.result(PATIENCE)
            until(lambda: not watcher.read().loop_held_up)
        end = time.monotonic() + 5 * SOON
        while time.monotonic() < end:
            assert client.leaf() == 1
    said = [record.getMessage() for record in held(caplog)]
    assert len(said) == 2
    assert "Blocking.waits" in said[0]
    assert "Blocking.computes" in said[1]


class OverBeforeSeen:
    """A core whose watching thread got the interpreter when the loop had turned again."""

    def watch_loop(
        self, seconds: float, held_up: Callable[[float, bool], object], turned: Callable[[float], object]
    ) -> None:
        held_up(90.0, False)
        turned(90.0)

    def end_watch(self) -> None:
        pass


def test_of_a_loop_that_turned_before_it_was_seen_only_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """What held it up, where and until when is not known: a thread may have kept the interpreter, also another one."""
    caplog.set_level(logging.INFO, "nearcall")
    watch = LoopWatch(cast(Any, OverBeforeSeen()), (), SOON)
    watch.start(threading.get_ident())
    watch.end()
    (line,) = caplog.records
    assert line.getMessage() == (
        "the event loop did not turn for 0.1 s or longer, and all coroutine handlers waited: something held it up, and "
        "was over before this thread got the interpreter to see it"
    )
    assert line.stack_info is None


@pytest.mark.parametrize("never", [0, None])
def test_it_can_be_switched_off(key: str, never: float | None) -> None:
    before = set(threading.enumerate())
    with (
        nearcall.Server(Blocking(), f"inproc://{key}", blocked_loop_after=never),
        nearcall.connect(f"inproc://{key}") as client,
    ):
        watching = {thread for thread in threading.enumerate() if thread.name == "nearcall-loop-watch"}
        assert client.leaf() == 1
        assert not watching - before


def test_the_options_mistake_is_named() -> None:
    with pytest.raises(nearcall.InvalidArgument, match="blocked_loop_after must be a number of seconds"):
        nearcall.Server(Blocking(), "inproc://x", blocked_loop_after=-1)
