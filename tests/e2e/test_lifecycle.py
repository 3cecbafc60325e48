"""Starting, stopping and dying, of servers and clients."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall

from ..turns import IS_WHOLE
from .conftest import OUTSIDE, SHARED, TRANSPORTS
from .process import ServerProcess, run_program, start_program
from .services import Basics, Lines, Streams, Waiting, everything

QUICK = 5.0
"""Seconds within which a death must be noticed even on a machine that is very busy."""


def in_threads(*calls: Any) -> tuple[list[threading.Thread], list[Any]]:
    """Starts the calls in threads; their results or exceptions in the order of the calls."""
    outcomes: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            outcomes[index] = calls[index]()
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    return threads, outcomes


def test_start_and_stop(new_url: str) -> None:
    server = nearcall.Server(Basics(), new_url)
    assert server.urls == []
    with pytest.raises(RuntimeError, match="not started"):
        server.wait(0)
    assert server.start() is server
    with pytest.raises(RuntimeError, match=r"started already: write either start\(\)"):
        server.start()
    with nearcall.connect(server.urls[0], Basics) as basics:
        assert basics.add(1) == 6
    assert server.stop() is True
    assert server.stop() is True
    assert server.wait(0)
    with pytest.raises(RuntimeError, match="stopped"):
        server.start()
    with pytest.raises(nearcall.Unavailable):
        nearcall.connect(server.urls[0], Basics)


@pytest.mark.slow
def test_it_stops_whatever_it_is_doing() -> None:
    """Whoever receives may be anywhere between two looks when it is told."""
    for turn in range(1000 if IS_WHOLE else 200):
        with nearcall.Server(Basics(), "inproc://stops") as server, nearcall.connect(server.urls[0], Basics) as basics:
            assert basics.add(1) == 6
            time.sleep(turn % 25 * 0.0001)
            assert basics.add(1) == 6


def test_one_after_another_at_one_url(new_url: str, transport: str) -> None:
    url = new_url
    for number in range(5):
        with nearcall.Server(Basics(), url) as server:
            url = server.urls[0]
            with nearcall.connect(url, Basics) as basics:
                assert basics.add(number, 1) == number + 1


def test_a_stopped_server_leaves_nothing(runtime_dir: Path, key: str) -> None:
    before = set(threading.enumerate())
    descriptors = len(os.listdir("/proc/self/fd"))
    with nearcall.Server(*everything(), f"shm://{key}", f"unix://{runtime_dir}/{key}.s", "tcp://127.0.0.1:0") as server:
        for url in server.urls:
            with nearcall.connect(url, Basics) as basics:
                assert basics.add_in_loop(1) == 6  # type: ignore[comparison-overlap]
                assert basics.echo(bytes(2_000_000)) == bytes(2_000_000)
    assert [path for path in runtime_dir.rglob("*") if key in path.name] == []
    assert [thread for thread in threading.enumerate() if thread not in before and "nearcall" in thread.name] == []
    del server, basics
    import gc

    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.slow
def test_stopping_lets_calls_finish(new_url: str, key: str) -> None:
    with nearcall.Server(Waiting(), new_url) as server:
        waiting = nearcall.connect(server.urls[0], Waiting)
        threads, outcomes = in_threads(
            lambda: waiting.service.hold(key), lambda: waiting.service.hold_in_loop(key + "b")
        )
        assert waiting.service.entered(key)
        assert waiting.service.entered(key + "b")
        late = nearcall.connect(server.urls[0], Waiting)
        stopper, stopped = in_threads(lambda: server.stop(grace=25))
        # From some moment on new calls are refused, and those under way go on.
        refused = False
        while not refused:
            try:
                late.service.entered(key)
            except nearcall.Unavailable:
                refused = True
        assert all(outcome is None for outcome in [*outcomes, *stopped])
        # The only way left to reach the handlers is the service itself.
        release(server, key, key + "b")
        for thread in [*threads, *stopper]:
            thread.join(25)
        assert outcomes == [key, key + "b"]
        assert stopped == [True]
        waiting.close()
        late.close()


def release(server: nearcall.Server, *keys: str) -> None:
    """Releases handlers of a Waiting in this process."""
    service: Any = next(handler.__self__ for method, handler in server._handlers if method.name == "release")
    for key in keys:
        service.release(key)


def test_stopping_without_patience(new_url: str, key: str) -> None:
    server = nearcall.Server(Waiting(), Streams(), new_url).start()
    client = nearcall.connect(server.urls[0])
    items = client.service.Streams.silent_in_loop(key)
    assert next(items) == 1
    endless = client.service.Streams.endless(key + "e")
    next(endless)
    threads, outcomes = in_threads(
        lambda: client.service.Waiting.hold(key),
        lambda: client.service.Waiting.hold_in_loop(key + "b"),
        lambda: list(items),
        lambda: sum(1 for _ in endless),
        lambda: client.service.Streams.total(iter(lambda: client.closed, True)),
    )
    with nearcall.connect(server.urls[0], Waiting) as other:
        assert other.entered(key)
        assert other.entered(key + "b")
    begun = time.monotonic()
    assert server.stop(grace=0) is False
    assert time.monotonic() - begun < QUICK
    release(server, key)
    client_closed = threading.Timer(QUICK, client.close)
    client_closed.start()
    for thread in threads:
        thread.join(25)
    client_closed.cancel()
    client.close()
    assert [type(outcome) for outcome in outcomes[:4]] == [nearcall.Unavailable] * 4


def test_stopping_twice_at_once(new_url: str, key: str) -> None:
    server = nearcall.Server(Waiting(), new_url).start()
    with nearcall.connect(server.urls[0], Waiting) as waiting:
        waiting.release(key)
        assert waiting.hold(key) == key
    threads, outcomes = in_threads(server.stop, server.stop, server.stop)
    for thread in threads:
        thread.join(25)
    assert outcomes == [True] * 3


def test_a_handler_may_stop_its_server(new_url: str) -> None:
    @nearcall.service
    class Stoppable:
        def stop(self) -> str:
            threading.Thread(target=server.stop).start()
            return "stopping"

    server = nearcall.Server(Stoppable(), new_url).start()
    with nearcall.connect(server.urls[0], Stoppable) as client:
        assert client.stop() == "stopping"
    assert server.wait(25)


def test_a_server_that_cannot_start_leaves_nothing(new_url: str, transport: str, key: str) -> None:
    if transport in SHARED:
        pytest.skip("several servers may be there")
    with nearcall.Server(Basics(), new_url) as taken:
        broken = nearcall.Server(Basics(), f"shm://{key}-free", taken.urls[0])
        with pytest.raises((nearcall.AlreadyExists, OSError)):
            broken.start()
        with nearcall.Server(Basics(), f"shm://{key}-free"):
            pass


def test_a_server_that_nobody_stops_ends_with_the_program(outside_url: str) -> None:
    code = """
