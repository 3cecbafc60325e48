"""Counts per call, in a pass of its own: system calls and context switches of each side, and whether a side polls while
idle.

Counting slows the processes down, so nothing here is ever timed. System calls are counted by ``strace -c``, or by
``perf stat`` where there is no strace, attached to all processes of a side while the cell runs once more.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nearcall_lab.engine import usage
from nearcall_lab.engine.launch import CELL_GRACE_S, CellRun, crew_of
from nearcall_lab.load.client import Unsupported, refuse
from nearcall_lab.registry import Entrant
from nearcall_lab.results.model import Observation, Side
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.workers.worker import LaunchFailed

IDLE_S = 0.9
"""Long beside what a thread waits for a CPU of a busy machine: the kernel counts that wait when it is over."""
POLLS_ABOVE = 0.5
"""A side counts as polling if it wants a CPU for more than this share of the time while it has no calls."""
_ATTACH_LIMIT_S = 5.0
_WATCHED_S = 0.2


def observe(cell: Cell, entrant: Entrant) -> Observation:
    """Run `cell` with fresh processes and count. Where something cannot be counted it does not raise: `problem` has the
    reason.
    """
    if cell.host:
        return Observation(problem="system calls are counted where both sides are on this machine")
    try:
        refuse(cell, entrant.mechanism.operations, entrant.mechanism.concurrent_calls)
        # A short run is enough for counts; and its length must not depend on how fast it is while it is watched.
        short = msgspec.structs.replace(cell.mode, seconds=min(cell.mode.seconds, _WATCHED_S))
        cell = msgspec.structs.replace(cell, mode=short)
        with crew_of([cell], entrant) as crew:
            return _Pass(CellRun(cell, crew)).run()
    except Unsupported as reason:
        return Observation(problem=str(reason))
    except LaunchFailed as failure:
        if failure.logs is not None:
            shutil.rmtree(failure.logs, ignore_errors=True)
        return Observation(problem=f"failed: {failure}")


@dataclass
class _Pass:
    run_: CellRun

    def run(self) -> Observation:
        cell_run = self.run_
        cell_run.prepare()
        found = Observation(busy_polling=self._wants_cpu())
        found.calls, sides = self._once_more()
        found.client_switches = (sides[0].voluntary_switches + sides[0].involuntary_switches) / found.calls
        if cell_run.crew.server:
            found.server_switches = (sides[1].voluntary_switches + sides[1].involuntary_switches) / found.calls
        make = _counter()
        if make is None:
            found.problem = "system calls not counted: neither strace nor perf is here"
            return found
        with contextlib.ExitStack() as stack:
            try:
                counters = [stack.enter_context(make(side)) for side in cell_run.crew.processes() if side]
            except CannotCount as reason:
                found.problem = f"system calls not counted: {reason}"
                return found
            found.syscalls_calls, _ = self._once_more()
            counts = [counter.stop() for counter in counters]
        found.client_syscalls = counts[0] / found.syscalls_calls
        if cell_run.crew.server:
            found.server_syscalls = counts[1] / found.syscalls_calls
        return found

    def _wants_cpu(self) -> bool:
        """Whether a side wants a CPU while the connections are open and no call is made. Not whether it runs: on a busy
        machine it may get no CPU.
        """
        sides = self.run_.crew.processes()
        before, begin = [sum(map(usage.wanted_ns, side)) for side in sides], time.monotonic_ns()
        self.run_.ask_clients(lambda number: {"do": "idle", "seconds": IDLE_S}, IDLE_S + CELL_GRACE_S)
        after, length = [sum(map(usage.wanted_ns, side)) for side in sides], time.monotonic_ns() - begin
        return any((b - a) / length > POLLS_ABOVE for a, b in zip(before, after, strict=True))

    def _once_more(self) -> tuple[int, tuple[Side, Side]]:
        _, used = self.run_.go()
        self.run_.collect()
        return sum(part.rows for part in self.run_.parts), (
            used.client,
            used.server,
        )  # `collect` raises where there are none


class CannotCount(Exception):
    """No system calls can be counted here; the message has the reason."""


class Counter:
    """Counts the system calls of processes from the beginning of its block to `stop`."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids

    def __enter__(self) -> Counter:
        self._report = tempfile.NamedTemporaryFile(prefix="nearcall-lab-counts-")
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self.command(self._report.name), stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors
        )
        try:
            self._wait_until_attached()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._report.close()
        self._errors.close()

    def stop(self) -> int:
        """End the counting; returns how many there were."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_ATTACH_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise LaunchFailed("the counter of system calls does not end") from None
        return self.parse(Path(self._report.name).read_text())

    def said(self) -> str:
        """What the counting program wrote besides its report, as one line."""
        self._errors.seek(0)
        return " ".join(self._errors.read().decode(errors="replace").split())[:200]

    def _wait_until_attached(self) -> None:
        end = time.monotonic() + _ATTACH_LIMIT_S
        while not self.attached():
            if self._process.poll() is not None:
                raise CannotCount(self.said() or "the counter ended at once")
            if time.monotonic() > end:
                raise CannotCount("the counter did not attach")
            time.sleep(0.005)

    def command(self, report: str) -> list[str]:
        """The command to run; it writes its report into the file `report`."""
        raise NotImplementedError

    def attached(self) -> bool:
        """Whether it counts now."""
        raise NotImplementedError

    def parse(self, report: str) -> int:
        """The total of a report."""
        raise NotImplementedError


class Strace(Counter):
    """Exact, but slows down the processes it counts."""

    def command(self, report: str) -> list[str]:
        return ["strace", "-c", "-f", "-U", "calls,name", "-o", report, *(f"-p{pid}" for pid in self.pids)]

    def attached(self) -> bool:
        """All threads are traced, not only the one that gives the process its number."""
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    if "TracerPid:\t0\n" in (task / "status").read_text():
                        return False
        return True

    def parse(self, report: str) -> int:
        found = re.search(r"^\s*(\d+)\s+total\s*$", report, re.MULTILINE)
        return int(found[1]) if found else 0


class Perf(Counter):
    """The kernel's own count of entries, which requires that the user may read its trace points."""

    def command(self, report: str) -> list[str]:
        pids = ",".join(map(str, self.pids))
        return ["perf", "stat", "-x;", "-e", "raw_syscalls:sys_enter", "-o", report, "-p", pids]

    def attached(self) -> bool:
        """``perf`` does not report when it has attached. A short wait is enough: a few calls more or less do not matter
        among thousands.
        """
        time.sleep(0.2)
        return self._process.poll() is None

    def parse(self, report: str) -> int:
        found = re.search(r"^(\d+);", report, re.MULTILINE)
        return int(found[1]) if found else 0


def _counter() -> Callable[[list[int]], Counter] | None:
    if shutil.which("strace"):
        return Strace
    return Perf if shutil.which("perf") else None
