"""A client whose server was replaced by one that does not answer: every call ends with its own deadline, not after
those that waited before it, and Ctrl-C and ``close`` end the wait at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import aio

from ..hostile.raw import NO_SOCKET
from ..survival.observing import stopped
from .ports import own_port
from .process import ServerProcess, start_program
from .services import Basics
from .turns import Turns

HANDSHAKE = 30.0
"""Seconds that the handshake of a client under test may take: far more than any test waits for."""
DEADLINE = 0.3
MUCH_LATER = 10.0
"""Seconds by which a call with that deadline is over on a machine that is busy, too. One handshake is longer."""


@contextmanager
def mute(url: str, runtime_dir: Path) -> Generator[list[socket.socket]]:
    """A server that lets clients come and never says a word; the sockets of those that came."""
    scheme, _, place = url.partition("://")
    if scheme == "nats":
        pytest.skip(NO_SOCKET)
    files: list[Path] = []
    if scheme in ("tcp", "tls"):
        host, _, port = place.rpartition(":")
        listener = socket.create_server((host, int(port)), backlog=64)
    else:
        path = runtime_dir / "nearcall" / f"{place}.sock" if scheme == "shm" else Path(place)
        files = [path, Path(f"{path}.lock"), path.with_suffix(".lock")]
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(64)
    came: list[socket.socket] = []
    over = threading.Event()

    def accept() -> None:
        listener.settimeout(0.05)
        while not over.is_set():
            with suppress(TimeoutError):
                came.append(listener.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield came
    finally:
        over.set()
        thread.join()
        listener.close()
        for one in came:
            one.close()
        for file in files:
            file.unlink(missing_ok=True)


@contextmanager
def replaced(outside_url: str, runtime_dir: Path, connect: Callable[[str], None]) -> Generator[list[socket.socket]]:
    """Lets ``connect`` connect to a server, which then is replaced by one that is mute."""
    with ServerProcess(outside_url) as server:
        url = server.url
        connect(url)
        server.kill()
        with mute(url, runtime_dir) as came:
            yield came


def outcomes(calls: list[Callable[[], object]]) -> list[type[BaseException] | None]:
    """How calls end that are made at the same time, each in a thread of its own."""
    ended: list[type[BaseException] | None] = [None] * len(calls)

    def run(number: int, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            ended[number] = type(error)

    threads = [threading.Thread(target=run, args=one) for one in enumerate(calls)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert time.monotonic() - begun < MUCH_LATER
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_every_thread_gives_up_at_its_own_deadline(outside_url: str, runtime_dir: Path, wait_for_ready: bool) -> None:
    clients: list[nearcall.Client[object]] = []

    def connect(url: str) -> None:
        clients.append(
            nearcall.connect(url, timeout=DEADLINE, handshake_timeout=HANDSHAKE, wait_for_ready=wait_for_ready, spin=0)
        )

    with replaced(outside_url, runtime_dir, connect) as came, closing(clients[0]) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.Basics.add(1, 2),
            lambda: client.Basics.add(1, 2),
            lambda: client.Lines.log("late", 1),
            lambda: list(client.Streams.count(3)),
            lambda: client.Streams.total(iter([1, 2])),
            lambda: list(client.Streams.scaled(iter([1.0]), 2.0)),
            client.ping,
        ]
        with suppress(nearcall.RpcError):
            client.Basics.add(1, 2)
        for _ in range(2):
            assert outcomes(calls) == [nearcall.DeadlineExceeded] * len(calls)
        # All of them waited for one connection; another one is made when nobody has waited for a while.
        assert len(came) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_every_task_gives_up_at_its_own_deadline(outside_url: str, runtime_dir: Path, wait_for_ready: bool) -> None:
    async def run(url: str, replace: Callable[[], None]) -> None:
        options = {"timeout": DEADLINE, "handshake_timeout": HANDSHAKE, "wait_for_ready": wait_for_ready}
        async with aio.connect(url, **options) as service:  # type: ignore[arg-type]
            replace()
            with suppress(nearcall.RpcError):
                await service.Basics.add(1, 2)

            async def all_of(items: AsyncIterator[object]) -> list[object]:
                return [item async for item in items]

            for _ in range(2):
                begun = time.monotonic()
                ended = await asyncio.gather(
                    *(service.Basics.add(1, 2) for _ in range(8)),
                    service.Lines.log("late", 1),
                    service.Streams.total(iter([1, 2])),
                    all_of(service.Streams.count(3)),
                    all_of(service.Streams.scaled(iter([1.0]), 2.0)),
                    return_exceptions=True,
                )
                assert time.monotonic() - begun < MUCH_LATER
                assert [type(one) for one in ended] == [nearcall.DeadlineExceeded] * 12

    with ServerProcess(outside_url) as server:
        url, stand_in = server.url, None

        def replace() -> None:
            nonlocal stand_in
            server.kill()
            stand_in = mute(url, runtime_dir)
            stand_in.__enter__()

        try:
            begun = time.monotonic()
            asyncio.run(run(url, replace))
            # No thread that still dials keeps the loop from ending.
            assert time.monotonic() - begun < 3 * MUCH_LATER
        finally:
            if stand_in is not None:
                stand_in.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("wait_for_ready", [False, True])
def test_the_first_connection_ends_with_the_block_around_it(
    outside_url: str, runtime_dir: Path, wait_for_ready: bool
) -> None:
    async def in_loop(url: str) -> None:
        with nearcall.timeout(DEADLINE), pytest.raises(nearcall.DeadlineExceeded, match="before the deadline"):
            await aio.connect(url, Basics, handshake_timeout=HANDSHAKE, wait_for_ready=wait_for_ready)

    with ServerProcess(outside_url) as server:
        url = server.url
        server.kill()
    with mute(url, runtime_dir):
        begun = time.monotonic()
        with nearcall.timeout(DEADLINE), pytest.raises(nearcall.DeadlineExceeded, match="before the deadline"):
            nearcall.connect(url, Basics, handshake_timeout=HANDSHAKE, wait_for_ready=wait_for_ready)
        asyncio.run(in_loop(url))
        assert time.monotonic() - begun < MUCH_LATER


@pytest.mark.slow
def test_a_stopped_server_is_waited_for_no_longer_than_the_deadline(outside_url: str) -> None:
    """The system accepts for it what it does not, until its queue is full."""
    with ServerProcess(outside_url) as first:
        url = first.url
        client = nearcall.connect(url, Basics, timeout=DEADLINE, handshake_timeout=HANDSHAKE)
        first.kill()
    with ServerProcess(url) as second, client as basics:
        with stopped(second.pid):
            with suppress(nearcall.RpcError):
                basics.add(1, 2)
            assert outcomes([lambda: basics.add(1, 2)] * 6) == [nearcall.DeadlineExceeded] * 6
        # The dial goes on where it was.
        with nearcall.timeout(20):
            assert basics.add(1, 2) == 3


@pytest.mark.slow
def test_who_has_time_goes_on_with_the_dial_that_others_gave_up(outside_url: str) -> None:
    with ServerProcess(outside_url) as first:
        url = first.url
        client = nearcall.connect(url, Basics, handshake_timeout=HANDSHAKE, wait_for_ready=True)
        first.kill()
    with ServerProcess(url) as second, client as basics:

        def hurried() -> None:
            with nearcall.timeout(0.1):
                basics.add(1, 2)

        patient: list[int] = []
        thread = threading.Thread(target=lambda: patient.append(basics.add(20, 22)))
        with stopped(second.pid):
            with suppress(nearcall.RpcError):
                hurried()
            thread.start()
            assert outcomes([hurried] * 4) == [nearcall.DeadlineExceeded] * 4
        thread.join(30)
        assert patient == [42]


def test_closing_ends_a_wait_and_looking_never_waits(outside_url: str, runtime_dir: Path) -> None:
    clients: list[nearcall.Client[Basics]] = []

    def connect(url: str) -> None:
        clients.append(nearcall.connect(url, Basics, handshake_timeout=HANDSHAKE, wait_for_ready=True))

    with replaced(outside_url, runtime_dir, connect) as came:
        client = clients[0]
        ended: list[BaseException] = []

        def call() -> None:
            try:
                client.service.add(1, 2)
            except nearcall.RpcError as error:
                ended.append(error)

        threads = [threading.Thread(target=call) for _ in range(4)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        while not came:
            assert not client.closed
            assert "closed" not in repr(client)
        client.close()
        for thread in threads:
            thread.join(20)
        assert len(ended) == 4
        assert {type(one) for one in ended} <= {nearcall.Cancelled, nearcall.Unavailable}
        assert client.closed
        assert "closed" in repr(client)
        assert time.monotonic() - begun < MUCH_LATER


INTERRUPTED = """
import sys, threading, nearcall
from tests.e2e.services import Basics
how, url = sys.argv[1:]
asynchronous = how.startswith("aio")
options = {"handshake_timeout": 60.0, "wait_for_ready": how.endswith("ready")}

