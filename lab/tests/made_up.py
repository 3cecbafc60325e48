"""Launches without processes, for the tests of what comes before and after them."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram

from nearcall_lab.contract import Mechanism
from nearcall_lab.engine.launch import Measure
from nearcall_lab.engine.progress import Progress
from nearcall_lab.engine.run import Engine, Options, begin, resume
from nearcall_lab.registry import Entrant
from nearcall_lab.results.model import CellResult, Latencies, Launch
from nearcall_lab.results.store import Recorded, Run, read
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import Planned, Scenario, parse
from nearcall_lab.workers.worker import LaunchFailed

FAST = Mechanism("fast", "Fast", "rpc", concurrent_calls=True, operations=("echo", "quote", "send", "count", "wait"))
SLOW = Mechanism("slow", "Slow", "rpc")
ABSENT = Mechanism("absent", "Absent", "rpc", requires=("no_such_peer",))
ON_A_LOOP = Mechanism("on-a-loop", "On a loop", "rpc", style="asyncio", concurrent_calls=True)
ENTRANTS = [
    Entrant(m, "made_up", "not installed: no_such_peer" if m is ABSENT else "", "1.0")
    for m in (FAST, SLOW, ABSENT, ON_A_LOOP)
]


def latencies(samples: Sequence[int]) -> Latencies:
    """A stored distribution of these samples, made with the library alone."""
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for sample in samples:
        histogram.record_value(int(sample))
    values = np.asarray(samples)
    return Latencies(
        histogram.encode().decode(), len(values), float(values.mean()), int(values.min()), int(values.max())
    )


def launch(number: int, median_ns: float = 1000.0, n: int = 40, position: int = 0, **more: object) -> Launch:
    """A launch whose samples lie close around a median."""
    samples = np.linspace(0.98 * median_ns, 1.02 * median_ns, n).astype(int)
    found = Launch(number, position, "2026-01-01T00:00:00+00:00", n, 1.0, response=latencies(samples.tolist()))
    for name, value in more.items():
        setattr(found, name, value)
    return found


def result(mechanism: str, medians: Sequence[float], status: str = "ok", mode: Mode | None = None) -> CellResult:
    """A cell with a launch for each of the medians."""
    cell = Cell(mechanism, Work(size=15), mode or Mode())
    return CellResult(
        cell,
        cell.digest(),
        status,
        launches=[launch(i, m, position=i) for i, m in enumerate(medians)],  # type: ignore[arg-type]
    )


class Lab:
    """Stands in for `nearcall_lab.engine.launch`: medians by mechanism, with noise from a seed."""

    def __init__(self, **medians_ns: float) -> None:
        self.medians_ns = {"fast": 1000.0, "slow": 3000.0, **{k.replace("_", "-"): v for k, v in medians_ns.items()}}
        self.made: list[tuple[str, int, int]] = []
        self.together: list[list[str]] = []
        """What was measured in each of the processes, by title."""
        self.failing: dict[str, str] = {}
        """Why, by the mechanism, or by the mechanism and the title of one of its cells."""
        self.not_starting: dict[str, str] = {}
        self.failures_left = -1
        self.before: Callable[[int], None] = lambda position: None
        self.change: Callable[[Launch], None] = lambda launch: None
        self.noise = 0.01
        self._rng = np.random.default_rng(1)

    @contextlib.contextmanager
    def fresh_processes(self, cells: Sequence[Cell], entrant: Entrant) -> Iterator[Measure]:
        if entrant.mechanism.name in self.not_starting:
            raise self._failure(self.not_starting[entrant.mechanism.name])
        titles: list[str] = []
        self.together.append(titles)

        def measure(cell: Cell, number: int, position: int) -> Launch:
            assert cell in cells
            titles.append(cell.title())
            return self.measure(cell, entrant, number, position)

        yield measure

    def measure(self, cell: Cell, entrant: Entrant, number: int, position: int) -> Launch:
        assert threading.current_thread() is threading.main_thread()
        self.before(position)
        self.made.append((cell.mechanism, number, position))
        reason = self.failing.get(cell.mechanism) or self.failing.get(f"{cell.mechanism}, {cell.title()}")
        if reason and self.failures_left:
            self.failures_left -= 1
            raise self._failure(reason)
        median = self.medians_ns[cell.mechanism] * float(self._rng.lognormal(0, self.noise))
        found = launch(number, median, position=position)
        self.change(found)
        return found

    def _failure(self, reason: str) -> LaunchFailed:
        failure = LaunchFailed(reason)
        failure.logs = Path(tempfile.mkdtemp())
        (failure.logs / "server.log").write_text("what the worker said\n")
        return failure


TWO = """
title = "Two"
baseline = "slow"
[run]
launches = 4
[[cells]]
mechanisms = ["fast", "slow"]
size = 15
"""


def scenario(text: str = TWO) -> Scenario:
    return parse("two.toml", text, ENTRANTS)


def started(directory: Path, text: str = TWO, **options: object) -> tuple[Run, tuple[Planned, ...]]:
    """A run with nothing done yet."""
    found = scenario(text)
    return begin(directory, found, Options(**options)), found.planned  # type: ignore[arg-type]


def carried_out(
    directory: Path, lab: Lab, text: str = TWO, tell: list[Progress] | None = None, **options: object
) -> Recorded:
    """A run from its beginning to its end, as it is on disk then."""
    run, planned = started(directory, text, **options)
    with run:
        Engine(run, planned, lab.fresh_processes, (tell if tell is not None else []).append).go()
    return read(directory)


def carried_on(directory: Path, lab: Lab) -> Recorded:
    """A run that was interrupted, and then carried out to its end."""
    run, planned = resume(directory, ENTRANTS)
    with run:
        Engine(run, planned, lab.fresh_processes, lambda progress: None).go()
    return read(directory)
