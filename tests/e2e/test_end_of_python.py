"""The interpreter ends while threads wait in nearcall: the program ends as if they did not."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import nearcall

PATIENCE = 25.0

pytestmark = pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])


@nearcall.service
class Slow:
    def __init__(self) -> None:
        self._topic = nearcall.Topic[int]()

    def numbers(self) -> Iterator[int]:
        return self._topic.subscribe()

    def wait(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds


SLOW = """
import ctypes, sys, threading, time
from collections.abc import Iterator
import nearcall

@nearcall.service
class Slow:
    def numbers(self) -> Iterator[int]: ...
    def wait(self, seconds: float) -> float: ...

slow = nearcall.connect(sys.argv[1], Slow)
"""

WAITING = (
    SLOW
    + """
library = ctypes.CDLL(None)
library.__cxa_atexit(library.getchar, None, None)  # ends when its input does

for wait in [lambda: next(slow.numbers()), lambda: slow.wait(3.0), lambda: slow.wait(0.3)]:
    threading.Thread(target=wait, daemon=True).start()
time.sleep(0.1)
print("ends", flush=True)
"""
)

LAST = (
    SLOW
    + """
class Last:
    def __init__(self):
        self.wait, self.print = slow.wait, print

    def __del__(self):
        self.print(self.wait(0.3), sys.is_finalizing(), flush=True)

last = Last()
"""
)


@pytest.fixture
def url(new_url: str) -> Iterator[str]:
    with nearcall.Server(Slow(), new_url, introspection=False) as server:
        yield server.urls[0]


def run(source: str, url: str) -> tuple[bytes, bytes, int]:
    with subprocess.Popen(
        [sys.executable, "-c", source, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(2)  # it ended by itself, by a signal
        said, errors = program.communicate(timeout=PATIENCE)
    return said, errors, program.returncode


def test_threads_wait_when_it_ends(url: str) -> None:
    assert run(WAITING, url) == (b"ends\n", b"", 0)


def test_a_destructor_waits_when_it_ends(url: str) -> None:
    assert run(LAST, url) == (b"0.3 True\n", b"", 0)
