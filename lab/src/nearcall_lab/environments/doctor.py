"""Properties of this machine that make numbers untrustworthy, and how to change them."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from nearcall_lab.environment import is_profiled
from nearcall_lab.registry import Entrant

Level = Literal["fine", "note", "bad"]
"""``note``: worth knowing, and part of every number. ``bad``: numbers from here should not be published."""

LOOK_S = 1.0
_BUSY_SHARE = 0.05
"""Share of one CPU above which another process is named."""
_GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter")
_SMALL_SHM = 256 << 20
_FEW_DESCRIPTORS = 4096


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    mend: str = ""
    """What to do about it."""


class Machine:
    """Reads the kernel's files below `root`, so that tests can show it another machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str:
        """A file's content without the space around it; empty where there is none."""
        try:
            return (self.root / path).read_text().strip()
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """A file's content as a number; None where there is none."""
        text = self.text(path)
        return int(text) if text.lstrip("-").isdigit() else None

    def cpus(self) -> list[int]:
        """CPUs this process may use."""
        return sorted(os.sched_getaffinity(0))

    def others(self) -> list[psutil.Process]:
        """The processes beside this one and its parent."""
        own = {os.getpid(), os.getppid()}
        return [process for process in psutil.process_iter() if process.pid not in own]


