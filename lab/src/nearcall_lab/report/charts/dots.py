"""How much the launches of one cell differ: one dot for each."""

from __future__ import annotations

import math

from markupsafe import Markup

from nearcall_lab.report.charts.frame import Axis, Figure, canvas, grid_x, line, series, text
from nearcall_lab.report.html import element
from nearcall_lab.report.model import Group, Report, Row, speed
from nearcall_lab.report.text import metric_text, spread_text

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP = 860, 210, 720, 14, 24


def figures(report: Report) -> list[Figure]:
    """One for each work with numbers."""
    return [figure for group in report.groups if (figure := _figure(group))]


def _figure(group: Group) -> Figure | None:
    rows = sorted((r for r in group.rows if r.summary.value), key=lambda r: (r.is_floor, -speed(r)))
    if not rows:
        return None
    metric = rows[0].summary.metric
    farthest = max((abs(math.log(v / (row.summary.value or v))) for row in rows for v in row.summary.values), default=0)
    reach = max(1.05, math.exp(farthest) * 1.02)
    x = Axis(1 / reach, reach, _LEFT, _RIGHT)
    bottom = _TOP + _STEP * len(rows)
    step = next(step for step in (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0, reach) if step**3 >= reach)
    ticks = [(step**power, _times(step**power)) for power in range(-3, 4) if 1 / reach <= step**power <= reach]
    about = f"One dot for each launch at {group.full_title}: {metric.title}, divided by the mean of its row."
    drawing = canvas(
        _WIDTH, bottom + 44, about,
        grid_x(x, _TOP, bottom, ticks, f"launch ÷ mean of its row ({metric.title})"),
        [_strip(row, _TOP + _STEP * (at + 0.5), x) for at, row in enumerate(rows)],
        class_="rows",
    )  # fmt: skip
    table = [
        [row.name, metric_text(metric, row.summary.value), spread_text(row.summary.spread) or "–",
         ", ".join(metric_text(metric, value) for value in row.summary.values)]
        for row in rows
    ]  # fmt: skip
    return Figure(group.key, group.full_title, drawing, about, ["mechanism", "mean", "±", "launches"], table)


def _times(value: float) -> str:
    return "mean" if value == 1 else f"× {value:.3g}"


def _strip(row: Row, y: float, x: Axis) -> Markup:
    value, metric = row.summary.value, row.summary.metric
    assert value is not None
    disturbed = {launch.number for launch in row.result.launches if launch.breach}
    dots = [
        element(
            "circle", cx=x(found / value), cy=y, r=4.2, class_="dot hollow" if launch.number in disturbed else "dot"
        )
        for launch in row.result.launches
        if (found := metric.of(launch)) is not None
    ]
    values = row.summary.values
    spread = spread_text(row.summary.spread)
    said = f"{row.name}: {metric_text(metric, value)} {spread}, {len(values)} launches"
    if disturbed:
        said += f", {len(disturbed)} disturbed"
    return series(
        row, said,
        text(_LEFT - 12, y + 4, row.name, "end", "label"),
        line((x(min(values) / value), y), (x(max(values) / value), y), "range"),
        line((x(1.0), y - 7), (x(1.0), y + 7), "middle"),
        dots,
        text(_RIGHT + 12, y + 4, metric_text(metric, value), class_="num"),
        text(_WIDTH - 4, y + 4, spread, "end", "num soft"),
    )  # fmt: skip
