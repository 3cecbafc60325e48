"""The doctor on machines that are made of files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from made_up import ENTRANTS
from nearcall_lab.environments import doctor
from nearcall_lab.environments.doctor import Finding, Machine


class FakeMachine(Machine):
    def __init__(self, root: Path, cpus: list[int]) -> None:
        super().__init__(root)
        self._cpus = cpus

    def cpus(self) -> list[int]:
        return self._cpus


class OnlyOneBeside(Machine):
    """This machine, where other tests' processes may be busier than the one that is looked for."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid

    def others(self) -> list[psutil.Process]:
        return [process for process in super().others() if process.pid == self._pid]


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., FakeMachine]:
    def make(files: dict[str, str] | None = None, cpus: list[int] | None = None) -> FakeMachine:
        for name, content in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n")
        return FakeMachine(tmp_path, cpus or [0, 1])

    return make


def _said(found: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in found]


CPU = "sys/devices/system/cpu"
CLOCK = "sys/devices/system/clocksource/clocksource0"


@pytest.mark.parametrize(
    ("check", "files", "level", "what", "mend"),
    [
        (
            doctor.frequency,
            {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"},
            "bad",
            "governor is powersave",
            "cpupower",
        ),
        (doctor.frequency, {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance"}, "fine", "is performance", ""),
        (doctor.frequency, {f"{CPU}/intel_pstate/no_turbo": "0"}, "note", "turbo is on", "no_turbo"),
        (doctor.frequency, {f"{CPU}/cpufreq/boost": "1"}, "note", "boost is on", "boost"),
        (
            doctor.frequency,
            {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "7"},
            "note",
            "throttled for heat 7",
            "",
        ),
        (doctor.frequency, {"sys/class/power_supply/AC/online": "0"}, "bad", "running on battery", "plug"),
        (doctor.cpus, {f"{CPU}/smt/active": "1"}, "note", "SMT is on", ""),
        (
            doctor.cpus,
            {f"{CPU}/cpu{n}/topology/thread_siblings_list": "0-1" for n in (0, 1)},
            "bad",
            "hardware threads of one core",
            "smt/control",
        ),
        (doctor.virtual, {"proc/cpuinfo": "flags : fpu hypervisor"}, "note", "virtual machine", "ratios"),
        (
            doctor.clock,
            {f"{CLOCK}/current_clocksource": "hpet", f"{CLOCK}/available_clocksource": "hpet tsc"},
            "bad",
            "clock source is hpet",
            "echo tsc",
        ),
        (doctor.limits, {"sys/fs/cgroup/cpu.max": "50000 100000"}, "bad", "allows 0.5 CPUs", "--cpus"),
        (doctor.limits, {"sys/fs/cgroup/cpu.max": "400000 100000"}, "note", "allows 4 CPUs", "--cpus"),
        (doctor.limits, {"sys/fs/cgroup/memory.max": "104857600"}, "note", "100 MB of memory", ""),
        (
            doctor.limits,
            {"proc/self/cgroup": "0::/box", "sys/fs/cgroup/box/cpu.stat": "usage_usec 1\nnr_throttled 3"},
            "bad",
            "was stopped 3 times",
            "",
        ),
        (doctor.limits, {}, "note", "there is no /dev/shm", ""),
        (
            doctor.memory,
            {"proc/meminfo": "SwapTotal: 999999 kB\nSwapFree: 0 kB"},
            "note",
            "976 MB are swapped out",
            "swapoff",
        ),
        (doctor.memory, {"proc/meminfo": "MemAvailable: 1024 kB"}, "bad", "1 MB of memory are left", "end"),
    ],
)
def test_what_is_wrong_is_found_and_mended(
    machine: Callable[..., FakeMachine],
    check: Callable[[Machine], Iterator[Finding]],
    files: dict[str, str],
    level: str,
    what: str,
    mend: str,
) -> None:
    found = [f for f in check(machine(files)) if what in f.what]
    assert [f.level for f in found] == [level]
    assert mend in found[0].mend


def test_one_cpu(machine: Callable[..., FakeMachine]) -> None:
    assert _said(doctor.cpus(machine(cpus=[3]))) == [("bad", "one CPU only: client and server take turns")]


def test_an_empty_machine_breaks_nothing(machine: Callable[..., FakeMachine]) -> None:
    for check in doctor.CHECKS:
        if check is not doctor.quiet:
            list(check(machine()))


def test_settings_that_slow_python_down_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONMALLOC", "debug")
    assert ("bad", "PYTHONMALLOC=debug is passed on to every measured process") in _said(doctor.python(Machine()))


def test_a_busy_process_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        machine = OnlyOneBeside(busy.pid)
        try:
            # However little of a CPU it gets beside other tests, at some time it is a part that counts.
            while not any(
                f"(process {busy.pid}) uses" in finding.what for finding in doctor.quiet(machine, seconds=0.2)
            ):
                pass
        finally:
            busy.kill()


def test_a_build_without_optimisation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nearcall").mkdir()
    (tmp_path / "nearcall" / "__init__.py").touch()
    library = tmp_path / "nearcall" / "_core.abi3.so"
    library.write_bytes(b"\x7fELF...attempt to add with overflow...")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nearcall", raising=False)
    assert [f.level for f in doctor.builds(Machine())] == ["bad"]
    library.write_bytes(b"\x7fELF")
    assert list(doctor.builds(Machine())) == []


@pytest.mark.parametrize("profiled", [True, False])
def test_a_build_without_a_profile_is_found(profiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nearcall._core", SimpleNamespace(PROFILED=profiled))
    assert [f.level for f in doctor.profile(Machine())] == ([] if profiled else ["note"])


def test_missing_peers_are_listed() -> None:
    assert _said(doctor.peers(ENTRANTS)) == [("note", "absent: not installed: no_such_peer")]