def cpus(machine: Machine) -> Iterator[Finding]:
    usable = machine.cpus()
    siblings = {machine.text(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in usable}
    if len(usable) < 2:
        yield Finding(
            "bad", "one CPU only: client and server take turns", "allow a second one (taskset, cpuset, docker)"
        )
    elif len(siblings) < 2:
        mend = "switch SMT off, or allow CPUs of a second core: echo off | sudo tee /sys/devices/system/cpu/smt/control"
        yield Finding("bad", "all usable CPUs are hardware threads of one core: client and server share it", mend)
    else:
        yield Finding("fine", f"{len(usable)} CPUs usable, {len(siblings)} cores")
    if machine.text("sys/devices/system/cpu/smt/active") == "1" and len(siblings) >= 2:
        yield Finding("note", "SMT is on: client and server get cores of their own, other processes may share them")


def frequency(machine: Machine) -> Iterator[Finding]:
    governor = machine.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        mend = "sudo cpupower frequency-set -g performance"
        yield Finding("bad", f"CPU frequency governor is {governor}: a CPU that waits slows down", mend)
    elif governor:
        yield Finding("fine", "CPU frequency governor is performance")
    else:
        yield Finding("note", "CPU frequency is not visible here, as in most virtual machines")
    if machine.text("sys/devices/system/cpu/intel_pstate/no_turbo") == "0":
        mend = "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
        yield Finding("note", "turbo is on: speed depends on temperature and on what other cores do", mend)
    elif machine.text("sys/devices/system/cpu/cpufreq/boost") == "1":
        mend = "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost"
        yield Finding("note", "boost is on: speed depends on temperature and on what other cores do", mend)
    throttled = machine.number("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count")
    if throttled:
        yield Finding("note", f"the CPU was throttled for heat {throttled} times since it was started", "let it cool")
    supplies = machine.root / "sys/class/power_supply"
    plugged = [machine.text(f"sys/class/power_supply/{s.name}/online") for s in supplies.glob("*")]
    if "0" in plugged and "1" not in plugged:
        yield Finding("bad", "running on battery", "plug it in")


def virtual(machine: Machine) -> Iterator[Finding]:
    if " hypervisor" in machine.text("proc/cpuinfo"):
        yield Finding(
            "note",
            "virtual machine: waking a process on another CPU costs several times what it does on metal",
            "trust ratios taken in one run, not absolute times",
        )


def clock(machine: Machine) -> Iterator[Finding]:
    folder = "sys/devices/system/clocksource/clocksource0"
    source = machine.text(f"{folder}/current_clocksource")
    cost = _clock_cost_ns()
    if source and source not in _GOOD_CLOCKS and not source.startswith("hyperv"):
        there = [name for name in machine.text(f"{folder}/available_clocksource").split() if name in _GOOD_CLOCKS]
        mend = f"echo {there[0]} | sudo tee /{folder}/current_clocksource" if there else ""
        yield Finding("bad", f"clock source is {source}, a slow one: reading it takes {cost:.0f} ns", mend)
    elif cost > 250:
        yield Finding("bad", f"reading the clock takes {cost:.0f} ns: it goes through the kernel")
    else:
        yield Finding("fine", f"clock source is {source or 'unknown'}, read in {cost:.0f} ns")


def _clock_cost_ns() -> float:
    read = time.perf_counter_ns
    best = float("inf")
    for _ in range(20):
        begin = read()
        for _ in range(1000):
            read()
        best = min(best, (read() - begin) / 1000)
    return best


def limits(machine: Machine) -> Iterator[Finding]:
    path = machine.text("proc/self/cgroup").rpartition("::")[2].strip("/")
    for folder in dict.fromkeys((f"sys/fs/cgroup/{path}".rstrip("/"), "sys/fs/cgroup")):
        quota = machine.text(f"{folder}/cpu.max").split()
        if quota and quota[0].isdigit():
            share = int(quota[0]) / int(quota[1])
            needed = min(2, len(machine.cpus()))
            level: Level = "bad" if share < needed else "note"
            mend = "run it outside, or raise the limit (docker --cpus, systemd CPUQuota)"
            yield Finding(level, f"a control group allows {share:g} CPUs: beyond that processes are stopped", mend)
        memory = machine.text(f"{folder}/memory.max")
        if memory.isdigit() and int(memory) < 1 << 30:
            yield Finding("note", f"a control group allows {int(memory) >> 20} MB of memory")
    throttled = dict(
        line.split() for line in machine.text(f"sys/fs/cgroup/{path}/cpu.stat").splitlines() if len(line.split()) == 2
    ).get("nr_throttled", "0")
    if throttled != "0":
        yield Finding("bad", f"this control group was stopped {throttled} times for having used up its CPU time")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FEW_DESCRIPTORS:
        text = f"{soft} open descriptors are allowed: many connections will be refused"
        yield Finding("note", text, f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}")
    try:
        free = shutil.disk_usage(machine.root / "dev/shm").total
    except OSError:
        yield Finding("note", "there is no /dev/shm: mechanisms that keep shared memory there will fail")
    else:
        if free < _SMALL_SHM:
            text = f"/dev/shm holds {free >> 20} MB: mechanisms that keep shared memory there may fail"
            yield Finding("note", text, "docker run --shm-size=1g, or sudo mount -o remount,size=1G /dev/shm")


def memory(machine: Machine) -> Iterator[Finding]:
    fields = {}
    for line in machine.text("proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0])
    used = fields.get("SwapTotal", 0) - fields.get("SwapFree", 0)
    if used > 10_000:
        yield Finding(
            "note", f"{used >> 10} MB are swapped out: a page that comes back takes milliseconds", "sudo swapoff -a"
        )
    if 0 < fields.get("MemAvailable", 1 << 30) < 1 << 19:
        yield Finding("bad", f"{fields['MemAvailable'] >> 10} MB of memory are left", "end what needs it")


def python(machine: Machine) -> Iterator[Finding]:
    if hasattr(sys, "gettotalrefcount"):
        yield Finding("bad", "this is a debug build of Python", "use an ordinary one")
    elif "--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        text = "this Python was built without --enable-optimizations: it is some 10 to 20 % slower than most users'"
        yield Finding("note", text, "use your distribution's, or build with --enable-optimizations --with-lto")
    else:
        yield Finding("fine", f"Python {sys.version.split()[0]}, built with optimisations")
    if sys.flags.dev_mode:
        yield Finding("bad", "Python's development mode is on: everything is checked and slow", "unset PYTHONDEVMODE")
    for name in ("PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONASYNCIODEBUG", "PYTHONPROFILEIMPORTTIME", "LD_PRELOAD"):
        if value := os.environ.get(name):
            yield Finding("bad", f"{name}={value} is passed on to every measured process", f"unset {name}")
    if sys.gettrace() is not None or sys.getprofile() is not None:
        yield Finding("note", "a debugger, profiler or coverage tool runs in this process")


def builds(machine: Machine) -> Iterator[Finding]:
    import importlib.util

    spec = importlib.util.find_spec("nearcall")
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    for library in (path for folder in folders for path in Path(folder).glob("_core*.so")):
        # A message of the overflow checks, which only a build without optimisation contains.
        if b"attempt to add with overflow" in library.read_bytes():
            mend = "maturin develop --release, or make setup"
            yield Finding("bad", f"nearcall was built without optimisation ({library.name})", mend)


def profile(machine: Machine) -> Iterator[Finding]:
    if is_profiled() is False:
        yield Finding("note", "nearcall was built without a profile: it is slower than published ones", "make profiled")


def tools(machine: Machine) -> Iterator[Finding]:
    if shutil.which("strace") is None and shutil.which("perf") is None:
        text = "neither strace nor perf is here: system calls per call stay unknown"
        yield Finding("note", text, "sudo apt install strace")


def peers(entrants: Sequence[Entrant]) -> Iterator[Finding]:
    """Mechanisms that cannot run here."""
    absent: dict[str, list[str]] = {}
    for entrant in entrants:
        if entrant.problem:
            absent.setdefault(entrant.problem, []).append(entrant.mechanism.name)
    for problem, names in absent.items():
        mend = "pip install 'nearcall-lab[peers]'" if problem.startswith("not installed") else ""
        yield Finding("note", f"{', '.join(names)}: {problem}", mend)


def quiet(machine: Machine, seconds: float = LOOK_S) -> Iterator[Finding]:
    """Observes for some time which processes use the CPUs, and how much of them a hypervisor takes."""
    before = {p: _cpu_seconds(p) for p in machine.others()}
    before_ticks, begin = _ticks(machine), time.monotonic()
    time.sleep(seconds)
    length = time.monotonic() - begin
    busy = []
    for process, used in before.items():
        share = (_cpu_seconds(process) - used) / length
        if share > _BUSY_SHARE:
            busy.append((share, process))
    for share, process in sorted(busy, key=lambda item: -item[0])[:5]:
        level: Level = "bad" if share > 0.2 else "note"
        yield Finding(level, f"{_name(process)} (process {process.pid}) uses {share:.0%} of a CPU", "end it, or wait")
    ticks = _ticks(machine)
    total = ticks.total - before_ticks.total
    working = 1 - (ticks.idle - before_ticks.idle) / total if total else 0.0
    hidden = working * (os.cpu_count() or 1) - sum(share for share, _ in busy)
    if hidden > 0.2:  # processes that start and end within that time
        yield Finding("bad", f"processes that come and go use {hidden:.0%} of a CPU: a build, perhaps", "wait for them")
    elif not busy:
        yield Finding("fine", f"no other process used more than {_BUSY_SHARE:.0%} of a CPU for {length:.1f} s")
    load = machine.text("proc/loadavg").split()
    if load and float(load[0]) > 0.5 and not busy and hidden <= 0.2:
        yield Finding("note", f"load was {load[0]} over the last minute: something runs now and then")
    share = (ticks.stolen - before_ticks.stolen) / total if total else 0.0
    if share > 0.01:
        text = f"the hypervisor takes {share:.1%} of the CPU time for other guests"
        yield Finding("bad", text, "another time, or a host of your own")


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "a process"


class _Ticks(NamedTuple):
    idle: int = 0
    stolen: int = 0
    total: int = 0


def _ticks(machine: Machine) -> _Ticks:
    """CPU time of all CPUs since the start, in the kernel's ticks."""
    fields = [int(field) for field in machine.text("proc/stat").split("\n", 1)[0].split()[1:9]]
    return _Ticks(fields[3] + fields[4], fields[7], sum(fields)) if len(fields) == 8 else _Ticks()


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    *(cpus, frequency, virtual, clock, limits, memory, python, builds, profile, tools, quiet),
)


def examine(entrants: Sequence[Entrant], machine: Machine | None = None) -> list[Finding]:
    """All findings on this machine. Takes about a second, to see which processes are busy."""
    found = machine or Machine()
    return [finding for check in CHECKS for finding in check(found)] + list(peers(entrants))
