"""What a server tells about its calls while somebody watches, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nearcall
from nearcall.introspection import ConnectionStatistics, Introspection, MethodStatistics, Statistics
from nearcall.service.reading import read_description

from ..test_protocol import CALL, ERROR, NAMED, PARTS, shake_hands
from .deadlines import longer_and_longer
from .process import ServerProcess, start_program
from .services import PATIENCE, Basics, Errors, Lines, Streams, Waiting

OWN = "nearcall.Introspection"


def until(look: Callable[[], Any]) -> Any:
    """What the function returns, once that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)
    return seen


def counted(now: Statistics, name: str) -> MethodStatistics:
    return next(method for method in now.methods if method.method == name)


def ended(watcher: Introspection, name: str, count: int) -> MethodStatistics:
    """The method's counts once so many calls have ended: a server counts just after it has replied."""

    def look() -> MethodStatistics | None:
        found = counted(watcher.read(), name)
        assert found.calls <= count
        return found if found.calls == count else None

    found: MethodStatistics = until(look)
    assert found.started == count
    assert sum(number for _, number in found.latency) == count
    return found


def at_rest(found: MethodStatistics) -> MethodStatistics | None:
    """The method's counts, unless a call of it is under way."""
    return found if found.calls == found.started else None


@pytest.fixture
def own_url(new_url: str, transport: str) -> Iterator[str]:
    """A server that nobody else watches; in another process if the transport reaches one."""
    with ExitStack() as stack:
        server: ServerProcess | nearcall.Server
        if transport == "inproc":
            from .services import everything

            server = stack.enter_context(nearcall.Server(*everything(), new_url))
        else:
            server = stack.enter_context(ServerProcess(new_url))
        yield server.urls[0]


@pytest.fixture
def watcher(own_url: str) -> Iterator[Introspection]:
    with nearcall.connect(own_url, Introspection) as watcher:
        watcher.read()
        yield watcher


def test_unary_calls_and_bytes(own_url: str, watcher: Introspection) -> None:
    with nearcall.connect(own_url, Basics) as basics:
        for size in range(50):
            assert basics.echo(b"x" * size) == b"x" * size
        basics.add_in_loop(1, 2)
    with nearcall.connect(own_url) as untyped, pytest.raises(nearcall.InvalidArgument):
        untyped.Basics.add("1", 2)
    echo = ended(watcher, "Basics.echo", 50)
    assert (echo.kind, echo.ended, echo.in_flight) == ("unary", {"OK": 50}, 0)
    assert (echo.bytes_in, echo.bytes_out, echo.items_in, echo.items_out) == (1225, 1225, 0, 0)
    assert 0 < echo.latency[0][0] <= echo.latency[-1][0]
    assert sum(upper * number for upper, number in echo.latency) * 32 / 33 <= echo.latency_sum
    assert echo.latency_sum <= sum(upper * number for upper, number in echo.latency)
    assert ended(watcher, "Basics.add_in_loop", 1).ended == {"OK": 1}
    # What goes wrong before the handler counts, too.
    assert ended(watcher, "Basics.add", 1).ended == {"INVALID_ARGUMENT": 1}


def test_streams(own_url: str, watcher: Introspection) -> None:
    with nearcall.connect(own_url, Streams) as streams:
        assert list(streams.blocks(7, 10)) == [bytes([number]) * 10 for number in range(7)]
        assert list(streams.count_in_loop(5)) == list(range(5))
        assert streams.total(iter(range(4))) == 6
        assert streams.total_in_loop(iter(range(4))) == 6
        assert list(streams.scaled(iter([1.0, 2.0]), 2.0)) == [2.0, 4.0]
        with pytest.raises(nearcall.OutOfRange):
            list(streams.fail_after(3))
        with pytest.raises(nearcall.OutOfRange):
            list(streams.fail_after_in_loop(3))
    blocks = ended(watcher, "Streams.blocks", 1)
    assert (blocks.items_out, blocks.bytes_out, blocks.ended) == (7, 70, {"OK": 1})
    assert ended(watcher, "Streams.count_in_loop", 1).items_out == 5
    assert ended(watcher, "Streams.total", 1).items_in == 4
    assert ended(watcher, "Streams.total_in_loop", 1).items_in == 4
    scaled = ended(watcher, "Streams.scaled", 1)
    assert (scaled.items_in, scaled.items_out) == (2, 2)
    for name in ("Streams.fail_after", "Streams.fail_after_in_loop"):
        failed = ended(watcher, name, 1)
        assert (failed.items_out, failed.ended) == (3, {"OUT_OF_RANGE": 1})


