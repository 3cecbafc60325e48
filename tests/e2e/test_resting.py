"""A worker keeps the interpreter between calls over shared memory while all other threads of its process rest
(docs/measurements/0105): whoever wants the interpreter nevertheless gets it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nearcall

from .conftest import TRANSPORTS
from .warm import ROOT

PATIENCE = 30.0

PROGRAM = """
import logging
import sys
import nearcall
from tests.e2e.test_resting import Kept
logging.basicConfig(level=logging.INFO)
nearcall.serve(Kept(), *sys.argv[1:], grace=1.0, on_ready=lambda server: print(*server.urls, flush=True))
print("ended", flush=True)
"""


@nearcall.service
class Kept:
    def __init__(self) -> None:
        self._rounds = 0
        self._timer: threading.Timer | None = None

    def echo(self, data: bytes) -> bytes:
        return data

    def begin_thread(self) -> None:
        def run() -> None:
            while True:
                self._rounds += 1

        threading.Thread(target=run, daemon=True).start()

    def begin_timer(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self.begin_thread)
        self._timer.daemon = True
        self._timer.start()

    def rounds(self) -> int:
        return self._rounds

    def fork(self) -> int:
        """The status of a child that makes a server of its own and calls it."""
        child = os.fork()
        if child == 0:
            right = False
            try:
                server = nearcall.Server(Kept(), f"shm://resting-child-{os.getpid()}")
                with server, nearcall.connect(server.urls[0], Kept) as client:
                    right = all(client.echo(b"%d" % number) == b"%d" % number for number in range(300))
            finally:
                os._exit(0 if right else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def served(*urls: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A program that serves as users' programs do."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *urls]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


@pytest.fixture
def server(key: str, runtime_dir: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    with served(*(TRANSPORTS[transport](f"resting-{key}", runtime_dir) for transport in ("shm", "tcp"))) as both:
        yield both


def until(client: Kept, come: Callable[[], object]) -> None:
    """Calls without a pause until something has come."""
    end = time.monotonic() + PATIENCE
    while not come():
        assert time.monotonic() < end, "it never came"
        for _ in range(1000):
            client.echo(b"15 bytes of data")


@pytest.mark.parametrize("begin", ["thread", "timer"])
def test_a_thread_of_a_handler_goes_on(server: tuple[subprocess.Popen[str], list[str]], begin: str) -> None:
    with nearcall.connect(server[1][0], Kept) as client:
        if begin == "thread":
            client.begin_thread()
        else:
            client.begin_timer(0.05)
        until(client, client.rounds)
        before = client.rounds()
        until(client, lambda: client.rounds() > before)


def test_other_clients_are_answered(server: tuple[subprocess.Popen[str], list[str]]) -> None:
    answered: list[bytes] = []

    def call(url: str) -> None:
        with nearcall.connect(url, Kept, timeout=PATIENCE) as other:
            answered.extend(other.echo(url.encode()) for _ in range(20))

    with nearcall.connect(server[1][0], Kept) as client:
        for url in server[1]:
            answered.clear()
            other = threading.Thread(target=call, args=(url,))
            other.start()
            until(client, lambda: len(answered) == 20)
            other.join(PATIENCE)
            assert answered == [url.encode()] * 20


def test_it_ends_when_it_is_told_to(server: tuple[subprocess.Popen[str], list[str]]) -> None:
    process, urls = server
    with nearcall.connect(urls[0], Kept, timeout=PATIENCE) as client:
        client.echo(b"it is there")
        process.send_signal(signal.SIGTERM)
        with pytest.raises(nearcall.Unavailable):
            until(client, lambda: process.poll() is not None)
    assert process.communicate(timeout=PATIENCE)[0] == "ended\n"
    assert process.returncode == 0


def test_messages_for_the_operator_come_while_it_is_called(server: tuple[subprocess.Popen[str], list[str]]) -> None:
    process, urls = server
    said: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        said.extend(process.stderr)

    threading.Thread(target=read, daemon=True).start()
    host, port = urls[1].removeprefix("tcp://").split(":")
    with nearcall.connect(urls[0], Kept) as client, socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until(client, lambda: any("turned away" in line for line in said))


def test_a_forked_child_serves(server: tuple[subprocess.Popen[str], list[str]]) -> None:
    with nearcall.connect(server[1][0], Kept) as client:
        for _ in range(300):
            client.echo(b"the worker keeps the interpreter")
        assert client.fork() == 0
        assert client.echo(b"and goes on") == b"and goes on"
