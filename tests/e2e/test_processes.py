"""Servers and clients in programs that make processes of their own: by fork, by multiprocessing, by a C library."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .conftest import SHARED
from .mortal import SERVICES, Mortal, going
from .process import ServerProcess, run_program, serve_encrypted, start_program
from .test_workers import until
from .workers_program import is_alive

PATIENCE = 25.0
METHODS = ("fork", "spawn", "forkserver")


# As gunicorn and its like: the master makes the server and binds, and each of its children serves.
PRE_FORK = """
import os, signal, sys
import nearcall
from tests.e2e.mortal import served

server = nearcall.Server(*served(), sys.argv[1]).bind()
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        server.start()
        os.write(1, b"serving\\n")
        signal.sigwait([signal.SIGTERM])
        os._exit(0 if server.stop() else 1)
    children.append(pid)
os.write(1, f"{server.urls[0]}\\n".encode())  # whole, whoever else is writing
sys.stdin.read()
for pid in children:
    os.kill(pid, signal.SIGTERM)
print([os.waitpid(pid, 0)[1] for pid in children], flush=True)
server.stop()
"""


@pytest.mark.crash
def test_a_pre_fork_program(outside_url: str) -> None:
    with start_program(PRE_FORK, outside_url, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(4)]
        assert lines.count("serving") == 3, process.communicate()
        url = next(line for line in lines if line != "serving")
        connected = [nearcall.connect(url, Mortal) for _ in range(6)]
        pids = [client.service.pid() for client in connected]
        assert process.pid not in pids
        # One child dies: only its own clients notice, and find another.
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: not is_alive(pids[0]), "its end")
        for client, pid in zip(connected, pids, strict=True):
            if pid == pids[0]:
                until(lambda client=client: _pid_or_none(client) not in (None, pids[0]), "another child")  # type: ignore[misc]
            else:
                assert client.service.pid() == pid
        if not url.startswith("nats"):
            with pytest.raises(nearcall.AlreadyExists):
                nearcall.Server(Mortal(), url).start()
        for client in connected:
            client.close()
        out, err = process.communicate("", timeout=40)
        assert process.returncode == 0, err
        assert out.strip() in {str([9 if n == dead else 0 for n in range(3)]) for dead in range(3)}
    with nearcall.Server(Mortal(), url):  # nothing is left behind
        pass


def _pid_or_none(client: nearcall.Client[Mortal]) -> int | None:
    try:
        return client.service.pid()
    except nearcall.Unavailable:
        return None


def test_bound_and_not_yet_serving(new_url: str) -> None:
    server = nearcall.Server(Mortal(), new_url)
    assert server.bind() is server
    assert server.bind() is server
    found: list[int] = []

    def call() -> None:
        with nearcall.connect(server.urls[0], Mortal, handshake_timeout=PATIENCE) as mortal:
            found.append(mortal.pid())

    caller = threading.Thread(target=call)
    caller.start()
    server.start()
    caller.join(PATIENCE)
    assert found == [os.getpid()]
    server.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        server.bind()


def test_bound_and_stopped(new_url: str, transport: str) -> None:
    if transport in SHARED:
        pytest.skip("several servers may be there")
    server = nearcall.Server(Mortal(), new_url).bind()
    url = server.urls[0]
    with pytest.raises((nearcall.AlreadyExists, OSError)):
        nearcall.Server(Mortal(), url).bind()
    assert server.stop() is True
    with nearcall.Server(Mortal(), url):
        pass


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_inherits_a_bound_server_leaves_it_alone(new_url: str) -> None:
    server = nearcall.Server(Mortal(), new_url).bind()
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with server, nearcall.connect(server.urls[0], Mortal) as mortal:
        assert mortal.pid() == os.getpid()


def test_stopping_twice_at_once_keeps_the_grace(new_url: str, key: str) -> None:
    server = nearcall.Server(Mortal(), new_url).start()
    found: list[int] = []
    outcomes: list[bool] = []
    with nearcall.connect(server.urls[0], Mortal) as mortal:
        caller = threading.Thread(target=lambda: found.append(mortal.wait_for_go(key)))
        caller.start()
        assert going(f"{key} has begun").wait(20)
        stoppers = [threading.Thread(target=lambda: outcomes.append(server.stop(grace=PATIENCE))) for _ in range(3)]
        for stopper in stoppers:
            stopper.start()
        # An impatient one gives up waiting; it does not take the others' patience.
        assert server.stop(grace=0.05) is False
        going(key).set()
        for thread in [*stoppers, caller]:
            thread.join(PATIENCE)
    assert (found, outcomes) == ([os.getpid()], [True] * 3)


def _client(url: str, results: Any) -> None:
    with nearcall.connect(url, Mortal) as mortal:
        results.put((os.getpid(), mortal.pid()))


def _serve(url: str, ready: Any, end: Any) -> None:
    serve_encrypted()
    with nearcall.Server(Mortal(), url) as server:
        ready.put((os.getpid(), server.urls[0]))
        end.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing_clients(outside_url: str, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with ServerProcess(outside_url, services=SERVICES) as server, nearcall.connect(server.url, Mortal) as mortal:
        assert mortal.pid() == server.pid
        results = context.Queue()
        children = [context.Process(target=_client, args=(server.url, results)) for _ in range(2)]
        for child in children:
            child.start()
        found = [results.get(timeout=PATIENCE) for _ in children]
        for child in children:
            child.join(PATIENCE)
            assert child.exitcode == 0
        assert sorted(found) == sorted((child.pid, server.pid) for child in children)
        assert mortal.pid() == server.pid


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing_servers(outside_url: str, key: str, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    ready, end = context.Queue(), context.Event()
    # The parent serves, too: what the child inherits by fork must not disturb either.
    with nearcall.Server(Mortal(), f"inproc://{key}"), nearcall.connect(f"inproc://{key}", Mortal) as own:
        assert own.pid() == os.getpid()
        child = context.Process(target=_serve, args=(outside_url, ready, end))
        child.start()
        pid, url = ready.get(timeout=PATIENCE)
        with nearcall.connect(url, Mortal) as mortal:
            assert mortal.pid() == pid == child.pid
            assert own.pid() == os.getpid()
        end.set()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert own.pid() == os.getpid()


# The system may give a signal to any thread; Python's handler still runs in the main one, which sleeps.
SIGNAL_ELSEWHERE = """
import signal, sys
import nearcall
from tests.e2e.mortal import Mortal
from tests.e2e.process import serve_encrypted

