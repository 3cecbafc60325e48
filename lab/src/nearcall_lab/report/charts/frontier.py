"""Response time against CPU time, and the mechanisms that no other beats in both: the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nearcall_lab.report.charts.frame import (
    Axis,
    Figure,
    around,
    canvas,
    grid_x,
    grid_y,
    path,
    series,
    short_time,
    text,
)
from nearcall_lab.report.look import mark
from nearcall_lab.report.model import Group, Report, Row
from nearcall_lab.report.text import cpu
from nearcall_lab.stats import format_time

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 1000, 76, 960, 34, 460
_AROUND = ((10, 0), (-10, 0), *((dx, dy) for reach in (22, 38, 54, 70) for dx in (18, -18) for dy in (reach, -reach)))
"""Possible places of a name relative to its mark, in pixels, the best place first."""
_LETTER, _LINE = 6.6, 14.0
"""Pixels that a letter of a name takes, and a line of names."""


@dataclass(frozen=True)
class Place:
    """One mechanism: what a call costs, and how long it takes."""

    row: Row
    cpu_ns: float
    median_ns: float


def front(places: Sequence[Place]) -> list[Place]:
    """The places that no other beats in one value without being worse in the other, the cheapest first.

    V. Pareto, "Manuale di economia politica", 1906: no further gain in one good without a loss in another.
    """
    found: list[Place] = []
    for place in sorted(places, key=lambda place: (place.cpu_ns, place.median_ns)):
        if not found or place.median_ns < found[-1].median_ns:
            found.append(place)
    return found


def figures(report: Report) -> list[Figure]:
    """One for each work of which time and CPU time of at least two mechanisms are known."""
    return [figure for group in report.groups if (figure := _figure(group))]


def places_of(group: Group) -> list[Place]:
    """The places of the mechanisms that compete and have both numbers."""
    found = []
    for row in group.rows:
        median, used = row.summary.quantiles.get(0.5), sum(row.cpu_us or ())
        if row.competes and median is not None and used:
            found.append(Place(row, 1e3 * used, median.value))
    return found


def _figure(group: Group) -> Figure | None:
    places = places_of(group)
    if len(places) < 2:
        return None
    best = front(places)
    x = around((place.cpu_ns for place in places), _LEFT, _RIGHT, 1.5)
    y = around((place.median_ns for place in places), _BOTTOM, _TOP, 1.5)
    about = (
        f"Median response time against CPU time per call at {group.full_title}. "
        f"{len(best)} of {len(places)} mechanisms are beaten by none in both."
    )
    names = _names([*best, *(place for place in places if place not in best)], x, y)
    drawing = canvas(
        _WIDTH, _BOTTOM + 46, about,
        grid_y(y, _LEFT, _RIGHT, "time", "response, median"),
        grid_x(x, _TOP, _BOTTOM, [(tick, short_time(tick)) for tick in x.ticks()], "CPU time per call, both sides"),
        path(_steps(best, x, y), "front"),
        [_point(place, place in best, x, y, names) for place in places],
    )  # fmt: skip
    table = [
        [place.row.name, format_time(place.median_ns), cpu(place.cpu_ns / 1e3), "yes" if place in best else "",
         "yes" if place.row.result.busy_polls else ""]
        for place in sorted(places, key=lambda place: place.median_ns)
    ]  # fmt: skip
    head = ["mechanism", "p50", "CPU/call", "on the front", "polls without pause"]
    return Figure(group.key, group.full_title, drawing, about, head, table)


def _steps(best: Sequence[Place], x: Axis, y: Axis) -> list[tuple[float, float]]:
    """The border of what is possible: the lowest response time for each CPU time."""
    points: list[tuple[float, float]] = [(x(best[0].cpu_ns), _TOP)]
    for place in best:
        points += [(x(place.cpu_ns), points[-1][1]), (x(place.cpu_ns), y(place.median_ns))]
    return [*points, (_RIGHT, points[-1][1])]


def _names(places: Sequence[Place], x: Axis, y: Axis) -> dict[str, tuple[float, float]]:
    """Where each name begins, or ends if it is left of its mark: near the mark, where it covers no mark and no other
    name.

    Names of the first places are put first. A name without room is left out; the reader finds it with the pointer and
    in the table.
    """
    marks = [(x(place.cpu_ns), y(place.median_ns)) for place in places]
    taken = [(px - 6, py - 6, px + 6, py + 6) for px, py in marks]
    found = {}
    for place, (px, py) in zip(places, marks, strict=True):
        length = _LETTER * len(place.row.name)
        for dx, dy in _AROUND:
            left = px + dx - (length if dx < 0 else 0)
            baseline = py + dy + 4
            box = (left, baseline - 10, left + length, baseline - 10 + _LINE)
            inside = box[0] >= _LEFT and box[2] <= _WIDTH and box[1] >= _TOP - 4 and box[3] <= _BOTTOM
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                found[place.row.key] = (px + dx, py + dy)
                break
    return found


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _point(place: Place, best: bool, x: Axis, y: Axis, names: dict[str, tuple[float, float]]) -> Markup:
    row, px, py = place.row, x(place.cpu_ns), y(place.median_ns)
    said = f"{row.name}: {format_time(place.median_ns)}, {cpu(place.cpu_ns / 1e3)} of CPU time per call"
    said += "; nobody is better in both" if best else ""
    name: list[Markup] = []
    if row.key in names:
        at, level = names[row.key]
        if level != py:
            name.append(path([(px, py), (at + (-3 if at > px else 3), level)], "lead"))
        anchor = "start" if at > px else "end"
        name.append(text(at, level + 4, row.name, anchor, "label" if best else "label aside"))
    return series(row, said, name, mark(row.result.family, px, py, 6.5 if best else 4.5))
