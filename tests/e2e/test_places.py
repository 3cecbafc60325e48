"""How many handlers run in threads, while an event loop receives for the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import nearcall

from .process import ServerProcess
from .services import PATIENCE

MANY = 40
"""So many calls of coroutines in a row, and their event loop receives by itself."""


@nearcall.service
class Door:
    def opened(self) -> None: ...


@nearcall.service
class Rooms:
    """Each method in threads has a handler that waits until ``open`` is called, or for the door that it was given."""

    def enter(self) -> int: ...
    def knock(self, door: Door) -> None: ...
    def pass_by(self) -> None: ...
    async def inside(self) -> int: ...
    async def most_inside(self) -> int: ...
    async def open(self) -> None: ...


class House(Rooms):
    def __init__(self) -> None:
        self._open = threading.Event()
        self._change = threading.Lock()
        self._inside = self._most = 0

    def enter(self) -> int:
        with self._change:
            self._inside += 1
            self._most = max(self._most, self._inside)
        self._open.wait(PATIENCE)
        with self._change:
            self._inside -= 1
        return self._most

    def knock(self, door: Door) -> None:
        self.enter()
        door.opened()

    def pass_by(self) -> None:
        pass

    async def inside(self) -> int:
        return self._inside

    async def most_inside(self) -> int:
        return self._most

    async def open(self) -> None:
        self._open.set()


def house() -> list[object]:
    return [House()]


@pytest.fixture
def rooms(outside_url: str) -> Iterator[Rooms]:
    with (
        ServerProcess(outside_url, services="tests.e2e.test_places:house", max_concurrency=1) as server,
        nearcall.connect(server.url, Rooms, timeout=PATIENCE) as rooms,
    ):
        yield rooms
        # Only if the test has failed are there still handlers that wait.
        rooms.open()


def in_thread(run: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread


def let_the_loop_receive(rooms: Rooms) -> None:
    for _ in range(MANY):
        rooms.inside()


def test_no_more_handlers_run_than_may_when_the_loop_receives(rooms: Rooms) -> None:
    callers = []
    for _ in range(3):
        callers.append(in_thread(rooms.enter))
        while not rooms.inside():
            pass
        let_the_loop_receive(rooms)
    assert rooms.most_inside() == 1
    rooms.open()
    for caller in callers:
        caller.join(PATIENCE)
    assert rooms.most_inside() == 1


def test_a_place_that_a_waiting_handler_leaves_is_taken_though_the_loop_receives(rooms: Rooms) -> None:
    passed = threading.Event()

    class Ours(Door):
        def opened(self) -> None:
            assert passed.wait(PATIENCE)

    def pass_by() -> None:
        rooms.pass_by()
        passed.set()

    knocks = in_thread(rooms.knock, Ours())
    while not rooms.inside():
        pass
    passes = in_thread(pass_by)
    let_the_loop_receive(rooms)
    rooms.open()
    knocks.join(PATIENCE)
    passes.join(PATIENCE)
    assert passed.is_set()
