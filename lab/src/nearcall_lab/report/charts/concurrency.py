"""Throughput against calls under way: one small panel for each mechanism, with the ideal line."""

from __future__ import annotations

from markupsafe import Markup

from nearcall_lab.report.charts.families import Family, Member, changed, families
from nearcall_lab.report.charts.frame import Axis, Figure, around, canvas, line, path, series, short_number, text
from nearcall_lab.report.html import element, join
from nearcall_lab.report.look import mark
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import rate

_PANEL, _TALL, _ACROSS, _LEFT, _TOP, _GAP = 222, 168, 4, 54, 40, 26


def figures(report: Report) -> list[Figure]:
    """One for each work that was done with several connections, or with several calls on one."""
    found = []
    for what, prefix in (("connections", "connections"), ("outstanding", "outstanding")):
        for family in families(
            report,
            prefix,
            lambda cell, what=what: float(getattr(cell.mode, what)),  # type: ignore[misc]
            lambda cell, what=what: changed(cell, "mode", **{what: 1}),  # type: ignore[misc]
            lambda row: row.cell.mode.kind == "closed" and row.result.status == "ok" and bool(row.summary.throughput),
        ):
            found.append(_figure(family, what))
    return found


def little_limit(row: Row) -> float | None:
    """Calls per second that the row's calls under way would make at the measured response time if no slot were ever
    idle.
    """
    slots = row.cell.mode.slots
    return slots * 1e9 / row.mean_ns if row.mean_ns else None


def _figure(family: Family, what: str) -> Figure:
    members = sorted(family.members, key=lambda m: -max(row.summary.throughput or 0 for row in m.rows))
    members = [m for m in members if len(m.at) > 1]
    down = -(-len(members) // _ACROSS)
    width, height = _LEFT + _ACROSS * (_PANEL + _GAP), _TOP + down * (_TALL + 46) + 10
    at = sorted({number for member in members for number in member.at})
    values = [row.summary.throughput or 0 for member in members for row in member.rows]
    panels = []
    for index, member in enumerate(members):
        left = _LEFT + (index % _ACROSS) * (_PANEL + _GAP)
        top = _TOP + index // _ACROSS * (_TALL + 46)
        x = around(at, left, left + _PANEL - 34, 1.0)
        y = around(values, top + _TALL, top + 6, 1.6)
        panels.append(_panel(member, members, x, y, index % _ACROSS == 0, top))
    about = (
        f"Calls per second against {what}, a panel for each of {len(members)} mechanisms, with the ideal line and the "
        "line of Little's law."
    )
    legend = join(
        line((_LEFT, 12), (_LEFT + 26, 12), "curve"), text(_LEFT + 32, 16, "measured"),
        line((_LEFT + 112, 12), (_LEFT + 138, 12), "ideal"), text(_LEFT + 144, 16, "ideal: the first point × N"),
        line((_LEFT + 316, 12), (_LEFT + 342, 12), "little"),
        text(_LEFT + 348, 16, "Little: N / mean response"),
        line((_LEFT + 520, 12), (_LEFT + 546, 12), "ghost"), text(_LEFT + 552, 16, "the others"),
    )  # fmt: skip
    table = []
    for member in members:
        numbers = dict(zip(member.at, member.rows, strict=True))
        table.append([member.rows[0].name, *(rate(numbers[n].summary.throughput) if n in numbers else "–" for n in at)])
        little = (little_limit(numbers[n]) if n in numbers else None for n in at)
        table.append([f"{member.rows[0].name}, by Little", *(rate(value) for value in little)])
    head = ["calls/s at", *(f"{number:g}" for number in at)]
    drawing = canvas(width, height, about, legend, panels, class_="panels")
    return Figure(family.key, f"{family.title}, {what} × N", drawing, about, head, table)


def _panel(member: Member, all_: list[Member], x: Axis, y: Axis, first: bool, top: float) -> Markup:
    row = member.rows[0]
    grid = []
    for tick in y.ticks():
        if f"{tick:e}"[0] == "1":
            grid.append(line((x.start, y(tick)), (x.end, y(tick)), "grid"))
            if first:
                grid.append(text(x.start - 6, y(tick) + 4, short_number(tick), "end", "tick"))
    grid += [text(x(n), y.start + 15, f"{n:g}", "middle", "tick") for n in member.at]
    ghosts = [
        path([(x(n), y(r.summary.throughput or 0)) for n, r in zip(m.at, m.rows, strict=True)], "ghost")
        for m in all_
        if m is not member
    ]
    points = [(x(n), y(r.summary.throughput or 0)) for n, r in zip(member.at, member.rows, strict=True)]
    base = (member.rows[0].summary.throughput or 0) / member.at[0]
    ideal = _within([(n, base * n) for n in member.at], x, y)
    little = [(x(n), y(limit)) for n, r in zip(member.at, member.rows, strict=True) if (limit := little_limit(r))]
    said = ", ".join(f"{n:g}: {rate(r.summary.throughput)}/s" for n, r in zip(member.at, member.rows, strict=True))
    return join(
        grid,
        element("g", ghosts, aria_hidden="true"),
        series(
            row, f"{row.name}: {said}",
            text(x.start, top - 4, row.name, class_="label"),
            path(ideal, "ideal"), path(little, "little"), path(points, "curve"),
            [mark(row.result.family, px, py, 3.4) for px, py in points],
        ),
    )  # fmt: skip


def _within(line_: list[tuple[float, float]], x: Axis, y: Axis) -> list[tuple[float, float]]:
    """The ideal line up to the panel's edge: it is straight on two logarithmic axes, so its end can be computed."""
    (first, value), (last, most) = line_[0], line_[-1]
    if most > y.high:
        last, most = first * y.high / value, y.high
    return [(x(first), y(value)), (x(last), y(most))]
