"""How time grows with the payload, and where one mechanism overtakes another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from nearcall_lab.analysis.compare import compare
from nearcall_lab.report.charts.families import Family, Member, changed, families
from nearcall_lab.report.charts.frame import Curve, Figure, around, canvas, curves, grid_x, grid_y, height_for
from nearcall_lab.report.html import element
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import metric_text
from nearcall_lab.results.metric import Metric
from nearcall_lab.scenario.cell import format_size
from nearcall_lab.stats import significant

_LEFT, _RIGHT, _WIDTH, _TOP = 76, 770, 1000, 34


@dataclass(frozen=True)
class Crossover:
    """A size at which the order of two mechanisms changes; interpolated on logarithmic axes between two measured
    sizes.
    """

    size: float
    value: float
    smaller: str
    """The mechanism that is better below that size."""
    larger: str
    """The mechanism that is better above it."""

    def sentence(self) -> str:
        """For example ``Below about 37 KB A is faster, above it B.``"""
        return f"{self.smaller} is ahead below about {about_size(self.size)}, {self.larger} above."


def about_size(size: float) -> str:
    """Two significant digits."""
    return format_size(round(float(f"{size:.1e}")))


def figures(report: Report) -> list[Figure]:
    """One for each work that was done with several sizes."""
    found = families(
        report,
        "sizes",
        lambda cell: float(cell.work.size),
        lambda cell: changed(cell, "work", size=0),
        lambda row: row.summary.value is not None and row.result.status == "ok",
    )
    return [_figure(family) for family in found]


def _figure(family: Family) -> Figure:
    members = [member for member in family.members if len(member.at) > 1]
    metric = members[0].rows[0].summary.metric
    bottom = _TOP + height_for(len(members), 430)
    sizes = sorted({size for member in members for size in member.at})
    x = around([max(size, _least(sizes)) for size in sizes], _LEFT, _RIGHT, 1.15)
    y = around((row.summary.value or 0 for member in members for row in member.rows), bottom, _TOP)
    found = [
        Curve(
            member.rows[0],
            [
                (x(max(s, _least(sizes))), y(row.summary.value or 0))
                for s, row in zip(member.at, member.rows, strict=True)
            ],
            _said(member),
        )
        for member in members
    ]
    marks = crossovers(members, family.info.baseline, family.info.floor)
    rings = [element("circle", cx=x(c.size), cy=y(c.value), r=8, class_="ring") for c in marks]
    ticks = [(max(size, _least(sizes)), format_size(int(size))) for size in sizes]
    title = f"{family.title.removeprefix('0 B ')}, rising size"
    about = f"{metric.title} against payload size, both logarithmic, one line for each of {len(members)} mechanisms."
    drawing = canvas(
        _WIDTH, bottom + 46, about,
        grid_y(y, _LEFT, _RIGHT, "time" if metric.unit == "ns" else "number", metric.title),
        grid_x(x, _TOP, bottom, ticks, "payload"),
        curves(found, _RIGHT, _TOP, bottom),
        element("g", element("title", "overtakes"), rings, aria_hidden="true") if rings else None,
    )  # fmt: skip
    by_size = [dict(zip(m.at, m.rows, strict=True)) for m in members]
    table = [
        [m.rows[0].name, *(_value(metric, row.get(size)) for size in sizes)]
        for m, row in zip(members, by_size, strict=True)
    ]
    head = ["mechanism", *(format_size(int(size)) for size in sizes)]
    return Figure(family.key, title, drawing, about, head, table, [c.sentence() for c in marks])


def _least(sizes: list[float]) -> float:
    """The value that represents zero bytes on a logarithmic axis."""
    smallest = min((size for size in sizes if size > 0), default=1.0)
    return smallest / 4 if sizes[0] == 0 else smallest


def _value(metric: Metric, row: Row | None) -> str:
    return metric_text(metric, row.summary.value if row else None)


def _said(member: Member) -> str:
    values = (
        f"{format_size(int(size))} {_value(row.summary.metric, row)}"
        for size, row in zip(member.at, member.rows, strict=True)
    )
    return f"{member.rows[0].name}: {', '.join(values)}"


def crossovers(members: list[Member], baseline: str, floor: str) -> list[Crossover]:
    """Where the best mechanism changes, and where a mechanism and the baseline change their order."""
    rivals = [m for m in members if m.name != floor and not m.rows[0].result.same_process]
    found: list[Crossover] = []
    base = next((m for m in rivals if m.name == baseline), None)
    for at, first in enumerate(rivals):
        for second in rivals[at + 1 :]:
            for crossing in _crossings(first, second):
                if base in (first, second) or _is_best(crossing, rivals):
                    found.append(crossing)
    return sorted(found, key=lambda crossing: crossing.size)


def _crossings(first: Member, second: Member) -> Iterator[Crossover]:
    a = {size: row for size, row in zip(first.at, first.rows, strict=True) if size > 0}
    b = {size: row for size, row in zip(second.at, second.rows, strict=True) if size > 0}
    sizes = sorted(a.keys() & b.keys())
    lower_wins = not first.rows[0].summary.metric.more_is_better
    for low, high in itertools.pairwise(sizes):
        a_low, a_high, b_low, b_high = (
            math.log(row.summary.value or 1.0) for row in (a[low], a[high], b[low], b[high])
        )
        before, after = a_low - b_low, a_high - b_high
        if before * after >= 0 or not all(_differ(a[size], b[size]) for size in (low, high)):
            continue
        part = before / (before - after)
        size = math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
        value = math.exp(a_low + part * (a_high - a_low))
        names = first.rows[0].name, second.rows[0].name
        better, worse = names if (before < 0) == lower_wins else names[::-1]
        yield Crossover(size, value, better, worse)


def _differ(first: Row, second: Row) -> bool:
    """Whether it is certain which of the two is faster."""
    return compare(first.result, second.result, paired=True).outcome in ("faster", "slower")


def _is_best(crossing: Crossover, rivals: list[Member]) -> bool:
    """Whether no other mechanism is better at that size."""
    more = rivals[0].rows[0].summary.metric.more_is_better
    for member in rivals:
        if member.rows[0].name in (crossing.smaller, crossing.larger):
            continue
        there = _interpolated(member, crossing.size)
        if there is not None and (there > crossing.value if more else there < crossing.value):
            return False
    return True


def _interpolated(member: Member, size: float) -> float | None:
    points = [(s, row.summary.value) for s, row in zip(member.at, member.rows, strict=True) if s > 0]
    for (low, a), (high, b) in itertools.pairwise(points):
        if low <= size <= high and a and b:
            part = math.log(size / low) / math.log(high / low)
            return math.exp(math.log(a) + part * math.log(b / a))
    return None


def per_byte(report: Report) -> dict[str, str]:
    """The time that each further kilobyte takes, by row key, from the two largest sizes of the row's mechanism."""
    found: dict[str, str] = {}
    for family in families(
        report,
        "bytes",
        lambda cell: float(cell.work.size),
        lambda cell: changed(cell, "work", size=0),
        lambda row: row.summary.value is not None and row.summary.metric.unit == "ns" and row.result.status == "ok",
    ):
        for member in family.members:
            if len(member.at) > 1 and member.at[-1] >= 10_000 and not member.rows[0].result.same_process:
                grown = (member.rows[-1].summary.value or 0) - (member.rows[-2].summary.value or 0)
                text = f"{significant(grown / (member.at[-1] - member.at[-2]) * 1e3)} ns" if grown > 0 else "–"
                found.update({row.key: text for row in member.rows})
    return found
