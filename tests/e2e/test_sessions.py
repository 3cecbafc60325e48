"""What a server keeps for each of its clients: sessions, and who is told when a client comes and goes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Queue
from typing import Any

import pytest

import nearcall

from .events import Events, Hung
from .process import start_program

PATIENCE = 30.0


class Thing:
    """Something that a session may have, and whose end can be seen."""


@nearcall.service
class Desk:
    def __init__(self) -> None:
        self.begun = Events()
        self.go_on = Events()
        self.things: list[weakref.ref[Thing]] = []
        self.contexts: list[nearcall.Context] = []

    def put(self, value: int) -> None:
        nearcall.context().session.value = value

    def get(self) -> int | None:
        return getattr(nearcall.context().session, "value", None)

    async def get_in_loop(self) -> int | None:
        await asyncio.sleep(0)
        return getattr(nearcall.context().session, "value", None)

    @nearcall.oneway
    def note(self, value: int) -> None:
        nearcall.context().session.value = value

    def stream(self, n: int) -> Iterator[int]:
        for _ in range(n):
            nearcall.context().session.value += 1
            yield nearcall.context().session.value

    async def stream_in_loop(self, xs: AsyncIterator[int]) -> AsyncIterator[int]:
        async for x in xs:
            yield x + nearcall.context().session.value

    def collect(self, xs: Iterable[int]) -> int:
        return sum(xs) + int(nearcall.context().session.value)

    def which(self) -> int:
        return id(nearcall.context().session)

    def missing(self) -> str:
        return str(nearcall.context().session.nothing)

    def keep_thing(self) -> None:
        thing = nearcall.context().session.thing = Thing()
        self.things.append(weakref.ref(thing))

    def keep_context(self) -> None:
        self.contexts.append(nearcall.context())

    def wait(self, key: str) -> None:
        self.begun[key].set()
        self.go_on[key].wait(PATIENCE)

    def wait_and_get(self, key: str) -> int | None:
        self.begun[key].set()
        self.go_on[key].wait(PATIENCE)
        return getattr(nearcall.context().session, "value", None)

    def ping(self) -> int:
        return os.getpid()


class Guests:
    """Hooks that write down what they are told."""

    def __init__(self) -> None:
        self.events: Queue[tuple[str, nearcall.ServerConnection]] = Queue()
        self.threads: set[threading.Thread] = set()

    def came(self, connection: nearcall.ServerConnection) -> None:
        self.threads.add(threading.current_thread())
        connection.session.value = 100
        self.events.put(("came", connection))

    def left(self, connection: nearcall.ServerConnection) -> None:
        self.threads.add(threading.current_thread())
        self.events.put(("left", connection))

    def next(self) -> tuple[str, nearcall.ServerConnection]:
        return self.events.get(timeout=PATIENCE)

    def rest(self) -> list[str]:
        return [self.events.get()[0] for _ in range(self.events.qsize())]


def until(ready: Callable[[], bool]) -> None:
    """Waits for something that other threads do; the test's own limit ends it."""
    while not ready():
        threading.Event().wait(0.002)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def guests() -> Guests:
    return Guests()


@pytest.fixture
def plain_url(new_url: str, desk: Desk) -> Iterator[str]:
    """Where a desk is served without any hooks."""
    with nearcall.Server(desk, new_url) as server:
        yield server.urls[0]


@pytest.fixture
def guest_url(new_url: str, desk: Desk, guests: Guests) -> Iterator[str]:
    with nearcall.Server(desk, new_url, on_connect=guests.came, on_disconnect=guests.left) as server:
        yield server.urls[0]


def test_a_session_is_the_same_for_all_calls_of_a_connection(plain_url: str) -> None:
    with nearcall.connect(plain_url, Desk) as one, nearcall.connect(plain_url, Desk) as other:
        assert one.get() is None
        one.put(7)
        other.put(20)
        assert (one.get(), other.get()) == (7, 20)
        assert list(one.stream(2)) == [8, 9]
        assert one.collect([1, 2]) == 12
        untyped: Any = one
        assert untyped.get_in_loop() == 9
        assert list(untyped.stream_in_loop([1, 2])) == [10, 11]
        one.note(5)
        until(lambda: one.get() == 5)
        assert other.get() == 20


def test_clients_of_a_channel_share_it(plain_url: str) -> None:
    with nearcall.Channel(plain_url) as channel:
        channel.client(Desk).service.put(3)
        assert channel.client(Desk).service.get() == 3


