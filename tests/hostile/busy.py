"""A client with many threads in a process of its own, which echo without end; its program is :func:`main`, with
arguments ``URL THREADS SIZE``. Every tenth of a second it says how many calls were answered.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time

import nearcall

from ..e2e.warm import WarmProcess
from .services import Target

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    url, threads, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    target = nearcall.connect(url, Target, timeout=30).service
    answered = [0] * threads
    data = os.urandom(size)

    def call(number: int) -> None:
        while True:
            assert target.echo(data) == data
            answered[number] += 1

    for number in range(threads):
        threading.Thread(target=call, args=(number,), daemon=True).start()
    while True:
        print(sum(answered), flush=True)
        time.sleep(0.1)


class Busy:
    """Such a client, as a test sees it."""

    def __init__(self, url: str, threads: int, size: int) -> None:
        program = "from tests.hostile.busy import main; main()"
        self._process = WarmProcess(program, url, str(threads), str(size), stdin=subprocess.DEVNULL, text=False)
        self._last = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def calls(self) -> int:
        """How many it said were answered, by the last line that came."""
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], 0)[0]:
            line = self._process.stdout.readline()
            assert line, f"a busy client ended with {self._process.wait(10)}"
            self._last = int(line)
        return self._last

    def wait_for_calls(self, number: int, seconds: float = 10.0) -> None:
        """Until so many were answered; AssertionError if they are not in time."""
        end = time.monotonic() + seconds
        while self.calls() < number:
            assert time.monotonic() < end, f"a busy client has {self.calls()} of {number} calls after {seconds:g} s"
            time.sleep(0.005)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
