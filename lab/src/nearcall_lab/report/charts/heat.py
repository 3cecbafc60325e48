"""Two numbers that grow at once, the payload's size and the connections: a field of each mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from msgspec.structs import replace

from nearcall_lab.report.charts.frame import Figure, canvas, series, text
from nearcall_lab.report.html import element, join
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import NOTHING, rate
from nearcall_lab.results.model import RunInfo
from nearcall_lab.scenario.cell import Cell, format_size
from nearcall_lab.stats import format_time

_WIDE, _TALL = 58, 26
"""Pixels of one place of a field."""
_LEFT, _TOP, _GAP, _BELOW = 62, 46, 26, 62
_MOST = 1_000
_FAINT, _FULL = 0.05, 0.95
_DARK = 0.68
"""From here on letters are light on dark."""

Place = tuple[int, int]
"""Size and connections."""


@dataclass(frozen=True)
class Shade:
    """One of the two pictures of a family."""

    what: str
    of: Callable[[Row], float | None]
    write: Callable[[float | None], str]


def _p99(row: Row) -> float | None:
    found = row.summary.quantiles.get(0.99)
    return found.value if found else None


def _time(value: float | None) -> str:
    return NOTHING if value is None else format_time(value)


SHADES = (
    Shade("calls per second", lambda row: row.summary.throughput, rate),
    Shade("99th percentile of the response time", _p99, _time),
)


def figures(report: Report) -> list[Figure]:
    """Two for each work that was done with several sizes at several numbers of connections."""
    found: dict[tuple[int, Cell], dict[str, dict[Place, Row]]] = {}
    infos: dict[tuple[int, Cell], RunInfo] = {}
    for row in report.rows:
        cell = row.cell
        if cell.mode.kind != "closed" or cell.work.operation != "echo":
            continue
        plain = replace(cell.mode, connections=1, client_processes=1, seconds=0.0, warmup_s=0.0)
        key = (id(row.info), replace(cell, mechanism="", work=replace(cell.work, size=0), mode=plain))
        infos[key] = row.info
        found.setdefault(key, {}).setdefault(cell.mechanism, {})[cell.work.size, cell.mode.connections] = row
    made: list[Figure] = []
    for key, fields in found.items():
        whole = {name: field for name, places in fields.items() if (field := _field(places))}
        if whole:
            suffix = f" ({infos[key].scenario})" if len(report.runs) > 1 else ""
            made += [_figure(f"heat{len(made)}{at}", shade, whole, suffix) for at, shade in enumerate(SHADES)]
    return made


def _field(places: dict[Place, Row]) -> dict[Place, Row]:
    """Without what was measured at one size, or with one number of connections, only; empty if nothing is left."""
    while lonely := [place for place in places if any(_alike(place, places, at) < 2 for at in (0, 1))]:
        places = {place: row for place, row in places.items() if place not in lonely}
    return places


def _alike(place: Place, places: dict[Place, Row], at: int) -> int:
    return sum(other[at] == place[at] for other in places)


def _figure(key: str, shade: Shade, fields: dict[str, dict[Place, Row]], suffix: str) -> Figure:
    sizes = sorted({size for places in fields.values() for size, _ in places})
    connections = sorted({number for places in fields.values() for _, number in places})
    wide, tall = _WIDE * len(connections), _TALL * len(sizes)
    across = max(1, (_MOST - _LEFT) // (wide + _GAP))
    down = -(-len(fields) // across)
    values = [v for places in fields.values() for row in places.values() if (v := shade.of(row)) and _fair(row)]
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    panels = []
    for at, places in enumerate(fields.values()):
        left, top = _LEFT + at % across * (wide + _GAP), _TOP + at // across * (tall + _BELOW)
        panels.append(_panel(shade, places, sizes, connections, low, high, left, top, at % across == 0))
    about = (
        f"{shade.what.capitalize()} by payload and connections, a field for each of {len(fields)} mechanisms, the "
        f"darker the more, from {shade.write(low)} to {shade.write(high)}."
    )
    drawing = canvas(
        _LEFT + across * (wide + _GAP),
        _TOP + down * (tall + _BELOW),
        about,
        text(_LEFT, 14, f"the darker the more: {shade.write(low)} to {shade.write(high)}, logarithmic", class_="name"),
        panels,
        class_="panels",
    )
    rows = [
        [f"{next(iter(places.values())).name}, {format_size(size)}"]
        + [_written(shade, places.get((size, number))) for number in connections]
        for places in fields.values()
        for size in sizes
    ]
    head = [f"{shade.what} at", *(_connections(number) for number in connections)]
    return Figure(key, f"echo, {shade.what}{suffix}", drawing, about, head, rows)


def _panel(
    shade: Shade,
    places: dict[Place, Row],
    sizes: list[int],
    connections: list[int],
    low: float,
    high: float,
    left: float,
    top: float,
    first: bool,
) -> Markup:
    row = next(iter(places.values()))
    fields, words, said = [], [], []
    for up, size in enumerate(reversed(sizes)):
        y = top + up * _TALL
        if first:
            words.append(text(left - 8, y + _TALL / 2 + 4, format_size(size), "end", "tick"))
        for at, number in enumerate(connections):
            x, here = left + at * _WIDE, places.get((size, number))
            value = shade.of(here) if here is not None and _fair(here) else None
            strength = _strength(value, low, high)
            box = {"x": x, "y": y, "width": _WIDE - 1, "height": _TALL - 1}
            fields.append(element("rect", **box, class_="heat", fill_opacity=f"{strength:.2f}"))
            shown = _written(shade, here)
            on_dark = " paper" if strength > _DARK else ""
            words.append(text(x + _WIDE / 2 - 0.5, y + _TALL / 2 + 3.5, _brief(shown), "middle", f"cell{on_dark}"))
            said.append(f"{format_size(size)} at {_connections(number)}: {shown}")
    below = top + len(sizes) * _TALL
    ticks = [
        text(left + at * _WIDE + _WIDE / 2, below + 14, str(number), "middle", "tick")
        for at, number in enumerate(connections)
    ]
    middle = left + _WIDE * len(connections) / 2
    return join(
        series(row, f"{row.name}: {'; '.join(said)}", text(left, top - 7, row.name, class_="label"), fields, words),
        ticks,
        text(middle, below + 29, "connections", "middle", "name"),
    )


def _connections(number: int) -> str:
    return f"{number} connection{'s' if number > 1 else ''}"


def _fair(row: Row) -> bool:
    """Whether the number stands for all of the work."""
    return row.result.status == "ok" and not row.summary.failed.calls


def _written(shade: Shade, row: Row | None) -> str:
    """The number; where there is none, the reason in a word or two."""
    if row is None:
        return "not measured"
    if row.result.status != "ok":
        return row.result.status
    if row.summary.failed.calls:
        return f"{row.summary.failed.share:.0%} failed"
    value = shade.of(row)
    return "too few" if value is None else shade.write(value)


def _brief(shown: str) -> str:
    """What fits into a place."""
    return {"unsupported": "no", "not measured": NOTHING, "not reached": NOTHING}.get(shown, shown)


def _strength(value: float | None, low: float, high: float) -> float:
    if not value or high <= low:
        return 0.0
    return _FAINT + (_FULL - _FAINT) * math.log(value / low) / math.log(high / low)
