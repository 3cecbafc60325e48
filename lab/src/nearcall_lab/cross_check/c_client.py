"""The lab's client for raw Unix sockets and one written in C, which take turns calling the same server.

The handler does nothing, so that an error of a few microseconds shows. The two medians need not be equal: a call from
Python costs more CPU time than one from C, before it is sent and after it has come back. This CPU time must explain
what the lab measures above C.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from nearcall_lab.engine.launch import CellRun, crew_of
from nearcall_lab.registry import Entrant
from nearcall_lab.results.distribution import decode
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.workers.crew import Crew

WITHIN = 0.15
"""Share of C's median that may stay unexplained."""
_SIZE = 15
_LIMIT_S = 60.0


class NoClient(Exception):
    """The client in C cannot be built or run; the message has the reason."""


@dataclass(frozen=True)
class Seen:
    """What one client measured of one server."""

    p50_ns: float
    cpu_ns: float
    """CPU time of the client per call."""


@dataclass(frozen=True)
class Both:
    """One server, measured by both clients."""

    lab: Seen
    c: Seen

    @property
    def unexplained(self) -> float:
        """What the lab measures more than C, without the CPU time its client uses more, as a share of C's median."""
        more = self.lab.p50_ns - self.c.p50_ns
        explained = max(0.0, self.lab.cpu_ns - self.c.cpu_ns)
        return (more if more < 0 else max(0.0, more - explained)) / self.c.p50_ns


def compare(entrant: Entrant, rounds: int, calls: int, tell: Callable[[int, Both], None]) -> list[Both]:
    """A fresh server for each round; `tell` is called after each. Raises `NoClient`, and `LaunchFailed` for the lab's
    side.
    """
    cell = Cell(entrant.mechanism.name, Work(size=_SIZE), Mode(calls=calls))
    found = []
    with tempfile.TemporaryDirectory(prefix="nearcall-lab-") as directory:
        program = _compiled(Path(directory))
        for number in range(rounds):
            with crew_of([cell], entrant) as crew:
                launch = CellRun(cell, crew).run(number, number)
                assert launch.response is not None
                p50 = decode(launch.response).at_rank((launch.calls + 1) // 2)
                lab = Seen(p50, launch.client.cpu_s * 1e9 / launch.calls)
                found.append(Both(lab, _run(program, crew, calls)))
            tell(number, found[-1])
    return found


def _compiled(directory: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise NoClient("there is no C compiler on the PATH: sudo apt install gcc")
    program = directory / "echo"
    with as_file(files(__package__) / "echo.c") as source:
        done = subprocess.run([compiler, "-O2", "-o", str(program), str(source)], capture_output=True, text=True)
    if done.returncode:
        raise NoClient(f"the client in C does not compile: {done.stderr.strip()[:300]}")
    return program


def _run(program: Path, crew: Crew, calls: int) -> Seen:
    """Run the program on the CPU that the lab's client had."""
    cpus = crew.placement.client_cpus(0)
    cpu = cpus[0] if len(cpus) == 1 else -1
    command = [str(program), crew.address, str(cpu), str(_SIZE), str(calls)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NoClient(f"the client in C did not end within {_LIMIT_S:.0f} s") from None
    if done.returncode:
        raise NoClient(f"the client in C: {done.stderr.strip()[:300]}")
    p50, used = map(float, done.stdout.split())
    return Seen(p50, used)