import sys, nearcall
from tests.e2e.services import Basics, Streams
server = nearcall.Server(Basics(), Streams(), sys.argv[1]).start()
client = nearcall.connect(server.urls[0])
print(client.add(1), client.add_in_loop(1), next(client.count(10)))
"""
    assert run_program(code, outside_url) == ("6 6 0\n", "", 0)


@pytest.mark.slow
def test_a_client_that_nobody_closes_ends_with_the_program(url: str, transport: str) -> None:
    if transport not in OUTSIDE:
        pytest.skip("a server in this process")
    code = """
import sys, threading, nearcall
from tests.e2e.services import Waiting, Streams
client = nearcall.connect(sys.argv[1])
threading.Thread(target=client.silent_in_loop, args=("x",), daemon=True).start()
threading.Thread(target=lambda: list(client.silent_in_loop("y")), daemon=True).start()
items = client.count(10)
replies = client.endless_echo("z", iter(int, 1))
print(next(items), next(replies))
"""
    assert run_program(code, url) == ("0 0\n", "", 0)


@pytest.mark.slow
@pytest.mark.crash
def test_a_killed_server_is_noticed_by_every_caller(outside_url: str, key: str) -> None:
    with ServerProcess(outside_url) as server:
        client = nearcall.connect(server.url)
        service = client.service
        items = service.silent_in_loop(key)
        assert next(items) == 1
        calls = [
            lambda: service.hold(key),
            lambda: service.hold_in_loop(key),
            lambda: list(items),
            lambda: service.total(iter(lambda: 1, 2)),
            lambda: list(service.endless_echo(key, iter(lambda: 1, 2))),
        ]
        threads, outcomes = in_threads(*calls)
        with nearcall.connect(server.url) as other:
            assert other.entered(key)
        begun = time.monotonic()
        server.kill()
        for thread in threads:
            thread.join(25)
        assert time.monotonic() - begun < QUICK
        assert [type(outcome) for outcome in outcomes] == [nearcall.Unavailable] * len(calls)
        for outcome in outcomes:
            assert server.url in outcome.message
        with pytest.raises(nearcall.Unavailable):
            service.add(1)
        with pytest.raises(nearcall.Unavailable):
            client.ping()
        client.close()
    assert [name for name in os.listdir("/dev/shm") if "nearcall" in name] == []
    with nearcall.Server(Basics(), outside_url):
        pass


@pytest.mark.crash
def test_a_killed_client_is_forgotten(url: str, transport: str, key: str) -> None:
    """Its handlers learn of it, and others are not disturbed."""
    if transport not in OUTSIDE:
        pytest.skip("a client in this process")
    code = """
