"""Tasks that whoever receives runs at once, when the answers to all of them come at the same time.

A raw server answers many calls with one write, in any order. The tasks that wait for them cancel each other, block,
raise, call again, stop their loop, or close the client. Each gets its own answer or an error of ours, and the loop goes
on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

import nearcall
import nearcall.aio

from . import raw
from .frames import CALL, PING, PONG, Frame, frame
from .target import SECONDS
from .test_goodbyes import ITEMS, Host, Numbers, answer

PATIENCE = 30.0
TIME = 10.0
"""Seconds that each call has: nothing takes long here."""
TASKS = 40
ROUNDS = 10 if not SECONDS else 200


class Together(Host):
    """Answers all that has come with one write, once nothing more comes for a moment."""

    def _answer(self, peer: raw.Peer, chance: random.Random) -> None:
        waiting: list[Frame] = []
        while not self._over.is_set():
            try:
                one = peer.receive(0.001 if waiting else 0.05)
            except TimeoutError:
                if waiting:
                    peer.send(*waiting)
                    waiting.clear()
                continue
            if one.kind == PING:
                peer.send(frame(PONG, one.rest, call=one.call))
            elif one.kind == CALL:
                at = chance.randrange(len(waiting) + 1) if one.call % 2 else len(waiting)
                # The frames of a stream stay in order.
                waiting = [*waiting[:at], *answer(one), *waiting[at:]]

    def _greeting(self, came: int) -> bytes:
        return self._welcome

    def _begin(self, peer: raw.Peer, came: int) -> None:
        pass


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=["unix", "shm"])
def host(request: pytest.FixtureRequest, runtime_dir: Path) -> Iterator[Host]:
    with Together(request.param, runtime_dir, "together") as host:
        yield host


def remember(said: list[dict[str, Any]], loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    said.append(context)


@contextlib.contextmanager
def running(make: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that had nothing to complain of."""
    loop, problems = make(), list[dict[str, Any]]()
    loop.set_exception_handler(partial(remember, problems))
    try:
        yield loop
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert problems == []


class Mischief(Exception):
    """What a task raises, in the place of going on."""


class Crowd:
    """Tasks that do as they like when their answers come."""

    def __init__(self, client: Any, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self.wrong: list[str] = []
        self.answered = 0

    async def _same(self, number: int) -> None:
        found = await self._client.same(number)
        if found != number:
            self.wrong.append(f"{found} in the place of {number}")
        self.answered += 1

    async def _work(self, number: int) -> None:
        await self._same(number)
        me, what = asyncio.current_task(), self._chance.randrange(12)
        if what == 0:
            for other in self._chance.sample(self._tasks, 5):
                if other is not me:
                    other.cancel()
        elif what == 1:
            time.sleep(0.003)  # noqa: ASYNC251 - it is what should not be done
        elif what == 2:
            raise Mischief
        elif what == 3:
            await asyncio.gather(self._same(number + 2), self._same(number + 4))
        elif what == 4:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._same(number + 2), self._chance.choice([0, 0.0005, 0.002]))
        elif what == 5:
            found = [item async for item in self._client.following(number + 1)]
            if found != list(range(number + 1, number + 1 + ITEMS)):
                self.wrong.append(f"{found} in the place of the items from {number + 1}")
        elif what == 6:
            async for item in self._client.following(number + 1):
                if item != number + 1:
                    self.wrong.append(f"{item} in the place of {number + 1}")
                break
        elif what == 7:
            # Begun, and never waited for.
            asyncio.ensure_future(self._client.same(number + 2)).cancel()
        elif what == 8:
            assert me is not None
            me.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._same(number + 2)
            await self._same(number + 4)
        elif what == 9:
            await asyncio.shield(self._same(number + 2))
        elif what == 10:
            with nearcall.timeout(0.0002), contextlib.suppress(nearcall.DeadlineExceeded):
                await self._same(number + 2)
        if asyncio.current_task() is not me:
            self.wrong.append(f"{asyncio.current_task()} in the place of {me}")

    async def come(self) -> None:
        self._tasks = [asyncio.ensure_future(self._work(2 * number + 1)) for number in range(TASKS)]
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if not isinstance(ended, Mischief | asyncio.CancelledError | None):
                self.wrong.append(f"{type(ended).__name__}: {ended}")