def test_calls_at_once_find_one_session(plain_url: str) -> None:
    for _ in range(10):
        with nearcall.connect(plain_url, Desk) as client, ThreadPoolExecutor(8) as pool:
            assert len({one.result(PATIENCE) for one in [pool.submit(client.which) for _ in range(8)]}) == 1


def test_a_session_says_what_it_does_not_have(plain_url: str, caplog: pytest.LogCaptureFixture) -> None:
    said = "this client's session has no 'nothing': set it in on_connect, or"
    with nearcall.connect(plain_url, Desk) as client, pytest.raises(nearcall.Unknown, match=said):
        client.missing()
    assert repr(nearcall.Session(a=1)) == "Session(a=1)"


def test_a_session_goes_with_its_connection(plain_url: str, desk: Desk) -> None:
    with nearcall.connect(plain_url, Desk) as client:
        client.keep_thing()
        gc.collect()
        assert desk.things[0]() is not None
        client.keep_context()
    until(lambda: desk.things[0]() is None)
    with pytest.raises(RuntimeError, match="the client's connection is gone, and its session with it"):
        _ = desk.contexts[0].session


def test_a_new_connection_has_a_new_session(new_url: str, desk: Desk) -> None:
    with nearcall.Server(desk, new_url) as first:
        url = first.urls[0]
        client = nearcall.connect(url, Desk, wait_for_ready=True, timeout=PATIENCE)
        client.service.put(7)
    with nearcall.Server(desk, url):
        while True:
            try:
                assert client.service.get() is None
                break
            except nearcall.Unavailable:
                pass
    client.close()


def test_a_running_call_keeps_the_session(plain_url: str, key: str, desk: Desk) -> None:
    client = nearcall.connect(plain_url, Desk)
    client.service.keep_thing()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.service.wait_and_get, key)
        assert desk.begun[key].wait(PATIENCE)
        client.close()
        with pytest.raises(nearcall.Cancelled):
            waiting.result(PATIENCE)
        with nearcall.connect(plain_url, Desk) as other:
            other.ping()  # the server has had time to notice
        assert desk.things[0]() is not None
        desk.go_on[key].set()
    until(lambda: desk.things[0]() is None)


def test_there_is_none_outside_of_calls() -> None:
    with pytest.raises(RuntimeError, match="no call is being served here"):
        _ = nearcall.context().session


def test_hooks_come_first_and_last(guest_url: str, guests: Guests, transport: str) -> None:
    with nearcall.connect(guest_url, Desk) as client:
        assert client.get() == 100
        word, connection = guests.next()
        assert word == "came"
        assert connection.session.value == 100
        if transport in ("shm", "unix", "inproc"):
            assert connection.peer["pid"] == os.getpid()
        assert repr(connection).startswith("<connection of a client: ")
        client.put(5)
    assert guests.next() == ("left", connection)
    assert connection.session.value == 5
    assert guests.rest() == []


def test_who_never_calls_comes_and_goes(guest_url: str, guests: Guests) -> None:
    nearcall.Channel(guest_url).close()
    assert [guests.next()[0], guests.next()[0]] == ["came", "left"]


def test_many_come_and_go(guest_url: str, guests: Guests) -> None:
    def visit(number: int) -> int | None:
        with nearcall.connect(guest_url, Desk) as client:
            client.put(number)
            return client.get()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(visit, range(40))) == list(range(40))
    events = [guests.next() for _ in range(80)]
    came = [connection for word, connection in events if word == "came"]
    left = [connection for word, connection in events if word == "left"]
    assert len({id(connection) for connection in came}) == 40
    assert {id(connection) for connection in came} == {id(connection) for connection in left}
    assert sorted(connection.session.value for connection in left) == list(range(40))
    assert all(events.index(("came", each)) < events.index(("left", each)) for each in came)


def test_the_last_call_comes_before_the_last_hook(guest_url: str, key: str, desk: Desk, guests: Guests) -> None:
    client = nearcall.connect(guest_url, Desk)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.service.wait, key)
        assert desk.begun[key].wait(PATIENCE)
        assert guests.next()[0] == "came"
        client.close()
        with pytest.raises(nearcall.Cancelled):
            waiting.result(PATIENCE)
        with nearcall.connect(guest_url, Desk) as other:
            assert other.get() == 100
        assert [guests.next()[0], guests.next()[0]] == ["came", "left"]  # the other's
        assert guests.rest() == []
        desk.go_on[key].set()
        assert guests.next()[0] == "left"