import sys, nearcall
url, key = sys.argv[1:]
streams = nearcall.connect(url).Streams
items = [streams.endless(key + "a"), streams.silent_in_loop(key + "b")]
items.append(streams.endless_echo_in_loop(key + "c", iter(int, 1)))
for each in items:
    next(each)
print("ready", flush=True)
sys.stdin.read()
"""
    with start_program(code, url, key) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        os.kill(client.pid, signal.SIGKILL)
        client.wait(20)
        client.communicate()
    with nearcall.connect(url, Streams) as streams:
        for part in "abc":
            assert streams.how_it_closed(key + part) == "closed"


@pytest.mark.slow
@pytest.mark.crash
def test_the_next_server_takes_over_from_a_killed_one(outside_url: str, outside: str, runtime_dir: Path) -> None:
    with ServerProcess(outside_url) as first:
        url = first.url
        first.kill()
    if outside not in ("tcp", "tls", "nats"):
        with pytest.raises(nearcall.Unavailable, match="died"):
            nearcall.connect(url, Basics)
    with ServerProcess(url) as second, nearcall.connect(second.url, Basics) as basics:
        assert second.url == url
        assert basics.pid() == second.pid


def test_a_living_server_keeps_its_name(outside_url: str, outside: str) -> None:
    if outside in SHARED:
        pytest.skip("several servers may be there")
    with ServerProcess(outside_url) as first:
        for _ in range(2):
            with pytest.raises(nearcall.AlreadyExists) as caught:
                nearcall.Server(Basics(), first.url).start()
            assert first.url in caught.value.message
            with nearcall.connect(first.url, Basics) as basics:
                assert basics.pid() == first.pid


@pytest.mark.slow
def test_a_death_is_told_once_to_each_who_calls(outside_url: str) -> None:
    """A call that begins when the connection is known to be lost waits for the next server, as it was asked to."""
    killed = threading.Event()

    def call() -> int:
        lost = 0
        while True:
            known = killed.is_set()
            try:
                basics.add(1)
            except nearcall.Unavailable:
                lost += 1
            else:
                if known:
                    return lost

    with ServerProcess(outside_url) as first:
        client = nearcall.connect(first.url, Basics, wait_for_ready=True, timeout=25)
        basics = client.service
        threads, outcomes = in_threads(*[call] * 6)
        basics.add(1)
        first.kill()
        killed.set()
    with ServerProcess(first.url):
        for thread in threads:
            thread.join(25)
    client.close()
    assert all(lost in (0, 1) for lost in outcomes), outcomes


def test_sigterm_ends_serve_in_good_order(outside_url: str, key: str) -> None:
    code = """
import sys, nearcall
from tests.e2e.services import Waiting
class Announcing(Waiting):
    pass
