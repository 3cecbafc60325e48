"""The state of the machine, which a reader must know before trusting a number measured on it."""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from nearcall_lab.descriptors import allowed

OTHERS = 0.1
"""Share of the CPUs of a launch that other work may have before it counts as disturbing. The kernel's own work, which
belongs to no process, is counted as other work, too.
"""


@dataclass
class Environment:
    """The machine and its state around the run."""

    cpu: str
    cpus_usable: int
    kernel: str
    python: str
    clock: str
    clock_resolution_ns: float
    governor: str
    virtual: bool
    load_1min_at_start: float
    steal_share: float | None = None
    """CPU time that the hypervisor gave to other guests during the run, as a share of all CPU time; None where
    unknown.
    """
    load_1min_at_end: float | None = None
    others_share: float | None = None
    """CPU time that other work used on the CPUs of the launches while they were timed, as a share of all CPU time; mean
    over launches. None where unknown, and in runs of an older lab.
    """
    descriptors: int = 0
    """Open descriptors that a process may have; 0 in runs of an older lab."""
    build: str = ""
    """How nearcall was built; empty where it is not here, and in runs of an older lab."""

    def flags(self) -> list[str]:
        """What makes this machine's numbers less trustworthy, one line each."""
        found = []
        # Not the load average at the start: it covers the minute before, and so the lab's own last command.
        if self.others_share is not None and self.others_share > OTHERS:
            found.append(f"other work was running: it had {self.others_share:.0%} of the CPU time of the launches")
        if self.steal_share is not None and self.steal_share > 0.01:
            found.append(f"the hypervisor took {self.steal_share:.1%} of the CPU time")
        if self.cpus_usable < 2:
            found.append("one CPU only: client and server take turns")
        if self.virtual:
            found.append("virtual machine: waking a process on another CPU costs several times what it does on metal")
        if self.governor not in ("", "performance"):
            found.append(f"CPU frequency governor is {self.governor!r}, not 'performance'")
        return found


def _first(path: str, prefix: str = "") -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(prefix):
                return line[len(prefix) :].strip(" \t:")
    except OSError:
        pass
    return ""


def cpu_ticks() -> tuple[int, int]:
    """Stolen and total CPU ticks since boot; zeros where the kernel does not report them."""
    try:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0, 0
    return fields[7], sum(fields)


@dataclass(frozen=True)
class CpuTimes:
    """How some CPUs spent their time since boot, in seconds, summed over all of them."""

    idle_s: float
    stolen_s: float


def cpu_times(cpus: Collection[int]) -> CpuTimes | None:
    """How these CPUs spent their time, in steps of 10 ms, from ``/proc/stat``: proc_stat(5). None where the kernel does
    not report it.

    Idle time is exact on kernels that stop the tick of a CPU without work. The times of CPUs with work are only sampled
    by that tick, and are not used here.
    """
    idle = stolen = 0
    left = {f"cpu{cpu}" for cpu in cpus}
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name in left:
                left.discard(name)
                idle += int(fields[3]) + int(fields[4])
                stolen += int(fields[7])
    except (OSError, ValueError, IndexError):
        return None
    a_second = os.sysconf("SC_CLK_TCK")
    return None if left else CpuTimes(idle / a_second, stolen / a_second)


def is_profiled() -> bool | None:
    """Whether nearcall was built as published wheels are, by counts of usual work; None if it is not here."""
    try:
        core = importlib.import_module("nearcall._core")
    except ImportError:
        return None
    return bool(getattr(core, "PROFILED", False))


def build_of_nearcall() -> str:
    """What measured numbers say of the build."""
    profiled = is_profiled()
    if profiled is None:
        return ""
    if profiled:
        return "with a profile, as published"
    return "without a profile: published wheels have one, and their short calls take less (make profiled)"


def capture() -> Environment:
    """Read the machine's present state."""
    clock = time.get_clock_info("perf_counter")
    info = Path("/proc/cpuinfo")
    try:
        virtual = " hypervisor" in info.read_text()
    except OSError:
        virtual = False
    return Environment(
        cpu=_first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        cpus_usable=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
        clock=clock.implementation,
        clock_resolution_ns=clock.resolution * 1e9,
        governor=_first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        virtual=virtual,
        load_1min_at_start=os.getloadavg()[0],
        descriptors=allowed(),
        build=build_of_nearcall(),
    )


def conclude(environment: Environment, ticks_before: tuple[int, int], others: Iterable[float | None]) -> None:
    """Add what is known only after the run; `others` has the share of each launch that went to other work."""
    stolen, total = (after - before for after, before in zip(cpu_ticks(), ticks_before, strict=True))
    environment.steal_share = stolen / total if total > 0 else None
    environment.load_1min_at_end = os.getloadavg()[0]
    known = [share for share in others if share is not None]
    environment.others_share = statistics.fmean(known) if known else None