async def run(url):
    import nearcall.aio
    async with nearcall.aio.connect(url, Basics, **options) as basics:
        await basics.add(1, 2)

try:
    if asynchronous:
        import asyncio
        asyncio.run(run(url))
    else:
        nearcall.connect(url, Basics, **options)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("how", ["connect", "connect-ready", "aio"])
def test_ctrl_c_ends_a_first_connect(outside: str, key: str, runtime_dir: Path, how: str) -> None:
    url = _free(outside, key, runtime_dir)
    with mute(url, runtime_dir) as came, start_program(INTERRUPTED, how, url) as program:
        _until(lambda: len(came) > 0)
        _interrupt(program.pid)
        begun = time.monotonic()
        assert program.wait(50) == 0
        assert time.monotonic() - begun < MUCH_LATER
        assert program.stdout is not None
        assert program.stdout.read() == "interrupted\n"


RENEWING = """
import sys, nearcall
from tests.e2e.services import Basics
client = nearcall.connect(sys.argv[1], Basics, handshake_timeout=60.0, wait_for_ready=True)
print("connected", flush=True)
sys.stdin.readline()
try:
    while True:
        try:
            client.service.add(1, 2)
        except nearcall.Unavailable:
            pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
client.close()
"""


def test_ctrl_c_ends_a_call_that_connects_anew(outside_url: str, runtime_dir: Path) -> None:
    if outside_url.startswith("nats"):
        pytest.skip(NO_SOCKET)
    with ServerProcess(outside_url) as server, start_program(RENEWING, server.url) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "connected\n"
        server.kill()
        with mute(server.url, runtime_dir) as came:
            print(file=program.stdin, flush=True)
            _until(lambda: len(came) > 0)
            _interrupt(program.pid)
            begun = time.monotonic()
            assert program.stdout.readline() == "interrupted\n"
            assert program.wait(50) == 0
            assert time.monotonic() - begun < MUCH_LATER


