"""For how long the machine let nobody run, as the tests of clients ask it."""

from __future__ import annotations

import os
import threading
from subprocess import Popen

from ..e2e.process import start_program

TICKER = """
import os, sys
from tests.hostile.victim import Ticker
os.sched_setaffinity(0, [int(sys.argv[1])])
ticker = Ticker()
ticker.start()
for line in sys.stdin:
    print(ticker.longest, flush=True)
    if line.strip() == "begin":
        ticker.longest = 0.0
"""


class Machine:
    """A process on each CPU that does nothing but tick: for how long a CPU, and not a client, let nobody run.

    A hypervisor may stop one CPU and not the others; who waits for that one waits as long.
    """

    def __init__(self) -> None:
        self._processes = [start_program(TICKER, str(cpu)) for cpu in sorted(os.sched_getaffinity(0))]
        self._lock = threading.Lock()

    def _ask(self, what: str) -> float:
        with self._lock:
            return max(self._ask_one(process, what) for process in self._processes)

    @staticmethod
    def _ask_one(process: Popen[str], what: str) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        print(what, file=process.stdin, flush=True)
        return float(process.stdout.readline())

    def begin(self) -> None:
        """Forgets what was before."""
        self._ask("begin")

    def longest(self) -> float:
        """Seconds of the longest pause since then."""
        return self._ask("longest")

    def close(self) -> None:
        for process in self._processes:
            process.communicate("", timeout=20)