async def crowds(url: str, seed: int) -> None:
    async with nearcall.aio.connect(url, Numbers, timeout=TIME) as client:
        for number in range(ROUNDS):
            crowd = Crowd(client, 1000 * seed + number)
            await crowd.come()
            assert crowd.wrong == []
            assert crowd.answered > TASKS // 4
        assert await client.same(1) == 1


@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
def test_tasks_that_do_as_they_like(host: Host, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with running(make) as loop:
        loop.run_until_complete(asyncio.wait_for(crowds(host.url, 1), PATIENCE))


def test_many_loops_at_the_same_time(host: Host) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            with running(list(LOOPS.values())[number % len(LOOPS)]) as loop:
                loop.run_until_complete(asyncio.wait_for(crowds(host.url, number), PATIENCE))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert failures == []


@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
def test_a_task_that_closes_the_client_for_the_others(
    host: Host, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Whose answers have come: they get them, or an error."""

    async def main() -> None:
        client = nearcall.aio.connect(host.url, Numbers, timeout=TIME)
        numbers: Any = await client

        async def work(number: int) -> int:
            found: int = await numbers.same(number)
            client.close()
            return found

        ended = await asyncio.gather(*[work(2 * number + 1) for number in range(TASKS)], return_exceptions=True)
        right = [found for number, found in enumerate(ended) if found == 2 * number + 1]
        assert right
        assert all(isinstance(found, int | nearcall.RpcError) for found in ended), ended
        assert len(right) == sum(isinstance(found, int) for found in ended)

    with running(make) as loop:
        for _ in range(ROUNDS):
            loop.run_until_complete(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
def test_a_task_that_stops_the_loop(host: Host, make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The others go on when it runs again."""
    found: list[int] = []

    async def work(numbers: Any, number: int) -> None:
        found.append(await numbers.same(number))
        if number % 10 == 1:
            asyncio.get_running_loop().stop()

    async def begin() -> tuple[Any, list[asyncio.Task[None]]]:
        client = nearcall.aio.connect(host.url, Numbers, timeout=TIME)
        numbers = await client
        return client, [asyncio.ensure_future(work(numbers, 2 * number + 1)) for number in range(TASKS)]

    async def close(client: Any) -> None:
        await client.close()

    with running(make) as loop:
        client, tasks = loop.run_until_complete(begin())
        while not all(task.done() for task in tasks):
            loop.run_forever()
        assert sorted(found) == list(range(1, 2 * TASKS, 2))
        loop.run_until_complete(close(client))


@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
def test_a_loop_that_is_closed_while_calls_are_under_way(
    host: Host, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Nobody waits for them any more, and what is left of them goes without a word of nearcall's, or a crash."""

    async def begin() -> tuple[Any, list[asyncio.Task[int]]]:
        client = nearcall.aio.connect(host.url, Numbers, timeout=TIME)
        numbers: Any = await client

        async def work(number: int) -> int:
            while True:
                await numbers.same(number)
                if number == 3:
                    asyncio.get_running_loop().stop()

        return client, [asyncio.ensure_future(work(2 * number + 1)) for number in range(TASKS)]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(5):
            loop, said = make(), list[dict[str, Any]]()
            loop.set_exception_handler(partial(remember, said))
            client, tasks = loop.run_until_complete(begin())
            loop.run_forever()
            loop.close()
            assert all(not task.done() for task in tasks)
            del client, tasks, loop
            gc.collect()
            assert {context["message"] for context in said} <= {"Task was destroyed but it is pending!"}
    assert [str(one.message) for one in warned if "nearcall" in str(one.message)] == []
    # Others are served as before.
    with nearcall.connect(host.url, Numbers, timeout=TIME) as numbers:
        assert numbers.same(5) == 5