FORKED = """
import os, sys, threading, time, warnings, nearcall
from tests.e2e.services import Basics
warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork
client = nearcall.connect(sys.argv[1], Basics, handshake_timeout=60.0, wait_for_ready=True)
print("connected", flush=True)
sys.stdin.readline()

def call():
    while not client.closed:
        try:
            client.service.add(1, 2)
        except nearcall.RpcError:
            pass

caller = threading.Thread(target=call)
caller.start()
print("calling", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    try:
        with nearcall.timeout(0.3):
            client.service.add(1, 2)
    except nearcall.DeadlineExceeded:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
client.close()
caller.join()
"""


def test_a_child_by_fork_does_not_wait_for_its_parents_dial(outside_url: str, runtime_dir: Path) -> None:
    if outside_url.startswith("nats"):
        pytest.skip(NO_SOCKET)
    with ServerProcess(outside_url) as server, start_program(FORKED, server.url) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "connected\n"
        server.kill()
        with mute(server.url, runtime_dir) as came:
            print(file=program.stdin, flush=True)
            assert program.stdout.readline() == "calling\n"
            _until(lambda: len(came) > 0)
            print(file=program.stdin, flush=True)
            assert program.stdout.readline() == "7\n"
            assert program.wait(50) == 0
            # The child dialled by itself.
            assert len(came) == 2


def _free(transport: str, key: str, runtime_dir: Path) -> str:
    if transport in ("tcp", "tls"):
        return f"{transport}://127.0.0.1:{own_port()}"
    if transport == "nats":
        pytest.skip(NO_SOCKET)
    (runtime_dir / "nearcall").mkdir(mode=0o700, exist_ok=True)
    return f"shm://c{key}" if transport == "shm" else f"unix://{runtime_dir}/c{key}.unix"


def _interrupt(pid: int) -> None:
    # The client has connected: it waits, or is about to.
    os.kill(pid, signal.SIGINT)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)  # looking again, not what the test waits for


class CountingExecutor(ThreadPoolExecutor):
    """Counts what it is given to do."""

    given = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given += 1
        return super().submit(fn, *args, **kwargs)


@pytest.mark.slow
def test_a_call_in_the_pause_after_a_failure_needs_no_thread(outside_url: str) -> None:
    """A loop that calls again and again while nobody serves is answered at once, and costs no more than it must."""

    async def call_in_vain(basics: Any) -> str:
        try:
            await basics.echo(b"x")
        except nearcall.Unavailable as error:
            return str(error)
        raise AssertionError("somebody serves")

    async def scenario() -> None:
        executor = CountingExecutor(1)
        asyncio.get_running_loop().set_default_executor(executor)
        server = ServerProcess(outside_url)
        async with aio.connect(server.url, Basics) as basics:
            server.close()
            await call_in_vain(basics)  # waits a second for a successor
            answered = 0
            async with Turns() as turns:
                while answered < 20:
                    before = executor.given
                    if "the next attempt may be made in" in await call_in_vain(basics):
                        answered += 1
                        assert executor.given == before
            assert turns.count >= answered, "the task that calls left the others no turn"

    asyncio.run(scenario())
