"""Response time against the throughput that was reached, and the knee, beyond which more load mainly means more
waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nearcall_lab.analysis.summary import CPU_FULL, SIDES
from nearcall_lab.report.charts.families import Family, Member, changed, families
from nearcall_lab.report.charts.frame import (
    Axis,
    Curve,
    Figure,
    around,
    canvas,
    curves,
    grid_x,
    grid_y,
    height_for,
    short_number,
)
from nearcall_lab.report.html import element, join
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import rate
from nearcall_lab.stats import format_time

_LEFT, _RIGHT, _WIDTH, _TOP = 76, 770, 1000, 34


@dataclass(frozen=True)
class _Place:
    row: Row
    throughput: float
    response_ns: float


def figures(report: Report) -> list[Figure]:
    """One for each work that was offered at several rates, or with several calls under way."""
    found = []
    for prefix, what in (("rate", "rate"), ("loadc", "connections"), ("loado", "outstanding")):
        kinds = ("open",) if what == "rate" else ("closed",)
        for family in families(
            report,
            prefix,
            lambda cell, what=what: float(getattr(cell.mode, what)),  # type: ignore[misc]
            lambda cell, what=what: changed(cell, "mode", **{what: 0 if what == "rate" else 1}),  # type: ignore[misc]
            lambda row, kinds=kinds: row.cell.mode.kind in kinds and bool(row.summary.throughput),  # type: ignore[misc]
        ):
            # Only in an open loop does waiting count, without which a tail says little.
            for p in (0.5, 0.99, 0.999) if what == "rate" else (0.5,):
                if figure := _figure(family, what, p):
                    found.append(figure)
    return found


def _places(member: Member, p: float) -> list[_Place]:
    found = []
    for row in member.rows:
        quantile = row.summary.quantiles.get(p)
        if quantile is not None and row.summary.throughput:
            found.append(_Place(row, row.summary.throughput, quantile.value))
    return found


def knee(places: list[tuple[float, float]]) -> int | None:
    """Index of the (throughput, response) with the highest throughput per response time.

    None for fewer than three, and where it is the last: the knee is then beyond the load that was offered.

    That ratio is called power: L. Kleinrock, "Power and Deterministic Rules of Thumb for Probabilistic Problems in
    Computer Communications", ICC 1979.
    """
    if len(places) < 3:
        return None
    best = max(range(len(places)), key=lambda at: places[at][0] / places[at][1])
    return best if best < len(places) - 1 else None


def _figure(family: Family, what: str, p: float) -> Figure | None:
    lines = {member.name: _places(member, p) for member in family.members}
    members = [member for member in family.members if len(member.rows) > 1]
    drawn = [member for member in members if lines[member.name]]
    if not drawn:
        return None
    over = {m.name: [row for row in m.rows if row.result.status == "overloaded"] for m in members}
    places = [place for member in drawn for place in lines[member.name]]
    reached = [p.throughput for p in places] + [r.summary.throughput or 0 for rows in over.values() for r in rows]
    bottom = _TOP + height_for(len(drawn))
    x = around(reached, _LEFT, _RIGHT, 1.2)
    y = around((place.response_ns for place in places), bottom, _TOP, 1.5)
    found = []
    table = []
    remarks = []
    for member in members:
        mine = lines[member.name]
        if not mine:
            remarks.append(f"{member.rows[0].name} has no point: {_states(member)}.")
            table += [_numbers(row, what, False) for row in member.rows]
            continue
        turning = knee([(place.throughput, place.response_ns) for place in mine])
        if turning is not None and (said := _limit(mine[turning].row)):
            remarks.append(said)
        extra = join(
            element("circle", cx=x(mine[turning].throughput), cy=y(mine[turning].response_ns), r=8, class_="ring")
            if turning is not None
            else None,
            [_cross(x(row.summary.throughput or 0), _TOP + 6) for row in over[member.name]],
        )
        points = [(x(place.throughput), y(place.response_ns)) for place in mine]
        found.append(Curve(member.rows[0], points, _said(member, mine, turning, over[member.name]), extra=extra))
        table += [_numbers(row, what, turning is not None and row is mine[turning].row) for row in member.rows]
    name = "median" if p == 0.5 else f"p{100 * p:g}"
    title = f"{family.title}, " + (f"rising rate: {name}" if what == "rate" else f"{what} × N")
    about = f"Response time, {name}, against calls per second reached, one line for each of {len(drawn)} mechanisms."
    drawing = canvas(
        _WIDTH, bottom + 46, about,
        grid_y(y, _LEFT, _RIGHT, "time", f"response, {name}"),
        grid_x(x, _TOP, bottom, _ticks(x), "calls per second, reached"),
        curves(found, _RIGHT, _TOP, bottom),
    )  # fmt: skip
    head = ["mechanism", what, "calls/s", "p50", "p99", "p99.9", "CPU of client", "of server", "state"]
    return Figure(
        family.key if p == 0.5 else f"{family.key}-{name.replace('.', '')}", title, drawing, about, head, table, remarks
    )


def _states(member: Member) -> str:
    over = [f"{row.cell.mode.rate:g}/s" for row in member.rows if row.result.status == "overloaded"]
    return f"overloaded at {', '.join(over)}" if over else "too few samples for a median"


def _limit(row: Row) -> str:
    """That the client was what could do no more, where it was."""
    client, server = (row.summary.cpu_share(side) for side in SIDES)
    if client < CPU_FULL or server >= CPU_FULL:
        return ""
    return (
        f"{row.name}: at its knee its client had used {client:.0%} of a CPU, and its server {server:.0%}: "
        "the server alone can do more."
    )


def _ticks(x: Axis) -> list[tuple[float, str]]:
    return [(tick, short_number(tick)) for tick in x.ticks()]


def _cross(x: float, y: float) -> Markup:
    return element("path", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", class_="over")


def _numbers(row: Row, what: str, is_knee: bool) -> list[str]:
    found = [row.summary.quantiles.get(p) for p in (0.5, 0.99, 0.999)]
    state = "the knee" if is_knee else "" if row.result.status == "ok" else row.result.status
    return [
        row.name,
        f"{getattr(row.cell.mode, what):g}",
        rate(row.summary.throughput),
        *(format_time(quantile.value if quantile else None) for quantile in found),
        *(f"{row.summary.cpu_share(side):.0%}" for side in SIDES),
        state,
    ]


def _said(member: Member, places: list[_Place], turning: int | None, over: list[Row]) -> str:
    parts = [f"{rate(place.throughput)}/s {format_time(place.response_ns)}" for place in places]
    if turning is not None:
        parts.append(f"knee at {rate(places[turning].throughput)}/s")
    if over:
        parts.append(f"overloaded at {', '.join(f'{row.cell.mode.rate:g}/s' for row in over)}")
    return f"{member.rows[0].name}: {', '.join(parts)}"
