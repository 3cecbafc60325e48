"""A study as data: its own tables, the same tables measured here with its method, the corrected ones, and numbers that
show its flaws.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TypeVar

import msgspec

from nearcall_lab.analysis.summary import Summary, state_text, without_number
from nearcall_lab.stats import format_time, significant
from nearcall_lab.studies.replica import Findings

Value = float | str | None
Row = TypeVar("Row")


class ShownTable(msgspec.Struct):
    """One table."""

    id: str
    title: str
    columns: list[str]
    rows: dict[str, list[Value]]


class ShownFlaw(msgspec.Struct):
    """A weakness of the study, shown by numbers measured here."""

    id: str
    claim: str
    """The study's statement or procedure."""
    truth: str
    """What is wrong with the claim, in a sentence."""
    numbers: dict[str, str]
    """The numbers that show it; empty where this run does not have them."""


class StudyResult(msgspec.Struct):
    """The content of ``study.json``."""

    id: str
    title: str
    machine: str
    """The study's."""
    versions: dict[str, str]
    """The study's."""
    published: list[ShownTable]
    replicated: list[ShownTable]
    corrected: list[ShownTable]
    flaws: list[ShownFlaw]
    problems: dict[str, str]
    """The reason in one line, by row, for rows that could not run here."""
    run: str
    """Directory of the corrected tables' run, relative to this file's."""
    command: list[str]
    started: str
    seconds: float
    here: str = ""
    """The machine of the other tables, and how loaded it was; empty in studies of an older lab."""
    ended_early: str = ""
    """Why launches are missing in the corrected tables' run; empty where none is."""


class _Published(msgspec.Struct):
    title: str
    machine: str
    table: list[_PublishedTable]
    versions: dict[str, str] = {}


class _PublishedTable(msgspec.Struct):
    id: str
    title: str
    columns: list[str]
    rows: list[list[float | str]]


@dataclass(frozen=True)
class Flaw:
    """A weakness of the study."""

    id: str
    claim: str
    truth: str
    numbers: Callable[[Findings, Summaries], Mapping[str, str]]
    """Computes the numbers from the replica's findings and the corrected run; may raise `LookupError` where a row could
    not be measured.
    """

    def shown(self, findings: Findings, summaries: Summaries) -> ShownFlaw:
        """The flaw with its numbers, as far as there are any."""
        try:
            numbers = dict(self.numbers(findings, summaries))
        except LookupError:
            numbers = {}
        return ShownFlaw(self.id, self.claim, self.truth, numbers)


def rows_of(rows: Iterable[Row], show: Callable[[Row], Mapping[str, str]]) -> dict[str, str]:
    """The texts that `show` returns for each row; a row without numbers is left out, and the others remain."""
    shown: dict[str, str] = {}
    for row in rows:
        with contextlib.suppress(LookupError):
            shown |= show(row)
    return shown


@dataclass(frozen=True)
class Study:
    """The type of ``STUDY`` in a study's module."""

    id: str
    package: str
    """Import name of the folder with ``published.toml``, ``corrected.toml`` and ``replica.py``."""
    corrected: Callable[[Summaries], list[ShownTable]]
    flaws: tuple[Flaw, ...]
    elsewhere: Callable[[Summaries], list[ShownTable]] | None = None
    """The corrected tables of a second host; ``None``: the study has none."""
    replica_s: tuple[float, float] = (0.0, 0.0)
    """About how long the replica takes: the part that does not depend on the scale, and the part that does, at scale
    1.
    """

    def expected_replica_s(self, scale: float) -> float:
        """About how long the replica takes on two CPUs without other work."""
        fixed, work = self.replica_s
        return fixed + work * scale

    def published(self) -> tuple[str, str, dict[str, str], list[ShownTable]]:
        """Title, machine, versions and tables as the study gives them."""
        text = (resources.files(self.package) / "published.toml").read_bytes()
        found = msgspec.toml.decode(text, type=_Published)
        tables = [
            ShownTable(t.id, t.title, t.columns, {str(row[0]): [v or None for v in row[1:]] for row in t.rows})
            for t in found.table
        ]
        return found.title, found.machine, found.versions, tables

    def scenario(self) -> str:
        """The corrected scenario's text."""
        return (resources.files(self.package) / "corrected.toml").read_text(encoding="utf-8")


