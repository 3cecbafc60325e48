"""References in messages that nobody reads: the objects go although the connection stays."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import nearcall

from .reference_services import ALIVE, OwnThing, Thing
from .services import PATIENCE
from .test_references import until


@nearcall.service
class Things:
    def __init__(self) -> None:
        self.given_up = threading.Event()

    def all(self, n: int) -> Iterator[Thing]:
        for _ in range(n):
            yield OwnThing()

    async def all_in_loop(self, n: int) -> AsyncIterator[list[Thing]]:
        for _ in range(n):
            yield [OwnThing(), OwnThing()]

    def late(self) -> Thing:
        self.given_up.wait(PATIENCE)
        return OwnThing()

    def look(self) -> bool:
        gc.collect()
        return not ALIVE


@pytest.mark.parametrize("method", ["all", "all_in_loop"])
def test_a_stream_left_early_leaves_nothing_behind(new_url: str, method: str) -> None:
    with (
        nearcall.Server(Things(), new_url, max_references=100) as server,
        nearcall.connect(server.urls[0], Things) as things,
    ):
        for _ in range(5):
            items = getattr(things, method)(40)
            next(items)
            items.close()
            del items
            until(things.look)  # what is on its way is received by whoever waits for something


def test_a_stream_left_early_by_a_task_leaves_nothing_behind(new_url: str) -> None:
    async def main(url: str) -> None:
        async with nearcall.aio.connect(url, Things) as things:
            for _ in range(5):
                items = things.all(40)
                await items.__anext__()
                await items.aclose()
                del items
                while not await things.look():
                    pass

    with nearcall.Server(Things(), new_url, max_references=100) as server:
        asyncio.run(main(server.urls[0]))


def test_a_reply_that_nobody_waits_for_leaves_nothing_behind(new_url: str) -> None:
    service = Things()
    with (
        nearcall.Server(service, new_url) as server,
        nearcall.connect(server.urls[0], Things) as things,
    ):
        with nearcall.timeout(0.05), pytest.raises(nearcall.DeadlineExceeded):
            things.late()
        service.given_up.set()
        until(things.look)  # what is on its way is received by whoever waits for something


@nearcall.service(name="Room")
class Room:
    def borrow(self, thing: Thing) -> None:
        pass


@nearcall.service(name="Room")
class LargerRoom:
    def borrow(self, thing: Thing) -> None: ...

    @nearcall.oneway
    def lend(self, thing: Thing) -> None: ...


def test_a_one_way_call_that_the_server_does_not_know_gives_nothing(new_url: str) -> None:
    """Nobody would answer it, and so what it gave would stay: it is refused before."""
    with (
        nearcall.Server(Room(), new_url) as server,
        nearcall.connect(server.urls[0], LargerRoom, max_references=3) as room,
    ):
        for _ in range(5):
            with pytest.raises(nearcall.Unimplemented, match="has no method 'lend'"):
                room.lend(OwnThing())
        gc.collect()
        assert not ALIVE
