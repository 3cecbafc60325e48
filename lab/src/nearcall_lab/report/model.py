"""The content of a report, independent of its format: rows, grouped by work, each against the baseline of its run."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from nearcall_lab.analysis.compare import Comparison, against_baseline, compare, together
from nearcall_lab.analysis.summary import Summary, summaries
from nearcall_lab.results.distribution import BrokenHistogram
from nearcall_lab.results.model import CellResult, RunInfo
from nearcall_lab.results.store import Recorded, StoreError
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.studies.model import StudyResult

FAILED_AT_MOST = 0.001
"""Highest share of failed calls with which a mechanism is still ranked: the time of work that was not done means
nothing.
"""


@dataclass(frozen=True)
class Row:
    """One cell of one run."""

    key: str
    """Unique on the page; made of nothing but letters, digits and hyphens."""
    summary: Summary
    info: RunInfo
    source: str
    """Path of the run."""
    against: Comparison | None = None
    """Comparison with the run's baseline on the same work; None for the baseline, for the floor, and without a
    baseline.
    """

    @property
    def result(self) -> CellResult:
        """What was recorded."""
        return self.summary.result

    @property
    def cell(self) -> Cell:
        """The cell that was to be measured."""
        return self.summary.result.cell

    @property
    def name(self) -> str:
        """The mechanism's name for readers."""
        return self.result.label or self.cell.mechanism

    @property
    def is_floor(self) -> bool:
        """Whether this row is the floor, which no mechanism can beat."""
        return self.cell.mechanism == self.info.floor

    @property
    def is_baseline(self) -> bool:
        """Whether the others of its run are compared with it."""
        return self.cell.mechanism == self.info.baseline

    @property
    def competes(self) -> bool:
        """Whether it may be called the fastest: measured in full, between two processes, and the work was done."""
        apart = not self.is_floor and not self.result.same_process and not self.cell.same_process
        done = self.result.status == "ok" and self.summary.failed.share <= FAILED_AT_MOST
        return apart and done and self.summary.value is not None

    @cached_property
    def rss_kb(self) -> float | None:
        """Peak resident memory of both sides, median over launches."""
        found = [launch.client.peak_rss_kb + launch.server.peak_rss_kb for launch in self.result.launches]
        return statistics.median(found) if any(found) else None

    @property
    def n(self) -> int:
        """Samples."""
        response = self.summary.response
        return response.n if response else sum(launch.calls for launch in self.result.launches)

    @cached_property
    def mean_ns(self) -> float | None:
        """Mean response time of all samples; None for an overloaded cell, whose times are not latencies."""
        parts = [launch.response for launch in self.result.launches if launch.response is not None]
        total = sum(part.n for part in parts)
        if not total or self.result.status == "overloaded":
            return None
        return sum(part.mean * part.n for part in parts) / total

    @cached_property
    def cpu_us(self) -> tuple[float, float] | None:
        """CPU time per call of the client's and of the server's side."""
        calls = sum(launch.calls for launch in self.result.launches)
        sides = [
            1e6 * sum(getattr(launch, side).cpu_s for launch in self.result.launches) / calls if calls else 0.0
            for side in ("client", "server")
        ]
        return (sides[0], sides[1]) if any(sides) else None

    @property
    def reproduce(self) -> str:
        """The command that measures this cell again."""
        return shlex.join(["nearcall-lab", "reproduce", self.result.digest, "--run", self.source])


@dataclass(frozen=True)
class Group:
    """All mechanisms on the same work in one run."""

    key: str
    info: RunInfo
    rows: list[Row]
    several: bool = False
    """The page has several runs, so that a title must say which."""
    ahead: Comparison | None = None
    """Comparison of the best row with the next one that competes, leaving out the baseline."""

    @property
    def title(self) -> str:
        """The work in a few words."""
        return self.rows[0].cell.title()

    @property
    def full_title(self) -> str:
        """The work, and the run where there are several."""
        return f"{self.title} ({self.info.scenario})" if self.several else self.title

    @property
    def baseline(self) -> Row | None:
        """The row that others are compared with, if it has a number."""
        return next((row for row in self.rows if row.is_baseline and row.summary.value is not None), None)

    @property
    def floor(self) -> Row | None:
        """The row that cannot be beaten, if it was measured."""
        return next((row for row in self.rows if row.is_floor and row.summary.value is not None), None)

    def ranked(self) -> list[Row]:
        """The rows that compete, the best first."""
        return sorted((row for row in self.rows if row.competes), key=speed, reverse=True)

    @property
    def not_reached(self) -> str:
        """How many mechanisms have no results because the run ended early; empty if all were reached.

        The best of those that happened to come first is not known to be the best of all.
        """
        missing = sum(row.result.status == "not reached" for row in self.rows)
        return f"{missing} of {len(self.rows)} mechanisms not reached" if missing else ""

    @property
    def second(self) -> Row | None:
        """The second best of the rows that compete, leaving out the baseline, with which all are compared anyway."""
        return next((row for row in self.ranked()[1:] if not row.is_baseline), None)


@dataclass(frozen=True)
class Report:
    """Everything a report shows."""

    runs: list[Recorded]
    groups: list[Group]
    studies: list[StudyResult] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """Every cell of every run."""
        return [row for group in self.groups for row in group.rows]

    @property
    def title(self) -> str:
        """What the page is called."""
        titles = list(dict.fromkeys(recorded.info.title for recorded in self.runs))
        return "; ".join(titles) if len(titles) < 4 else f"{titles[0]}, and {len(titles) - 1} more runs"


def speed(row: Row) -> float:
    """A number that is larger for a better row; only for comparing rows of one group."""
    value = row.summary.value or 0.0
    return value if row.summary.metric.more_is_better else -value


def prepare(runs: Sequence[Recorded], studies: Sequence[StudyResult] = ()) -> Report:
    """Make the report of these runs. Raises `StoreError` where a stored distribution cannot be read."""
    groups: list[Group] = []
    for number, recorded in enumerate(runs, 1):
        try:
            found = summaries(recorded)
        except BrokenHistogram as error:
            raise StoreError(f"{recorded.path}: {error}") from None
        groups += _groups(recorded, found, f"r{number}", len(runs) > 1)
    return Report(list(runs), groups, list(studies))


def _groups(recorded: Recorded, found: Iterable[Summary], prefix: str, several: bool) -> list[Group]:
    info, source = recorded.info, str(recorded.path)
    by_work: dict[str, list[Summary]] = {}
    for summary in found:
        by_work.setdefault(msgspec.structs.replace(summary.result.cell, mechanism="").digest(), []).append(summary)
    against = against_baseline(recorded)
    groups = []
    for work, members in by_work.items():
        rows = [
            Row(f"{prefix}-{s.result.digest}", s, info, source, against.get(s.result.digest) if s.value else None)
            for s in members
        ]
        groups.append(Group(f"{prefix}-{work}", info, rows, several))
    pairs = [(group.second, group.ranked()[0]) for group in groups if group.second is not None]
    ahead = together([compare(second.result, best.result, paired=True) for second, best in pairs if second])
    found_ahead = {comparison.candidate.digest: comparison for comparison in ahead}
    return [replace(g, ahead=found_ahead.get(g.ranked()[0].result.digest)) if g.ranked() else g for g in groups]


def command_text(info: RunInfo) -> str:
    """The command of a run as a shell takes it."""
    return shlex.join(info.command)
