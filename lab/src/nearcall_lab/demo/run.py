"""Running the demo: rounds of fresh launches in random order, until done, out of time or interrupted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from nearcall_lab import __version__
from nearcall_lab.demo.results import BASELINE, FLOOR, Record, Report, rows_of
from nearcall_lab.environment import capture, conclude, cpu_ticks
from nearcall_lab.placement import Placement
from nearcall_lab.registry import Entrant
from nearcall_lab.workers.pair import LaunchFailed, Pair
from nearcall_lab.workloads import WORKLOADS, Workload


@dataclass(frozen=True)
class Plan:
    """How much to do."""

    rounds: int = 5
    slice_s: float = 0.1
    """Timed seconds per cell and launch."""
    warm_s: float = 0.02
    """Warm-up seconds before each cell."""
    limit_s: float = 165.0
    """No new launch starts after this many seconds."""
    seed: int = 1
    workloads: tuple[Workload, ...] = WORKLOADS


@dataclass(frozen=True)
class Progress:
    """Where the run is; sent after every cell and never while one is being timed."""

    turn: int
    mechanism: str
    workload: str
    launches_done: int
    launches_total: int
    seconds_left: float | None


Observer = Callable[[Progress], None]


class DemoRun:
    """One run. `report` can be called at any time, also after an interruption."""

    def __init__(self, entrants: list[Entrant], placement: Placement, plan: Plan, observer: Observer) -> None:
        self.plan = plan
        self.placement = placement
        self.records = [Record(entrant, entrant.problem) for entrant in entrants]
        self._observer = observer
        self._random = random.Random(plan.seed)
        self._launches = 0
        self._rounds_done = 0
        self._ended_early = ""
        self._environment = capture()
        self._ticks = cpu_ticks()
        self._started = datetime.now(timezone.utc)
        self._begin = time.monotonic()

    def run(self) -> None:
        """Do all rounds. Ctrl-C ends the run in order; what is done stays."""
        try:
            for turn in range(self.plan.rounds):
                order = [record for record in self.records if not record.problem]
                self._random.shuffle(order)
                for record in order:
                    if self._elapsed() > self.plan.limit_s:
                        self._ended_early = f"time limit of {self.plan.limit_s:.0f} s reached in round {turn + 1}"
                        return
                    self._launch(record, turn)
                self._rounds_done = turn + 1
        except KeyboardInterrupt:
            self._ended_early = "interrupted"

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _launch(self, record: Record, turn: int) -> None:
        """One fresh pair of processes through all workloads in random order."""
        operations = record.entrant.mechanism.operations
        workloads = [w for w in self.plan.workloads if w.operation in operations and w.key not in record.cell_problems]
        self._random.shuffle(workloads)
        self._tell(record, turn, "starting")
        current: Workload | None = None
        pair = Pair(record.entrant, self.placement)
        try:
            with pair:
                pair.connect()
                for current in workloads:
                    sample = pair.measure(current, self.plan.slice_s, self.plan.warm_s)
                    record.samples.setdefault(current.key, {})[turn] = sample.ns
                    record.first_ns.setdefault(current.key, []).append(sample.first_ns)
                    self._tell(record, turn, current.title)
        except LaunchFailed as failure:
            if current is None:
                record.problem = f"failed: {failure}"
            else:
                record.cell_problems[current.key] = f"failed: {failure}"
        record.left_behind = max(record.left_behind, len(pair.left_behind))
        self._launches += 1
        self._tell(record, turn, "done")

    def _tell(self, record: Record, turn: int, workload: str) -> None:
        able = sum(not r.problem for r in self.records)
        total = max(able * self.plan.rounds, self._launches)
        left = None
        if self._launches:
            left = (total - self._launches) * self._elapsed() / self._launches
            left = min(left, max(0.0, self.plan.limit_s - self._elapsed()))
        self._observer(Progress(turn + 1, record.entrant.mechanism.label, workload, self._launches, total, left))

    def report(self) -> Report:
        """What is known by now."""
        conclude(self._environment, self._ticks)
        workloads = {w.key: w.title for w in self.plan.workloads}
        return Report(
            kind="nearcall-lab demo",
            lab_version=__version__,
            started=self._started.isoformat(timespec="seconds"),
            elapsed_s=round(self._elapsed(), 1),
            rounds_planned=self.plan.rounds,
            rounds_done=self._rounds_done,
            ended_early=self._ended_early,
            seed=self.plan.seed,
            slice_s=self.plan.slice_s,
            warm_s=self.plan.warm_s,
            placement=self.placement.describe(),
            baseline=BASELINE,
            floor=FLOOR,
            workloads=workloads,
            environment=self._environment,
            red_flags=self._environment.flags(),
            rows=rows_of(self.records, workloads, self.plan.seed),
        )