def test_a_slow_hook_holds_up_nobody_else(new_url: str, desk: Desk) -> None:
    first, go_on = threading.Event(), threading.Event()
    served: list[nearcall.ServerConnection] = []

    def came(connection: nearcall.ServerConnection) -> None:
        served.append(connection)
        if len(served) == 2:
            first.set()
            go_on.wait(PATIENCE)
        connection.session.value = len(served)

    with nearcall.Server(desk, new_url, on_connect=came) as server:
        url = server.urls[0]
        with nearcall.connect(url, Desk) as before, ThreadPoolExecutor(1) as pool:
            assert before.get() == 1
            with nearcall.connect(url, Desk) as slow:
                assert first.wait(PATIENCE)
                waiting = pool.submit(slow.get)
                with nearcall.connect(url, Desk) as after:
                    assert after.get() == 3
                    assert before.get() == 1
                    assert not waiting.done()
                go_on.set()
                assert waiting.result(PATIENCE) == 3


def test_one_who_leaves_during_its_first_hook(new_url: str, desk: Desk, guests: Guests) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def came(connection: nearcall.ServerConnection) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        guests.came(connection)

    with nearcall.Server(desk, new_url, on_connect=came, on_disconnect=guests.left) as server:
        client = nearcall.connect(server.urls[0], Desk)
        assert begun.wait(PATIENCE)
        client.close()
        go_on.set()
        assert [guests.next()[0], guests.next()[0]] == ["came", "left"]


@pytest.mark.parametrize("raised", [ValueError, SystemExit])
def test_what_hooks_raise_is_logged(
    new_url: str, desk: Desk, caplog: pytest.LogCaptureFixture, raised: type[BaseException]
) -> None:
    def fail(connection: nearcall.ServerConnection) -> None:
        raise raised("oops")

    caplog.set_level(logging.ERROR, "nearcall")
    with nearcall.Server(desk, new_url, on_connect=fail, on_disconnect=fail) as server:
        with nearcall.connect(server.urls[0], Desk) as client:
            assert client.ping() == os.getpid()
        until(lambda: len(caplog.records) == 2)
        with nearcall.connect(server.urls[0], Desk) as client:
            assert client.ping() == os.getpid()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith(f"on_connect raised {raised.__name__}, for the client ")
    assert lines[1].startswith(f"on_disconnect raised {raised.__name__}, for the client ")
    assert "oops" in caplog.text


