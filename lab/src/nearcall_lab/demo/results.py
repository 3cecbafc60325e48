"""The demo's table as plain data: the content of demo.json, and what the terminal and the README show."""

from __future__ import annotations

from dataclasses import dataclass

from nearcall_lab.analysis.compare import compare
from nearcall_lab.analysis.summary import FLOOR_SHARE, Summary, summaries
from nearcall_lab.environment import Environment
from nearcall_lab.report.sections import flags_of
from nearcall_lab.results.store import Recorded
from nearcall_lab.scenario.cell import Cell as Asked
from nearcall_lab.scenario.cell import format_size
from nearcall_lab.stats import Ratio


@dataclass
class Cell:
    """One mechanism on one kind of work."""

    n: int = 0
    """Samples of all launches."""
    p50_ns: float | None = None
    p99_ns: float | None = None
    times_faster: Ratio | None = None
    """Baseline / this, paired by launch: above 1 is faster than the baseline."""
    cpu_us: float | None = None
    """CPU time of both sides per call, microseconds."""
    times_floor: float | None = None
    """This p50 / the floor's p50."""
    problem: str = ""
    """Why there are no numbers."""


@dataclass
class Row:
    """One mechanism."""

    name: str
    label: str
    version: str
    settings: str
    typed: str
    busy_polls: bool
    problem: str
    """Why there are no numbers at all; empty if there are."""
    cells: dict[str, Cell]


@dataclass
class Report:
    """The whole table, and facts about its run that a reader needs."""

    run: str
    """Directory of the run it is taken from."""
    started: str
    launches: int
    placement: str
    baseline: str
    floor: str
    workloads: dict[str, str]
    """Heading of each column by the work's title: one client that calls as fast as it can, pinned."""
    conditions: dict[str, str]
    """The same for the first work under other conditions, under which only some mechanisms were measured."""
    environment: Environment
    red_flags: list[str]
    rows: list[Row]

    def row(self, name: str) -> Row | None:
        """The row of that name, if there is one."""
        return next((row for row in self.rows if row.name == name), None)

    def near_floor(self) -> list[str]:
        """Results of which the floor is more than a twentieth."""
        return [
            f"{row.label} ({self.workloads[title]} {1 / cell.times_floor:.0%})"
            for row in self.rows
            for title, cell in row.cells.items()
            if title in self.workloads
            if row.name != self.floor and cell.times_floor and 1 / cell.times_floor > FLOOR_SHARE
        ]


def report_of(recorded: Recorded) -> Report:
    """The table of a run. Raises `BrokenHistogram`."""
    found: dict[str, dict[str, Summary]] = {}
    workloads: dict[str, str] = {}
    conditions: dict[str, str] = {}
    for summary in summaries(recorded):
        cell = summary.result.cell
        headings = workloads if _is_plain(cell) else conditions
        headings.setdefault(cell.title(), _heading(cell))
        found.setdefault(cell.mechanism, {})[cell.title()] = summary
    info = recorded.info
    baseline, floor = found.get(info.baseline, {}), found.get(info.floor, {})
    rows = []
    for name, by_title in found.items():
        cells = {
            title: _cell(by_title[title], baseline.get(title), floor.get(title)) if title in by_title else Cell()
            for title in (*workloads, *conditions)
        }
        rows.append(_row(next(iter(by_title.values())), cells))
        assert rows[-1].name == name
    first = next(iter(workloads), "")

    def order(row: Row) -> tuple[bool, bool, float]:
        p50 = row.cells[first].p50_ns
        return row.name == info.floor, p50 is None, p50 or 0.0

    return Report(
        *(str(recorded.path), info.started, info.launches, info.placement, info.baseline, info.floor),
        *(workloads, conditions, info.environment, flags_of(recorded), sorted(rows, key=order)),
    )


def _is_plain(cell: Asked) -> bool:
    return cell.mode.kind == "closed" and cell.mode.connections == 1 and cell.placement == "apart"


def _heading(cell: Asked) -> str:
    if not _is_plain(cell):
        return cell.title().partition(", ")[2]
    return format_size(cell.work.size) if cell.work.operation == "echo" else cell.title()


def _cell(summary: Summary, baseline: Summary | None, floor: Summary | None) -> Cell:
    p50, p99, floor_p50 = (_p(s, p) for s, p in ((summary, 0.5), (summary, 0.99), (floor, 0.5)))
    found = Cell(summary.response.n if summary.response else 0, p50, p99, cpu_us=summary.cpu_us_per_call)
    if p50 is None:
        result = summary.result
        found.problem = f"only {found.n} samples" if found.n else f"{result.status}: {result.problem}".rstrip(": ")
        return found
    if baseline is not None and baseline is not summary and floor is not summary:
        found.times_faster = compare(baseline.result, summary.result, paired=True).speed
    if floor_p50:
        found.times_floor = p50 / floor_p50
    return found


def _p(summary: Summary | None, p: float) -> float | None:
    found = summary.quantiles.get(p) if summary is not None else None
    return found.value if found else None


def _row(summary: Summary, cells: dict[str, Cell]) -> Row:
    result = summary.result
    problem = "" if any(cell.p50_ns or cell.n for cell in cells.values()) else cells[result.cell.title()].problem
    return Row(
        *(result.cell.mechanism, result.label, result.version, result.settings, result.typed, result.busy_polls),
        *(problem, cells),
    )
