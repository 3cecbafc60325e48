"""What process trees use, seen from outside while they run."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from nearcall_lab.results.model import Side
from nearcall_lab.workers.worker import tree


@dataclass(frozen=True)
class Snapshot:
    """Counters of one moment, by process id."""

    cpu_ns: dict[int, int]
    voluntary: dict[int, int]
    involuntary: dict[int, int]
    waited_ns: dict[int, int] = field(default_factory=dict)
    """Time for which threads were ready to run while another thread had the CPU."""


def cpu_ns(pid: int) -> int:
    """User and system time of a process, all threads, also those that have ended; exact, unlike the kernel's ticks."""
    clock = ~pid << 3 | 2  # how Linux names another process's CPU clock: clock_getcpuclockid(3)
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return 0


def wanted_ns(pid: int) -> int:
    """Time for which the threads of a process ran, or waited for a CPU that another thread had."""
    return sum(_ran_and_waited_ns(pid))


def _ran_and_waited_ns(pid: int) -> tuple[int, int]:
    """Sums over its living threads, from ``/proc/PID/task/TID/schedstat``: see the kernel's documentation of scheduler
    statistics. Zeros where the kernel does not report them.
    """
    ran = waited = 0
    with contextlib.suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "schedstat").read_text().split()
            ran, waited = ran + int(fields[0]), waited + int(fields[1])
    return ran, waited


def _status(path: Path) -> dict[str, str]:
    fields = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields


def _number(fields: dict[str, str], name: str) -> int:
    return int(fields.get(name, "0").split()[0])


def cpu_times(pids: list[int]) -> dict[int, int]:
    """`cpu_ns` of each process."""
    return {pid: cpu_ns(pid) for pid in pids}


def snapshot(pids: list[int], cpu_before: Mapping[int, int] | None = None) -> Snapshot:
    """The counters now; CPU times from `cpu_before` where they were read a moment ago.

    Switches and waiting are those of living threads.
    """
    voluntary, involuntary = {}, {}
    for pid in pids:
        voluntary[pid] = involuntary[pid] = 0
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                fields = _status(task / "status")
                voluntary[pid] += _number(fields, "voluntary_ctxt_switches")
                involuntary[pid] += _number(fields, "nonvoluntary_ctxt_switches")
    read = cpu_before or {}
    waited = {pid: _ran_and_waited_ns(pid)[1] for pid in pids}
    return Snapshot({pid: read[pid] if pid in read else cpu_ns(pid) for pid in pids}, voluntary, involuntary, waited)


def forget_peaks(pids: list[int]) -> None:
    """Reset the kernel's record of the processes' peak memory."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def side(before: Snapshot, after: Snapshot, exact: dict[int, tuple[int, int]]) -> Side:
    """What processes used between two snapshots, and what those of the second occupy now.

    `exact` has the switches of those processes that reported them themselves, including threads that have ended. A
    descendant that has ended before the second snapshot is missed.
    """
    result = Side(processes=0)
    for pid, last in after.cpu_ns.items():
        result.cpu_s += max(0, last - before.cpu_ns.get(pid, 0)) / 1e9
        result.waited_s += max(0, after.waited_ns.get(pid, 0) - before.waited_ns.get(pid, 0)) / 1e9
        seen = (
            after.voluntary[pid] - before.voluntary.get(pid, 0),
            after.involuntary[pid] - before.involuntary.get(pid, 0),
        )
        voluntary, involuntary = exact.get(pid, seen)
        result.voluntary_switches += max(0, voluntary)
        result.involuntary_switches += max(0, involuntary)
        fields = _status(Path(f"/proc/{pid}/status"))
        rollup = _status(Path(f"/proc/{pid}/smaps_rollup"))
        result.processes += 1
        result.peak_rss_kb += _number(fields, "VmHWM")
        result.pss_kb += _number(rollup, "Pss")
        result.shared_kb += _number(fields, "RssShmem")
        result.threads += _number(fields, "Threads")
        result.descriptors += descriptors(pid)
    return result


def descriptors(pid: int) -> int:
    """Open descriptors of one process; 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def traces_of_connections(root: int) -> int:
    """Number of things in a process tree that a new connection can add to, as far as the kernel shows them: sockets,
    pipes, other descriptors, and mapped shared memory.
    """
    found = 0
    for pid in tree(root):
        found += descriptors(pid)
        with contextlib.suppress(psutil.Error, OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                permissions = line.split(" ", 2)[1]
                found += permissions.endswith("s")
    return found
