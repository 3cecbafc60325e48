"""What a call costs in CPU time, and on which side."""

from __future__ import annotations

from markupsafe import Markup

from nearcall_lab.report.charts.frame import Axis, Figure, canvas, grid_x, series, text
from nearcall_lab.report.html import element
from nearcall_lab.report.model import Group, Report, Row
from nearcall_lab.report.text import cpu
from nearcall_lab.stats import format_time

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP, _BAR = 860, 210, 690, 30, 24, 15


def figures(report: Report) -> list[Figure]:
    """One for each work whose CPU time is known."""
    return [figure for group in report.groups if (figure := _figure(group))]


def _figure(group: Group) -> Figure | None:
    rows = sorted((row for row in group.rows if row.cpu_us), key=_total)
    if not rows:
        return None
    x = Axis(0, _total(rows[-1]) * 1.02 or 1.0, _LEFT, _RIGHT, log=False)
    bottom = _TOP + _STEP * len(rows)
    about = f"CPU time per call at {group.full_title}, the client's part and the server's part of each mechanism."
    legend = (
        element("rect", x=_LEFT, y=4, width=13, height=13, class_="bar client"),
        text(_LEFT + 19, 15, "client"),
        element("rect", x=_LEFT + 80, y=4, width=13, height=13, class_="bar server"),
        text(_LEFT + 99, 15, "server"),
    )
    ticks = [(tick, format_time(1e3 * tick) if tick else "0") for tick in x.ticks()]
    drawing = canvas(
        _WIDTH, bottom + 44, about,
        grid_x(x, _TOP, bottom, ticks, "user and system time of all processes, per call"),
        legend,
        [_bar(row, _TOP + _STEP * (at + 0.5), x) for at, row in enumerate(rows)],
        class_="rows",
    )  # fmt: skip
    table = [
        [row.name, cpu(_total(row)), *(cpu(side) for side in row.cpu_us or ()),
         "yes" if row.result.busy_polls else ""]
        for row in rows
    ]  # fmt: skip
    return Figure(
        group.key, group.full_title, drawing, about,
        ["mechanism", "both", "client", "server", "polls without pause"], table,
    )  # fmt: skip


def _total(row: Row) -> float:
    return sum(row.cpu_us or ())


def _bar(row: Row, y: float, x: Axis) -> Markup:
    client, server = row.cpu_us or (0.0, 0.0)
    polls = " ⟳" if row.result.busy_polls else ""
    said = f"{row.name}: {cpu(client + server)} per call, client {cpu(client)}, server {cpu(server)}"
    if polls:
        said += "; polls without pause"
    split = x(client)
    return series(
        row, said,
        text(_LEFT - 12, y + 4, row.name, "end", "label"),
        element("rect", x=_LEFT, y=y - _BAR / 2, width=split - _LEFT, height=_BAR, class_="bar client"),
        element("rect", x=split, y=y - _BAR / 2, width=x(client + server) - split, height=_BAR, class_="bar server"),
        text(x(client + server) + 8, y + 4, f"{cpu(client + server)}{polls}", class_="num"),
    )  # fmt: skip