nearcall.serve(Announcing(), sys.argv[1], grace=25)
print("ended in good order")
"""
    with start_program(code, outside_url, stderr=subprocess.PIPE) as process:
        client = nearcall.connect(outside_url, Waiting, wait_for_ready=True, handshake_timeout=25)
        other = nearcall.connect(outside_url, Waiting)
        threads, outcomes = in_threads(lambda: client.service.hold(key))
        assert other.service.entered(key)
        other.service.release(key)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=40)
        for thread in threads:
            thread.join(25)
        client.close()
        other.close()
    assert (out, err, process.returncode) == ("ended in good order\n", "", 0)
    assert outcomes == [key]


SERVE = """
nearcall.serve(Announcing(), sys.argv[1], grace=1000)
print("ended in good order")
"""
STOP = """
server = nearcall.Server(Announcing(), sys.argv[1]).start()
try:
    server.wait()
except KeyboardInterrupt:
    pass
try:
    server.stop(grace=1000)
except KeyboardInterrupt:
    assert repr(server).startswith("<stopped"), server
    print("ended in good order")
"""


@pytest.mark.parametrize(
    ("program", "second"),
    [(SERVE, signal.SIGINT), (SERVE, signal.SIGTERM), (STOP, signal.SIGINT)],
    ids=["SIGINT", "SIGTERM", "stop"],
)
def test_a_second_signal_ends_the_grace(outside_url: str, key: str, program: str, second: signal.Signals) -> None:
    begin = """
import sys, nearcall
from tests.e2e.services import Waiting
class Announcing(Waiting):
    pass
"""
    with start_program(begin + program, outside_url, stderr=subprocess.PIPE) as process:
        client = nearcall.connect(outside_url, Waiting, wait_for_ready=True, handshake_timeout=25)
        other = nearcall.connect(outside_url, Waiting)
        threads, outcomes = in_threads(lambda: client.service.hold(key))
        assert other.service.entered(key)
        process.send_signal(signal.SIGINT)
        refused = False
        while not refused:  # from then on it waits
            try:
                other.service.has_entered(key)
            except nearcall.Unavailable:
                refused = True
        process.send_signal(second)
        out, err = process.communicate(timeout=20)  # of the grace, far more is left
        for thread in threads:
            thread.join(25)
        client.close()
        other.close()
    assert (out, process.returncode) == ("ended in good order\n", 0), err
    assert err.startswith(f"told again to end, the server at {outside_url} waits no longer for calls under way"), err
    assert [type(outcome) for outcome in outcomes] == [nearcall.Unavailable]


def test_half_made_connections_harm_nobody(url: str, transport: str, runtime_dir: Path) -> None:
    """Strangers that connect, say nothing or nonsense, and go."""
    if transport == "nats":
        pytest.skip("strangers there are in test_nats.py")
    if transport in ("tcp", "tls"):
        host, _, port = url.removeprefix(f"{transport}://").rpartition(":")
        address: Any = (host, int(port))
        family = socket.AF_INET
    elif transport == "inproc":
        address = f"\0nearcall/{os.getpid()}/{url.removeprefix('inproc://')}"
        family = socket.AF_UNIX
    else:
        name = url.removeprefix("shm://")
        address = url.removeprefix("unix://") if transport == "unix" else f"{runtime_dir}/nearcall/{name}.sock"
        family = socket.AF_UNIX
    strangers = []
    for words in (b"", b"NCAL", b"GET / HTTP/1.1\r\n\r\n", b"NCAL\x01\x01\x00\x00\xff\xff\xff\xff", os.urandom(200)):
        for leave in (False, True):
            stranger = socket.socket(family, socket.SOCK_STREAM)
            stranger.connect(address)
            if words:
                stranger.sendall(words)
            if leave:
                stranger.close()
            strangers.append(stranger)
    with nearcall.connect(url, Basics) as basics:
        assert basics.add(1) == 6
    for stranger in strangers:
        stranger.close()


def test_two_servers_in_one_process(runtime_dir: Path, key: str, transport: str) -> None:
    urls = [TRANSPORTS[transport](f"{key}-{number}", runtime_dir) for number in range(2)]
    with (
        nearcall.Server(Lines(), urls[0]) as first,
        nearcall.Server(Lines(), urls[1]) as second,
        nearcall.connect(first.urls[0], Lines) as one,
        nearcall.connect(second.urls[0], Lines) as two,
    ):
        one.log(key, 1)
        two.log(key, 2)
        assert (one.wait_for(key, 1), two.wait_for(key, 1)) == ([1], [2])


@pytest.mark.slow
def test_a_restarted_server_is_found_again(new_url: str, transport: str) -> None:
    with nearcall.Server(Basics(), new_url) as server:
        url = server.urls[0]
        client = nearcall.connect(url, Basics)
        assert client.service.add(1) == 6
    with pytest.raises(nearcall.Unavailable):
        client.service.add(1)
    with nearcall.Server(Basics(), url), nearcall.timeout(25):
        patient = nearcall.connect(url, Basics, wait_for_ready=True)
        assert patient.service.add(1) == 6
        patient.close()
    client.close()


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    senders = [thread for thread in threading.enumerate() if thread.name.startswith("nearcall-send")]
    for thread in senders:
        thread.join(10)
        assert not thread.is_alive(), thread.name


STARVED = """
import asyncio, nearcall