serve_encrypted()

def ready(server):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    print("serving", flush=True)

nearcall.serve(Mortal(), sys.argv[1], on_ready=ready)
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_another_thread_gets_ends_a_server(outside_url: str, number: signal.Signals) -> None:
    with start_program(SIGNAL_ELSEWHERE, outside_url, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n"
            process.send_signal(number)
            assert process.communicate(timeout=PATIENCE) == ("ended\n", "")
        finally:
            process.kill()
    assert process.returncode == 0


# What a signal's handler raises may be raised in a finalizer, and Python only writes that down.
SIGNAL_SWALLOWED = """
import os, sys
import nearcall
from tests.e2e.mortal import Mortal
from tests.e2e.process import serve_encrypted

serve_encrypted()

class Last:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[2]))

def ready(server):
    print("serving", flush=True)
    Last()

nearcall.serve(Mortal(), sys.argv[1], on_ready=ready)
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_whose_exception_is_swallowed_ends_a_server(outside_url: str, number: signal.Signals) -> None:
    with start_program(SIGNAL_SWALLOWED, outside_url, str(int(number)), stderr=subprocess.PIPE) as process:
        try:
            said, complained = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "serving\nended\n")
    assert "Exception ignored" in complained


# A fork that Python does not know of: no hook of os.register_at_fork runs.
C_FORK = """
import ctypes, os, sys
import nearcall
from tests.e2e.mortal import Mortal, served

libc = ctypes.PyDLL(None)
client = nearcall.connect(sys.argv[1], Mortal)
server = nearcall.Server(*served(), sys.argv[2]).start()
inner = nearcall.connect(server.urls[0], Mortal)
assert inner.service.pid() == os.getpid()
expected = client.service.pid()
child = libc.fork()
if child == 0:
    status = 1
    try:
        assert client.service.pid() == expected
        assert inner.service.pid() == os.getppid()
        client.close()
        server.stop()
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert client.service.pid() == expected
assert inner.service.pid() == os.getpid()
with nearcall.connect(server.urls[0], Mortal) as another:
    assert another.pid() == os.getpid()
client.close()
inner.close()
server.stop()
print("fine")
"""


@pytest.mark.slow
def test_a_fork_that_python_does_not_know_of(outside: str, outside_url: str, key: str, runtime_dir: Path) -> None:
    from .conftest import TRANSPORTS

    with ServerProcess(outside_url, services=SERVICES) as server:
        inner: Callable[[str, Path], str] = TRANSPORTS[outside]
        assert run_program(C_FORK, server.url, inner(f"c{key}", runtime_dir)) == ("fine\n", "", 0)


NO_NAMES = r"""
#include <netdb.h>
#include <unistd.h>
int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints, struct addrinfo **found) {
    for (;;) pause();
}
"""


def test_a_name_server_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    source, library = tmp_path / "names.c", tmp_path / "names.so"
    source.write_text(NO_NAMES)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=40)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    code = """
import nearcall
try:
    nearcall.connect("tcp://example.org:7000", allow_plaintext=True, handshake_timeout=0.2)
except nearcall.DeadlineExceeded as error:
    print(error.message)
"""
    said, complained, status = run_program(code, LD_PRELOAD=str(library))
    assert (complained, status) == ("", 0)
    assert said.startswith("cannot connect to tcp://example.org:7000: no address for example.org came in time")
