"""Connections that end by themselves when they have reached their age: no call fails by that, and none is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import nearcall

from .conftest import TRANSPORTS

PATIENCE = 30.0
"""Seconds after which a test that waits has failed."""
AGE = 0.1
ALL: dict[str, Callable[[str, Path], str]] = {
    **TRANSPORTS,
    "grpc": lambda *_: "grpc://127.0.0.1:0",
    "http": lambda *_: "http://127.0.0.1:0",
}


@nearcall.service
class Counter:
    def __init__(self) -> None:
        self.called: list[int] = []
        self.noted: list[int] = []
        self.held, self.gate = threading.Event(), threading.Event()

    def count(self, number: int) -> int:
        self.called.append(number)
        return number

    @nearcall.oneway
    def note(self, number: int) -> None:
        self.noted.append(number)

    def hold(self) -> int:
        self.held.set()
        self.gate.wait(PATIENCE)
        return 1

    def flow(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1


class Clients:
    """Counts the connections that a server has had."""

    def __init__(self) -> None:
        self.came = 0
        self.left = threading.Semaphore(0)

    def on_connect(self, _: object) -> None:
        self.came += 1

    def on_disconnect(self, _: object) -> None:
        self.left.release()


@pytest.fixture(params=ALL)
def aged_url(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> str:
    return ALL[request.param](f"age{key}", runtime_dir)


def serve(counter: Counter, url: str, *, grace: float = PATIENCE) -> tuple[nearcall.Server, Clients]:
    clients = Clients()
    server = nearcall.Server(
        counter,
        url,
        max_connection_age=AGE,
        max_connection_age_grace=grace,
        on_connect=clients.on_connect,
        on_disconnect=clients.on_disconnect,
    )
    return server, clients


def test_no_call_fails_and_none_runs_twice(aged_url: str) -> None:
    counter = Counter()
    server, clients = serve(counter, aged_url)
    with server, nearcall.connect(server.urls[0], Counter) as client:
        number, end = 0, time.monotonic() + PATIENCE
        while clients.came < 4:
            assert time.monotonic() < end, "its connection is never replaced"
            assert client.count(number) == number
            client.note(number)
            number += 1
        client.count(number)
    assert counter.called == list(range(number + 1))
    assert sorted(counter.noted) == list(range(number)), "one-way calls are lost or run twice"


def test_tasks_call_on(aged_url: str) -> None:
    counter = Counter()
    server, clients = serve(counter, aged_url)

    async def run() -> int:
        async with nearcall.aio.connect(server.urls[0], Counter) as client:
            number, end = 0, time.monotonic() + PATIENCE
            while clients.came < 4:
                assert time.monotonic() < end, "its connection is never replaced"
                numbers = range(number, number + 20)
                assert await asyncio.gather(*map(client.count, numbers)) == list(numbers)
                number += 20
            return number

    with server:
        made = asyncio.run(run())
    assert sorted(counter.called) == list(range(made))


def test_a_call_under_way_ends_well_within_the_grace(aged_url: str) -> None:
    counter = Counter()
    server, clients = serve(counter, aged_url)
    with server, nearcall.Channel(server.urls[0]) as channel:
        client = channel.client(Counter)
        held = nearcall.start(client.hold)
        assert counter.held.wait(PATIENCE)
        end = time.monotonic() + PATIENCE
        while clients.came < 2:
            assert time.monotonic() < end, "calls go on over the old connection"
            client.count(0)
        counter.gate.set()
        assert held.result(PATIENCE) == 1
        del held  # it keeps its connection, over which nobody reads any more
        assert clients.left.acquire(timeout=PATIENCE / 2), "the old connection stays"


def test_a_stream_without_an_end_fails_after_the_grace(aged_url: str) -> None:
    server, _ = serve(Counter(), aged_url, grace=0.1)
    with server, nearcall.connect(server.urls[0], Counter) as client:
        end = time.monotonic() + PATIENCE
        with pytest.raises(nearcall.Unavailable):
            assert all(time.monotonic() < end for _ in client.flow()), "it goes on for ever"
        assert client.count(3) == 3


def test_an_idle_client_connects_again(aged_url: str) -> None:
    server, clients = serve(Counter(), aged_url, grace=0.1)
    with server, nearcall.connect(server.urls[0], Counter) as client:
        assert client.count(1) == 1
        assert clients.left.acquire(timeout=PATIENCE), "the connection of a client that does nothing stays"
        assert client.count(2) == 2


def test_a_client_of_grpcios_notices_nothing() -> None:
    counter = Counter()
    server, clients = serve(counter, "grpc://127.0.0.1:0")
    with server, grpc.insecure_channel(server.urls[0].removeprefix("grpc://")) as channel:
        call: Any = channel.unary_unary("/Counter/Count")
        calls, end = 0, time.monotonic() + PATIENCE
        while clients.came < 4:
            assert time.monotonic() < end, "its connection is never replaced"
            call(b"\x08\x05", timeout=PATIENCE)
            calls += 1
    assert counter.called == [5] * calls


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_connection_age": 0}, "max_connection_age must be at least 0.1 seconds, not 0"),
        (
            {"max_connection_age": "long"},
            "max_connection_age must be a number of seconds from 0 to 1e9, or None, not 'long'",
        ),
        (
            {"max_connection_age_grace": -1},
            "max_connection_age_grace must be a number of seconds from 0 to 1e9, not -1",
        ),
    ],
)
def test_a_wrong_age_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        nearcall.Server(Counter(), "inproc://young", **wrong)
    assert str(caught.value) == message
