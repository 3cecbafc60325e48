"""A client of a server without HTTP/2 has several connections, each with one call: they are lost one by one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .http1_only import Http1Only

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
MOST = 32
"""Connections of one channel."""


@nearcall.service
class Meeting:
    """Calls that end when as many are under way as are to meet."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.inside = 0
        self.begun = 0

    def meet(self, number: int) -> int:
        with self.lock:
            self.inside += 1
            self.begun += 1
            if self.inside == number:
                self.gate.set()
        try:
            if not self.gate.wait(PATIENCE):
                raise nearcall.Aborted("the others have not come")
        finally:
            with self.lock:
                self.inside -= 1
        return number

    @nearcall.idempotent
    def meet_again(self, number: int) -> int:
        return self.meet(number)

    def echo(self, text: str) -> str:
        return text

    def count(self, number: int) -> Iterator[int]:
        yield from range(number)

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)


class World:
    """A server, and one in front of it that speaks HTTP/1.1."""

    def __init__(self) -> None:
        self.meeting = Meeting()
        self.connections = self.sessions = 0
        self.server = nearcall.Server(
            self.meeting, "http://127.0.0.1:0", on_connect=self._come, on_disconnect=self._go, max_concurrency=100
        )

    def _come(self, _: object) -> None:
        with self.meeting.lock:
            self.connections += 1
            self.sessions += 1

    def _go(self, _: object) -> None:
        with self.meeting.lock:
            self.connections -= 1


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.server, Http1Only(world.server.urls[0]) as world.old:
        yield world
        world.meeting.gate.set()


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def test_each_of_several_threads_has_a_connection(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client, ThreadPoolExecutor(12) as pool:
        assert list(pool.map(client.meet, [12] * 12)) == [12] * 12
        begun = world.sessions
        assert begun == 12
        # They are used again.
        assert list(pool.map(client.echo, "abcdefgh" * 20)) == list("abcdefgh" * 20)
        assert world.sessions == begun
    until(lambda: world.connections == 0)


def test_one_thread_has_one_connection(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client:
        for number in range(50):
            assert client.echo(str(number)) == str(number)
        assert list(client.count(100)) == list(range(100))
        assert client.total(iter(range(100))) == 4950
        assert world.sessions == 1
        # Calls that a thread starts before it waits for the first of them.
        calls = [nearcall.start(client.meet, 5) for _ in range(5)]
        assert [call.result() for call in calls] == [5] * 5
        assert world.sessions == 5


def test_tasks_of_an_event_loop_have_one_each(world: World) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(world.old.url, Meeting) as client:
            assert await asyncio.gather(*(client.meet(10) for _ in range(10))) == [10] * 10
            begun = world.sessions
            assert begun == 10
            assert await asyncio.gather(*(client.echo(str(n)) for n in range(200))) == [str(n) for n in range(200)]
            counts = [client.count(1000) for _ in range(5)]
            for expected in range(1000):
                for count in counts:
                    assert await count.__anext__() == expected

    asyncio.run(main())


def test_streams_and_calls_beside_them(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client:
        counts = [iter(client.count(5000)) for _ in range(6)]
        for expected in range(1000):
            assert [next(count) for count in counts] == [expected] * 6
        assert client.echo("meanwhile") == "meanwhile"

        def numbers() -> Iterator[int]:
            for number in range(10):
                # The thread that sends may call, too.
                assert client.echo("within") == "within"
                yield number

        assert client.total(numbers()) == 45


def test_there_are_no_more_than_so_many(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client, ThreadPoolExecutor(MOST + 8) as pool:
        calls = [pool.submit(client.meet, 1000) for _ in range(MOST + 8)]
        until(lambda: world.meeting.inside == MOST)
        world.meeting.gate.set()
        assert [call.result(PATIENCE) for call in calls] == [1000] * (MOST + 8)
        assert world.sessions == MOST


def test_when_all_are_streams_a_call_is_refused_in_words(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client:
        counts = [client.count(1_000_000) for _ in range(MOST)]
        assert [next(iter(count)) for count in counts] == [0] * MOST
        with pytest.raises(nearcall.ResourceExhausted, match=f"than the {MOST} on which streams are under way"):
            client.echo("one too many")
        counts.pop().close()  # type: ignore[attr-defined]
        assert client.echo("again") == "again"


def test_a_call_that_is_given_up_leaves_the_others(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client, ThreadPoolExecutor(4) as pool:
        others = [pool.submit(client.meet, 1000) for _ in range(3)]
        until(lambda: world.meeting.inside == 3)
        with nearcall.timeout(0.05), pytest.raises(nearcall.DeadlineExceeded):
            client.meet(1000)
        assert client.echo("afterwards") == "afterwards"
        world.meeting.gate.set()
        assert [call.result(PATIENCE) for call in others] == [1000] * 3


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_connection_that_is_lost_takes_its_own_call(world: World, idempotent: bool) -> None:
    with nearcall.connect(world.old.url, Meeting) as client, ThreadPoolExecutor(4) as pool:
        meet = client.meet_again if idempotent else client.meet
        calls: list[Future[int]] = []
        for number in range(4):
            calls.append(pool.submit(meet, 1000))
            until(lambda expected=number + 1: world.meeting.begun == expected)  # type: ignore[misc]
        # The first was made when the client connected.
        world.old.cut(1)
        if idempotent:
            until(lambda: world.meeting.begun == 5)
        else:
            with pytest.raises(nearcall.Unavailable, match="the connection of the call was lost"):
                calls.pop(0).result(PATIENCE)
        world.meeting.gate.set()
        assert [call.result(PATIENCE) for call in calls] == [1000] * len(calls)


def test_connections_that_a_server_ends_between_two_calls(world: World) -> None:
    with nearcall.connect(world.old.url, Meeting) as client, ThreadPoolExecutor(4) as pool:
        for ends in (1, 3, 4):
            world.meeting.gate.clear()
            assert list(pool.map(client.meet, [4] * 4)) == [4] * 4
            world.old.cut(ends)
            # None of them is called on, whether its end was noticed or not.
            assert list(pool.map(client.echo, "abcdefgh")) == list("abcdefgh")


def test_in_an_event_loop_as_well(world: World) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(world.old.url, Meeting) as client:
            calls: list[Any] = [asyncio.ensure_future(client.meet(1000)) for _ in range(3)]
            await asyncio.to_thread(until, lambda: world.meeting.inside == 3)
            calls[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await calls.pop(0)
            assert await client.echo("afterwards") == "afterwards"
            world.meeting.gate.set()
            assert await asyncio.gather(*calls) == [1000] * 2
            world.old.cut(MOST)
            assert await client.echo("again") == "again"

    asyncio.run(main())


def test_a_client_that_is_closed_ends_all_calls(world: World) -> None:
    with ThreadPoolExecutor(4) as pool:
        with nearcall.connect(world.old.url, Meeting) as client:
            calls = [pool.submit(client.meet, 1000) for _ in range(4)]
            until(lambda: world.meeting.inside == 4)
        for call in calls:
            with pytest.raises(nearcall.Cancelled):
                call.result(PATIENCE)
        world.meeting.gate.set()
        until(lambda: world.connections == 0)