@pytest.mark.parametrize("method", ["endless", "endless_in_loop"])
def test_streams_that_are_left(own_url: str, watcher: Introspection, method: str, key: str) -> None:
    with nearcall.connect(own_url, Streams) as streams:
        replies = getattr(streams, method)(key)
        assert [next(replies) for _ in range(3)] == [0, 1, 2]
        assert counted(watcher.read(), f"Streams.{method}").in_flight == 1
        replies.close()
        assert streams.how_it_closed(key) == "closed"
        assert ended(watcher, f"Streams.{method}", 1).ended == {"CANCELLED": 1}


@pytest.mark.parametrize("method", ["endless", "endless_in_loop"])
def test_deadlines(own_url: str, watcher: Introspection, method: str, key: str) -> None:
    with nearcall.connect(own_url, Streams) as streams:
        got: list[int] = []
        for seconds in longer_and_longer():
            with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
                got.extend(getattr(streams, method)(key))
            if got:
                break
        counts = until(lambda: at_rest(counted(watcher.read(), f"Streams.{method}")))
        assert counts.calls >= 1
        # Which comes first, the server's clock or the client's word, is open.
        assert counts.ended.keys() <= {"DEADLINE_EXCEEDED", "CANCELLED"}


def test_failures_and_one_way_calls(own_url: str, watcher: Introspection) -> None:
    with nearcall.connect(own_url, Errors) as errors, nearcall.connect(own_url, Lines) as lines:
        for code in range(1, 17):
            with pytest.raises(nearcall.RpcError):
                errors.status(code, "no", None)
        with pytest.raises(nearcall.RpcError):
            errors.wrong_result()
        for number in range(20):
            lines.log("k", number)
            lines.log_in_loop("l", number)
        errors.raised_one_way("value")
        errors.raised_one_way_in_loop("value")
    failed = ended(watcher, "Errors.status", 16).ended
    assert failed == {code.name: 1 for code in nearcall.StatusCode if code}
    assert set(ended(watcher, "Errors.wrong_result", 1).ended) == {"INTERNAL"}
    assert ended(watcher, "Lines.log", 20).ended == {"OK": 20}
    assert ended(watcher, "Lines.log_in_loop", 20).ended == {"OK": 20}
    assert ended(watcher, "Errors.raised_one_way", 1).ended == {"UNKNOWN": 1}
    assert ended(watcher, "Errors.raised_one_way_in_loop", 1).ended == {"UNKNOWN": 1}


def test_many_threads_are_counted_exactly(own_url: str, watcher: Introspection) -> None:
    with nearcall.connect(own_url, Basics) as basics:

        def work() -> None:
            for number in range(200):
                assert basics.add(number, 1) == number + 1

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert ended(watcher, "Basics.add", 1600).ended == {"OK": 1600}


def test_calls_under_way(own_url: str, key: str) -> None:
    with nearcall.connect(own_url, Waiting) as waiting, nearcall.connect(own_url, Introspection) as watcher:
        threads = [threading.Thread(target=waiting.hold, args=(f"{key}-{number}",)) for number in range(3)]
        threads[0].start()
        assert waiting.entered(f"{key}-0")
        assert watcher.read().in_flight == 1
        for thread in threads[1:]:
            thread.start()
        assert waiting.entered(f"{key}-1")
        assert waiting.entered(f"{key}-2")
        now = watcher.read()
        # The first began before anybody watched: it is under way all the same, but is not measured.
        assert (now.in_flight, counted(now, "Waiting.hold").in_flight) == (3, 2)
        assert now.threads - now.idle_threads >= 3
        for number in range(3):
            waiting.release(f"{key}-{number}")
        for thread in threads:
            thread.join(PATIENCE)
        ended(watcher, "Waiting.hold", 2)
        assert until(lambda: watcher.read().in_flight == 0)