class Starved(asyncio.SelectorEventLoop):
    def add_reader(self, *arguments):
        raise OSError(24, "Too many open files")

@nearcall.service
class Looped:
    async def get(self) -> int: return 1

server = nearcall.Server(Looped(), "inproc://starved", loop_factory=Starved)
try:
    server.start()
except OSError as error:
    print(error)
with nearcall.Server(Looped(), "inproc://starved") as again, nearcall.connect("inproc://starved", Looped) as looped:
    print(looped.get())
"""


def test_a_start_that_fails_leaves_nothing() -> None:
    """No URL that is taken, and no second error at the end of the program."""
    said, complained, status = run_program(STARVED)
    assert (said, complained, status) == ("[Errno 24] Too many open files\n1\n", "", 0)


def test_a_stopped_server_keeps_no_descriptors(new_url: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    stopped = []
    for _ in range(3):
        server = nearcall.Server(Basics(), Waiting(), new_url).start()
        server.stop()
        stopped.append(server)
    assert len(os.listdir("/proc/self/fd")) <= before


def message_bytes() -> int:
    """Bytes of long messages' memory that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        places = [line.split()[0].split("-") for line in maps if "nearcall-message" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in places)


def until(condition: Callable[[], bool]) -> None:
    """As this process serves as well, another thread gives large memory back to the system."""
    end = time.monotonic() + QUICK
    while not condition():
        assert time.monotonic() < end, "it never comes to that"
        time.sleep(0.01)


def test_a_closed_client_keeps_no_memory_of_long_messages(served: Callable[[str], str]) -> None:
    """However long somebody holds it. What it was given stays as it is."""
    url, before, size = served("shm"), message_bytes(), 8 << 20
    client = nearcall.connect(url, Basics)
    view = client.service.echo_view(memoryview(b"x" * size))
    assert client.service.make(size, 1) == b"\1" * size
    assert message_bytes() >= before + 2 * size, "of both sides"
    client.close()
    until(lambda: message_bytes() < before + 2 * size)
    assert bytes(view) == b"x" * size
    del view
    gc.collect()
    until(lambda: message_bytes() == before)
    with pytest.raises(nearcall.Cancelled):
        client.service.add(1)


def test_a_client_that_is_closed_while_it_receives_keeps_none_either(served: Callable[[str], str], key: str) -> None:
    url, before, size = served("shm"), message_bytes(), 8 << 20
    channel = nearcall.Channel(url)
    basics, waiting = channel.client(Basics), channel.client(Waiting)
    assert len(basics.service.make(size, 1)) == size
    threads, outcomes = in_threads(lambda: waiting.service.hold(key))
    assert waiting.service.entered(key)
    channel.close()
    for thread in threads:
        thread.join(QUICK)
    assert isinstance(outcomes[0], nearcall.Cancelled)
    until(lambda: message_bytes() == before)
    with nearcall.connect(url, Waiting) as other:
        other.release(key)