CALL_AND_WAIT = """
import sys, nearcall
from tests.e2e.test_sessions import Desk
with nearcall.connect(sys.argv[1], Desk) as client:
    client.put(9)
    print(client.get(), flush=True)
    if len(sys.argv) > 2:
        client.wait(sys.argv[2])
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("busy", [False, True])
def test_a_client_that_is_killed(
    outside: str, outside_url: str, key: str, desk: Desk, guests: Guests, busy: bool
) -> None:
    with (
        nearcall.Server(desk, outside_url, on_connect=guests.came, on_disconnect=guests.left) as server,
        start_program(CALL_AND_WAIT, server.urls[0], *([key] if busy else [])) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "9\n"
        if busy:
            assert desk.begun[key].wait(PATIENCE)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        assert guests.next()[0] == "came"
        desk.go_on[key].set()
        word, connection = guests.next()
        assert (word, connection.session.value) == ("left", 9)
    assert guests.rest() == []


def test_a_server_that_stops_says_goodbye_to_all(new_url: str, desk: Desk, guests: Guests) -> None:
    with ExitStack() as stack:
        server = nearcall.Server(desk, new_url, on_connect=guests.came, on_disconnect=guests.left).start()
        for _ in range(3):
            assert stack.enter_context(nearcall.connect(server.urls[0], Desk)).get() == 100
        assert server.stop()
        assert sorted(guests.rest()) == ["came"] * 3 + ["left"] * 3


def test_a_handler_that_was_cut_off_keeps_its_client(new_url: str, key: str, desk: Desk, guests: Guests) -> None:
    server = nearcall.Server(desk, new_url, on_connect=guests.came, on_disconnect=guests.left).start()
    with nearcall.connect(server.urls[0], Desk) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait, key)
        assert desk.begun[key].wait(PATIENCE)
        assert not server.stop(grace=0)
        with pytest.raises(nearcall.RpcError):
            waiting.result(PATIENCE)
        assert guests.rest() == ["came"]
        desk.go_on[key].set()
        assert guests.next()[0] == "left"


def test_a_slow_last_hook_has_the_grace(new_url: str, desk: Desk) -> None:
    begun, over = threading.Event(), threading.Event()

    def left(connection: nearcall.ServerConnection) -> None:
        begun.set()
        threading.Event().wait(0.1)
        over.set()

    with nearcall.Server(desk, new_url, on_disconnect=left) as server:
        nearcall.connect(server.urls[0], Desk).close()
        assert begun.wait(PATIENCE)
        assert server.stop()
        assert over.is_set()


def test_hooks_run_in_threads_of_the_server(guest_url: str, guests: Guests) -> None:
    nearcall.Channel(guest_url).close()
    guests.next(), guests.next()
    assert all(thread.name.startswith("nearcall-worker") for thread in guests.threads)


def test_only_coroutines_are_served(new_url: str, guests: Guests) -> None:
    @nearcall.service
    class Looped:
        async def get(self) -> int:
            await asyncio.sleep(0)
            return int(nearcall.context().session.value)

    with nearcall.Server(Looped(), new_url, on_connect=guests.came, on_disconnect=guests.left) as server:
        for _ in range(3):
            with nearcall.connect(server.urls[0], Looped) as client:
                untyped: Any = client
                assert [untyped.get() for _ in range(50)] == [100] * 50
            assert [guests.next()[0], guests.next()[0]] == ["came", "left"]


def test_one_handler_at_a_time(new_url: str, desk: Desk, guests: Guests) -> None:
    """Hooks count among the handlers, and have their turn as calls do."""
    with nearcall.Server(desk, new_url, on_connect=guests.came, on_disconnect=guests.left, max_concurrency=1) as server:
        for _ in range(5):
            with nearcall.connect(server.urls[0], Desk) as client:
                assert client.get() == 100
            assert [guests.next()[0], guests.next()[0]] == ["came", "left"]


async def _coroutine(connection: nearcall.ServerConnection) -> None: ...


@pytest.mark.parametrize("option", ["on_connect", "on_disconnect"])
def test_hooks_are_ordinary_functions(option: str) -> None:
    options: Any = {option: _coroutine}
    with pytest.raises(TypeError, match=f"{option} must be an ordinary function, not 'async def'"):
        nearcall.Server(Desk(), **options)
    options = {option: 3}
    with pytest.raises(TypeError, match=f"{option} must be a function that takes the client's connection, not 3"):
        nearcall.Server(Desk(), **options)


@pytest.mark.parametrize("option", ["on_connect", "on_disconnect"])
def test_hooks_take_the_connection(option: str) -> None:
    """Said when the server is made, not to each client."""
    for wrong in (lambda: None, lambda connection, other: None):
        options: Any = {option: wrong}
        with pytest.raises(TypeError, match=f"{option} is called with one argument, the client's connection"):
            nearcall.Server(Desk(), **options)


def test_the_last_hooks_run_side_by_side(new_url: str, desk: Desk) -> None:
    together = threading.Barrier(3)
    with nearcall.Server(desk, new_url, on_disconnect=lambda connection: together.wait(PATIENCE)) as server:
        clients = [nearcall.connect(server.urls[0], Desk) for _ in range(3)]
        assert [client.ping() > 0 for client in clients] == [True] * 3
        assert server.stop()
    assert not together.broken


def test_a_server_that_stops_does_not_wait_for_ever(
    new_url: str, desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = Hung(2)
    monkeypatch.setattr("nearcall.call.departures.time", hung.clock)
    with nearcall.Server(desk, new_url, on_disconnect=lambda connection: hung()) as server:
        clients = [nearcall.connect(server.urls[0], Desk) for _ in range(2)]
        with caplog.at_level(logging.WARNING, "nearcall"):
            server.stop(grace=0.05)
    hung.over.set()
    assert "stops without waiting longer for on_disconnect (2 times)" in caplog.text
    assert len(clients) == 2


def test_a_hook_may_stop_the_server(new_url: str, desk: Desk) -> None:
    """It does not wait for itself: that would take all the grace, which here is longer than the test."""
    stopped: Queue[bool] = Queue()
    server = nearcall.Server(desk, new_url, on_disconnect=lambda connection: stopped.put(server.stop(grace=1000)))
    server.start()
    nearcall.connect(server.urls[0], Desk).close()
    assert stopped.get(timeout=PATIENCE)
    assert server.wait(PATIENCE)