@pytest.mark.slow
def test_two_workers_stand_by(own_url: str, key: str) -> None:
    """Whoever takes the lead from a slow handler may get a slow one, too. Afterwards no more are kept than before."""
    with nearcall.connect(own_url, Waiting) as waiting, nearcall.connect(own_url, Introspection) as watcher:

        def at_rest() -> bool:
            now = watcher.read()
            return (now.threads, now.idle_threads) == (3, 2)

        assert until(at_rest)
        threads = [threading.Thread(target=waiting.hold, args=(f"{key}-{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for number in range(6):
            assert waiting.entered(f"{key}-{number}")
        assert until(lambda: watcher.read().idle_threads == 2)
        for number in range(6):
            waiting.release(f"{key}-{number}")
        for thread in threads:
            thread.join(PATIENCE)
        assert until(at_rest)


def test_measuring_begins_anew(own_url: str) -> None:
    with nearcall.connect(own_url, Introspection) as watcher, nearcall.connect(own_url, Basics) as basics:
        first = watcher.read()
        basics.add(1, 2)
        ended(watcher, "Basics.add", 1)
        watcher.stop()
        watcher.stop()
        basics.add(1, 2)
        second = watcher.read()
        assert second.measurement > first.measurement
        assert counted(second, "Basics.add").started == 0
        assert (second.watchers, second.connections) == (1, 2)


def row_of(watcher: Introspection, look: Callable[[ConnectionStatistics], bool]) -> ConnectionStatistics:
    """The connection of which that holds, once it does."""
    found: ConnectionStatistics = until(lambda: next(filter(look, watcher.read_connections()), None))
    return found


@pytest.mark.slow
def test_connections(own_url: str, key: str) -> None:
    """Who is connected, since when, and what became of the calls."""
    begun = time.monotonic()
    with nearcall.connect(own_url, Introspection) as watcher:
        (own,) = watcher.read_connections()
        assert not own.watches, "nothing is measured for it"
        with nearcall.connect(own_url, Waiting) as waiting, nearcall.connect(own_url, Basics) as basics:
            for number in range(7):
                basics.add(number)
            second, third = until(lambda: watcher.read_connections(own.number))[:2]
            assert own.number < second.number < third.number
            done = row_of(watcher, lambda row: row.number == third.number and row.ended == 7)
            assert (done.started, done.in_flight, done.queued) == (7, 0, 0)
            held = nearcall.start(waiting.hold, key)
            busy = row_of(watcher, lambda row: row.number == second.number and row.in_flight == 1)
            waiting.release(key)
            assert 0 < busy.age < time.monotonic() - begun
            assert busy.url == own_url
            assert busy.transport == own_url.partition(":")[0]
            assert busy.pid == watcher.read().pid
            assert busy.worker is None
            if "broker" in busy.peer:
                assert own_url.startswith(busy.peer["broker"])
            elif "address" in busy.peer:
                assert busy.peer["address"].startswith("127.0.0.1:")
            else:
                assert busy.peer["uid"] == os.getuid()
                assert busy.peer.get("pid", os.getpid()) == os.getpid()
            basics_again = watcher.read_connections(second.number, 1)
            assert [row.number for row in basics_again] == [third.number]
            assert held.result() == key
        assert [row.number for row in until(lambda: alone(watcher))] == [own.number]
        assert watcher.read_connections()[0].watches


def alone(watcher: Introspection) -> list[ConnectionStatistics] | None:
    rows = watcher.read_connections()
    return rows if len(rows) == 1 else None


def test_what_a_connection_keeps(runtime_dir: Path, key: str) -> None:
    """A client that does not read: what waits for it is counted."""
    url = f"unix://{runtime_dir}/kept{key}"
    with (
        nearcall.Server(Streams(), url) as server,
        nearcall.connect(server.urls[0], Introspection) as watcher,
        nearcall.connect(server.urls[0], Streams) as streams,
    ):
        before = watcher.read_connections()[-1]
        assert (before.queued, before.memory < 1 << 16) == (0, True)
        items = streams.count(1 << 20)
        assert next(items) == 0
        row = row_of(watcher, lambda row: row.number == before.number and row.in_flight == 1)
        assert row.memory >= row.queued
        items.close()


@pytest.mark.parametrize("intercepted", ["not", "thread", "loop"])
def test_pages_of_connections_are_bounded(key: str, intercepted: str) -> None:
    class InLoop:
        async def go(self) -> None: ...

    async def pass_on(call: nearcall.ServerCall, proceed: Any) -> Any:
        return await proceed(call)

    def pass_on_in_thread(call: nearcall.ServerCall, proceed: Any) -> Any:
        return proceed(call)

    chain: list[Any] = {"not": [], "thread": [pass_on_in_thread], "loop": [pass_on]}[intercepted]
    service = nearcall.service(InLoop)() if intercepted == "loop" else Basics()
    with ExitStack() as stack:
        server = stack.enter_context(nearcall.Server(service, f"shm://pages{key}", interceptors=chain))
        watcher = stack.enter_context(nearcall.connect(server.urls[0], Introspection))
        for _ in range(5):
            stack.enter_context(nearcall.Channel(server.urls[0]))
        until(lambda: len(watcher.read_connections()) == 6)
        numbers = [row.number for row in watcher.read_connections()]
        assert numbers == sorted(numbers)
        found: list[int] = []
        while page := watcher.read_connections(found[-1] if found else 0, 4):
            assert len(page) <= 4
            found += [row.number for row in page]
        assert found == numbers
        assert [row.number for row in watcher.read_all_connections(numbers[1], 2)] == numbers[2:4]
        assert [row.number for row in watcher.read_connections(limit=2)] == numbers[:2]
        for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": -1}, {"after": -1}):
            with pytest.raises(nearcall.InvalidArgument):
                watcher.read_connections(**wrong)
            with pytest.raises(nearcall.InvalidArgument):
                watcher.read_all_connections(**wrong)


@pytest.mark.slow
def test_a_hundred_watchers(own_url: str) -> None:
    with ExitStack() as stack:
        watchers = [stack.enter_context(nearcall.connect(own_url, Introspection)) for _ in range(100)]
        first = [watcher.read() for watcher in watchers]
        assert len({now.measurement for now in first}) == 1
        assert [now.watchers for now in first] == list(range(1, 101))
        with nearcall.connect(own_url, Basics) as basics:
            basics.add(1, 2)
        for watcher in watchers:
            ended(watcher, "Basics.add", 1)
        watchers[0].stop()
        assert watchers[1].read().watchers == 99
        assert len(watchers[1].read().methods) == len(first[0].methods)


def test_from_an_event_loop(own_url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(own_url, Introspection) as watcher:
            assert (await watcher.read()).watchers == 1

    asyncio.run(main())


WATCH = """
import sys, nearcall
from nearcall.introspection import Introspection
client = nearcall.connect(sys.argv[1], Introspection)
client.read()
print("watching", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.crash
def test_a_killed_watcher_watches_no_more(outside_url: str) -> None:
    with (
        ServerProcess(outside_url) as server,
        start_program(WATCH, server.url) as other,
        nearcall.connect(server.url, Introspection) as watcher,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "watching\n"
        before = watcher.read()
        assert before.watchers == 2
        watcher.stop()
        os.kill(other.pid, signal.SIGKILL)
        other.wait(10)
        # With nobody watching, the next look begins a measurement of its own.

        def begun_anew() -> bool:
            now = watcher.read()
            watcher.stop()
            return now.watchers == 1 and now.measurement != before.measurement

        assert until(begun_anew)


def test_a_server_that_is_stuck_can_be_watched(key: str) -> None:
    with (
        nearcall.Server(Waiting(), f"shm://stuck{key}", max_concurrency=1) as server,
        nearcall.connect(server.urls[0], Waiting) as waiting,
        nearcall.connect(server.urls[0], Introspection) as watcher,
    ):
        watcher.read()
        threads = [threading.Thread(target=waiting.hold, args=(key,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        with nearcall.timeout(PATIENCE):
            assert until(lambda: watcher.read().queued == 2)
        now = watcher.read()
        assert (now.in_flight, counted(now, "Waiting.hold").in_flight) == (3, 3)
        # The server is in this process, so it can be let go without a call.
        service: Any = server._handlers[0][1].__self__
        service._released[key].set()
        for thread in threads:
            thread.join(PATIENCE)


def test_behind_interceptors_a_look_waits_as_calls_do(key: str) -> None:
    """They are functions in Python, and run where handlers do."""

    def passes(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        return proceed(call)

    service = Waiting()
    with (
        nearcall.Server(service, f"shm://behind{key}", max_concurrency=1, interceptors=[passes]) as server,
        nearcall.connect(server.urls[0], Waiting) as waiting,
        nearcall.connect(server.urls[0], Introspection) as watcher,
    ):
        thread = threading.Thread(target=waiting.hold, args=(key,))
        thread.start()
        assert service.entered(key)
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(0.1):
            watcher.read()
        service.release(key)
        thread.join(PATIENCE)
        assert watcher.read().watchers == 1


def test_a_server_that_passes_objects_can_be_watched(key: str) -> None:
    """A service that is served as well has two numbers for each method, and one line."""

    @nearcall.service
    class Counter:
        def next(self) -> int:
            return 1

    @nearcall.service
    class Shop:
        def counter(self) -> Counter:
            return Counter()

    with (
        nearcall.Server(Shop(), Counter(), f"shm://objects{key}") as server,
        nearcall.connect(server.urls[0], Shop) as shop,
        nearcall.connect(server.urls[0], Counter) as counter,
        nearcall.connect(server.urls[0], Introspection) as watcher,
    ):
        assert [method.method for method in watcher.read().methods] == ["Shop.counter", "Counter.next"]
        assert shop.counter().next() + counter.next() == 2
        assert ended(watcher, "Counter.next", 2).ended == {"OK": 2}
        assert ended(watcher, "Shop.counter", 1).ended == {"OK": 1}


def test_arguments_that_it_does_not_take_are_refused(runtime_dir: Path, key: str) -> None:
    """A client with more parameters than the server has sends those that it has values for, by name."""

    @nearcall.service(name=OWN)
    class Later:
        def read(self, since: float = 0.0) -> Any: ...

        def stop(self) -> None: ...

    path = str(runtime_dir / f"later{key}")
    with (
        nearcall.Server(Basics(), f"unix://{path}") as server,
        nearcall.connect(server.urls[0], Later) as watcher,
        socket.socket(socket.AF_UNIX) as raw,
    ):
        assert watcher.read()["watchers"] == 1
        raw.settimeout(PATIENCE)
        raw.connect(path)
        shake_hands(raw)
        with contextlib.closing(nearcall.connect(server.urls[0])) as other:
            number = number_of_read(other)
        named = struct.pack("<I", 0) + msgspec.msgpack.encode({"since": 1.0})
        frame = struct.pack("<BBHI", CALL, NAMED | PARTS, number, 1) + named
        raw.sendall(struct.pack("<I", len(frame)) + frame)
        (length,) = struct.unpack("<I", raw.recv(4, socket.MSG_WAITALL))
        answer = raw.recv(length, socket.MSG_WAITALL)
        assert (answer[0], answer[8]) == (ERROR, nearcall.StatusCode.INVALID_ARGUMENT)
        assert b"nearcall.Introspection take no arguments" in answer
        assert watcher.read()["watchers"] == 1


def number_of_read(client: Any) -> int:
    """The number of the method on the wire."""
    described = read_description(client.description)
    return next(at for at, service, _ in described.numbered(introspection=True) if service.name == OWN)


def test_a_watcher_that_does_not_read_holds_up_nobody(runtime_dir: Path, key: str) -> None:
    path = str(runtime_dir / f"deaf{key}")
    with (
        ServerProcess(f"unix://{path}", max_concurrency=2) as server,
        nearcall.connect(server.url, Introspection) as watcher,
        nearcall.connect(server.url, Basics) as basics,
        socket.socket(socket.AF_UNIX) as deaf,
    ):
        watcher.read()
        deaf.settimeout(PATIENCE)
        deaf.connect(path)
        shake_hands(deaf)
        with contextlib.closing(nearcall.connect(server.url)) as other:
            number = number_of_read(other)
        frame = struct.pack("<BBHI", CALL, 0, number, 1) + msgspec.msgpack.encode([])

        deaf.setblocking(False)
        asked = refused = 0
        with nearcall.timeout(PATIENCE):
            # Until the server reads no more from it, and its socket is full.
            while refused < 100:
                try:
                    asked += deaf.send(struct.pack("<I", len(frame)) + frame) > 0
                    refused = 0
                except BlockingIOError:
                    refused += 1
                if asked % 100 == 0 or refused:
                    assert basics.add(1, 2) == 3
            assert watcher.read().watchers == 2
            deaf.close()
        assert until(lambda: watcher.read().watchers == 1)
        assert watcher.read().connections == 2


@pytest.mark.parametrize("interceptors", [[], [lambda call, proceed: proceed(call)]], ids=["native", "in threads"])
def test_its_description_tells_users_what_it_is(key: str, interceptors: list[Any]) -> None:
    url = f"inproc://described{key}"
    with nearcall.Server(Basics(), url, interceptors=interceptors), nearcall.Channel(url) as channel:
        assert channel.description["introspection"]["doc"] == Introspection.__doc__
