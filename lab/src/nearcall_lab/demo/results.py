"""The outcome of a demo as plain data: what demo.json holds, and what the table and the page are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.environment import Environment
from nearcall_lab.registry import Entrant
from nearcall_lab.stats import Ratio, paired_ratio, quantile

FLOOR = "noop"
BASELINE = "grpcio-tcp"


@dataclass
class Cell:
    """One mechanism on one workload."""

    n: int = 0
    launches: int = 0
    p50_ns: float | None = None
    p99_ns: float | None = None
    min_ns: float | None = None
    first_call_ns: float | None = None
    """Median over launches of the very first call of this kind, before any warm-up."""
    times_faster: Ratio | None = None
    """Baseline p50 / this p50, paired by round: above 1 is faster than the baseline."""
    times_floor: float | None = None
    """This p50 / the floor's p50."""
    floor_share: float | None = None
    """The floor's part of this p50; worth a remark above 0.05."""
    launch_p50_ns: list[float] = field(default_factory=list)
    problem: str = ""


@dataclass
class Row:
    """One mechanism."""

    name: str
    label: str
    family: str
    version: str
    settings: str
    typed: str
    busy_polls: bool
    same_process: bool
    problem: str
    """Why there are no numbers; empty if there are."""
    cells: dict[str, Cell]
    left_behind: int = 0
    """Objects in /dev/shm that were still there after the processes had ended."""


@dataclass
class Report:
    """Everything there is to say about one run."""

    kind: str
    lab_version: str
    started: str
    elapsed_s: float
    rounds_planned: int
    rounds_done: int
    ended_early: str
    seed: int
    slice_s: float
    warm_s: float
    placement: str
    baseline: str
    floor: str
    workloads: dict[str, str]
    environment: Environment
    red_flags: list[str]
    rows: list[Row]

    def row(self, name: str) -> Row | None:
        """The row of that name, if there is one."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass
class Record:
    """What the run has collected for one mechanism so far."""

    entrant: Entrant
    problem: str = ""
    samples: dict[str, dict[int, NDArray[np.int64]]] = field(default_factory=dict)
    """Workload key, then round, to nanoseconds."""
    first_ns: dict[str, list[int]] = field(default_factory=dict)
    cell_problems: dict[str, str] = field(default_factory=dict)
    left_behind: int = 0

    def launch_p50(self, key: str) -> dict[int, float]:
        """Median of each round's launch."""
        return {turn: float(np.median(ns)) for turn, ns in self.samples.get(key, {}).items() if len(ns)}


def _cell(record: Record, key: str, baseline: Record | None, floor_p50: float | None, seed: int) -> Cell:
    problem = record.problem or record.cell_problems.get(key, "")
    operation = "quote" if key == "quote" else "echo"
    if operation not in record.entrant.mechanism.operations:
        problem = problem or "not part of this row"
    by_round = record.launch_p50(key)
    if problem or not by_round:
        return Cell(problem=problem or "not reached")
    pooled = np.concatenate(list(record.samples[key].values()))
    p50 = quantile(pooled, 0.5)
    cell = Cell(
        n=len(pooled),
        launches=len(by_round),
        p50_ns=p50,
        p99_ns=quantile(pooled, 0.99),
        min_ns=float(pooled.min()),
        first_call_ns=float(np.median(record.first_ns[key])),
        launch_p50_ns=list(by_round.values()),
    )
    if baseline is not None and key not in baseline.cell_problems:
        other = baseline.launch_p50(key)
        both = [turn for turn in by_round if turn in other]
        if both:
            cell.times_faster = paired_ratio([other[t] for t in both], [by_round[t] for t in both], seed)
    if floor_p50 and p50:
        cell.times_floor = p50 / floor_p50
        cell.floor_share = floor_p50 / p50
    return cell


def rows_of(records: list[Record], workloads: dict[str, str], seed: int) -> list[Row]:
    """Rows in reading order: fastest first, then what has no numbers, the floor last."""
    by_name = {record.entrant.mechanism.name: record for record in records}
    baseline, floor = by_name.get(BASELINE), by_name.get(FLOOR)
    rows = []
    for record in records:
        mechanism = record.entrant.mechanism
        cells = {}
        for key in workloads:
            floor_samples = list(floor.samples.get(key, {}).values()) if floor else []
            floor_p50 = quantile(np.concatenate(floor_samples), 0.5) if floor_samples else None
            cells[key] = _cell(record, key, baseline, floor_p50, seed)
        rows.append(
            Row(
                mechanism.name,
                mechanism.label,
                mechanism.family,
                record.entrant.version,
                mechanism.settings,
                mechanism.typed,
                mechanism.busy_polls,
                mechanism.same_process,
                record.problem,
                cells,
                record.left_behind,
            )
        )

    def order(row: Row) -> tuple[bool, bool, float]:
        first = next(iter(row.cells.values()), None)
        p50 = first.p50_ns if first else None
        return row.name == FLOOR, p50 is None, p50 or 0.0

    return sorted(rows, key=order)