class Summaries:
    """The corrected run's cells, which can be looked up by mechanism, work and mode."""

    def __init__(self, found: list[Summary], transports: Mapping[str, str] | None = None) -> None:
        self.all = found
        self._transports = transports or {}

    def at(self, host: str) -> Summaries:
        """Those whose server was on that machine; empty: on this one."""
        return Summaries([summary for summary in self.all if summary.result.cell.host == host], self._transports)

    def where(self, **wanted: object) -> list[Summary]:
        """Cells whose mechanism, work or mode has these values, for example ``mechanism="rpyc", size=15``."""
        return [summary for summary in self.all if all(_value(summary, key) == want for key, want in wanted.items())]

    def one(self, **wanted: object) -> Summary:
        """The only such cell with numbers. Raises `LookupError`."""
        found = [summary for summary in self.where(**wanted) if summary.value is not None]
        if len(found) != 1:
            raise LookupError(f"{len(found)} cells are {wanted}")
        return found[0]

    def mechanisms(self) -> list[tuple[str, str]]:
        """Name and label of every mechanism, in the scenario's order."""
        return list(dict.fromkeys((s.result.cell.mechanism, s.result.label) for s in self.all))

    def fastest_first(self, *columns: Mapping[str, object]) -> list[tuple[str, str]]:
        """Name and label of every mechanism, by the first of these columns in which it has a number.

        Those with no numbers follow, and the floor, which is not one of the alternatives, is last.
        """

        def place(mechanism: tuple[str, str]) -> tuple[bool, int, float]:
            for at, wanted in enumerate(columns):
                for cell in self.where(mechanism=mechanism[0], **wanted):
                    floor = cell.result.family == "floor"
                    if cell.value is not None:
                        return floor, at, -cell.value if cell.metric.more_is_better else cell.value
            return any(s.result.family == "floor" for s in self.where(mechanism=mechanism[0])), len(columns), 0.0

        return sorted(self.mechanisms(), key=place)

    def table(
        self,
        id: str,
        title: str,
        columns: Mapping[str, Mapping[str, object]],
        value: Callable[[Summary], Value],
    ) -> ShownTable:
        """One row per mechanism, the fastest first; a column is a choice of cells. A cell without numbers has the
        reason.

        The first column is what carries the bytes, where that is known.
        """
        rows: dict[str, list[Value]] = {}
        for name, label in self.fastest_first(*columns.values()):
            found = [self.where(mechanism=name, **wanted) for wanted in columns.values()]
            if any(found):
                transport: list[Value] = [self._transports.get(name) or "–"] if self._transports else []
                shown = [shown_value(cells[0], value) if cells else NOT_PLANNED for cells in found]
                rows[label] = [*transport, *shown]
        return ShownTable(id, title, [*(["transport"] if self._transports else []), *columns], rows)


NOT_PLANNED = "not in the scenario"
"""The entry of a corrected table where the scenario has no cell for the mechanism and the column."""


def shown_value(summary: Summary, value: Callable[[Summary], Value]) -> Value:
    """The entry of a corrected table for a cell; never empty."""
    found = value(summary) if summary.value is not None else None
    if found is None:
        return why_no_number(summary)
    # A number that covers only a part of the calls, or of the launches, has a remark beside it.
    state = summary.result.status
    beware = f"{summary.failed.share:.1%} failed" if summary.failed.calls else "" if state == "ok" else state
    return f"{significant(found)} ({beware})" if isinstance(found, float) and beware else found


def why_no_number(summary: Summary) -> str:
    """The entry of a table for a cell without the wanted number: its state."""
    result = summary.result
    if summary.value is None:
        return without_number(summary)
    if result.status == "overloaded":
        return result.status + (f": {result.problem.partition('; ')[0]}" if result.problem else "")
    return "too few samples" if result.status == "ok" else state_text(result)


def _value(summary: Summary, key: str) -> object:
    cell = summary.result.cell
    for part in (cell, cell.work, cell.mode):
        if hasattr(part, key):
            return getattr(part, key)
    raise AttributeError(f"a cell has no {key!r}")


def quantile_us(summary: Summary, p: float) -> float | None:
    """A quantile in microseconds, where there are samples enough."""
    found = summary.quantiles.get(p)
    return found.value / 1e3 if found else None


def cpu_us(summary: Summary) -> Value:
    """CPU time of both sides per call in microseconds."""
    return summary.cpu_us_per_call or "too little to see"


def spectrum(summary: Summary) -> Value:
    """Median and 99th percentile in one cell of a table, with the unit that fits; None where there is neither."""
    p50, p99 = (summary.quantiles.get(p) for p in (0.5, 0.99))
    if p50 is None:  # without a median there are too few samples for any quantile
        return None
    return f"{format_time(p50.value)} / {format_time(p99.value) if p99 else 'too few'}"
