"""The page's two charts as SVG: a panel of times per workload, and time against size. Time is always logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape

from nearcall_lab.demo.look import css_class, mark
from nearcall_lab.demo.results import Report, Row
from nearcall_lab.stats import format_time, significant

_WIDTH = 580
_LABELS = 178
_NUMBERS = 132
_ROW = 22
_TOP = 8


def _decades(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    a, b = math.log10(low), math.log10(high)
    return lambda value: start + (math.log10(max(value, low)) - a) / (b - a) * (end - start)


def _short(ns: float) -> str:
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale:
            return f"{ns / scale:g} {unit}"
    return f"{ns:g} ns"


def _range_of(report: Report) -> tuple[float, float]:
    """Limits of the time axis in nanoseconds, shared by all panels so that they can be compared."""
    cells = [cell for row in report.rows for cell in row.cells.values() if cell.p50_ns]
    values = [v for cell in cells for v in (cell.p50_ns, cell.p99_ns) if v]
    if not values:
        return 100.0, 1e7
    return min(values) / 1.6, max(values) * 1.6


def panel(report: Report, key: str) -> str:
    """One workload: a mark at each p50, a line to its p99, the fastest at the top."""
    rows = sorted((r for r in report.rows if r.cells[key].p50_ns), key=lambda r: r.cells[key].p50_ns or 0.0)
    low, high = _range_of(report)
    x = _scale(low, high, _LABELS + 8, _WIDTH - _NUMBERS)
    bottom = _TOP + _ROW * len(rows)
    height = bottom + 24
    title = escape(report.workloads[key])
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Round-trip time at {title}, one line per '
        'mechanism, logarithmic; the same numbers are in the table below">'
    ]
    labelled = -math.inf
    for tick in _decades(low, high):
        if not low <= tick <= high:
            continue
        at = x(tick)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        if at - labelled > 44:  # room for the text
            labelled = at
            parts.append(
                f'<text class="tick" x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{_short(tick)}</text>'
            )
    baseline = report.row(report.baseline)
    if baseline and (base := baseline.cells[key].p50_ns):
        parts.append(f'<line class="base" x1="{x(base):.1f}" x2="{x(base):.1f}" y1="{_TOP}" y2="{bottom}"/>')
    for i, row in enumerate(rows):
        parts.append(_line(report, row, key, _TOP + _ROW * i + _ROW / 2, x))
    return "".join(parts) + "</svg>"


def _line(report: Report, row: Row, key: str, y: float, x: Callable[[float], float]) -> str:
    cell = row.cells[key]
    assert cell.p50_ns is not None
    if row.name == report.baseline:
        factor = "baseline"
    elif row.name == report.floor:
        factor = "floor"
    else:
        factor = f"{significant(cell.times_faster.value)}×" if cell.times_faster else ""
    strong = " strong" if row.name == report.baseline else ""
    p99 = f", p99 {format_time(cell.p99_ns)}" if cell.p99_ns else ""
    parts = [
        f"<g><title>{escape(row.label)}: p50 {format_time(cell.p50_ns)}{p99}, n {cell.n:,}</title>",
        f'<text class="{strong.strip()}" x="{_LABELS}" y="{y + 4:.1f}" text-anchor="end">{escape(row.label)}</text>',
    ]
    if cell.p99_ns:
        ends = f'x1="{x(cell.p50_ns):.1f}" x2="{x(cell.p99_ns):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line class="range {css_class(row.family)}" {ends}/>')
    parts.append(mark(row.family, x(cell.p50_ns), y))
    parts.append(
        f'<text class="num" x="{_WIDTH - 62}" y="{y + 4:.1f}" text-anchor="end">{format_time(cell.p50_ns)}</text>'
        f'<text class="num{strong}" x="{_WIDTH - 2}" y="{y + 4:.1f}" text-anchor="end">{factor}</text></g>'
    )
    return "".join(parts)


def _spread(wanted: Iterable[tuple[float, str]], gap: float) -> dict[str, float]:
    """Positions as near as possible to those wanted, at least `gap` apart, in the same order."""
    placed: list[tuple[str, float]] = []
    for y, name in sorted(wanted):
        placed.append((name, max(y, placed[-1][1] + gap) if placed else y))
    return dict(placed)


def scaling(report: Report, sizes: dict[str, int]) -> str:
    """Time against payload size, both logarithmic, without the floor; pointing at a line puts the others back."""
    width, height, left, right, bottom = 1180, 560, 62, 960, 520
    keys = [key for key in report.workloads if sizes.get(key)]
    rows = [r for r in report.rows if sum(r.cells[k].p50_ns is not None for k in keys) >= 2 and r.name != report.floor]
    if not rows:
        return ""
    values = [p50 for r in rows for k in keys if (p50 := r.cells[k].p50_ns)]
    low, high = min(values) / 1.4, max(values) * 1.4
    y = _scale(low, high, bottom, 14)
    x = _scale(sizes[keys[0]] / 1.3, sizes[keys[-1]], left, right)
    parts = [
        f'<svg class="scaling" viewBox="0 0 {width} {height}" role="img" aria-label="Median round-trip time '
        'against payload size, one line per mechanism, both axes logarithmic; the same numbers are in the table below">'
    ]
    for tick in _decades(low, high):
        if low <= tick <= high:
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
            parts.append(
                f'<text class="tick" x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
            )
    for key in keys:
        at = x(sizes[key])
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="14" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{escape(report.workloads[key])}</text>"
        )
    ends = {}
    for row in rows:
        last = [p50 for k in keys if (p50 := row.cells[k].p50_ns)][-1]
        ends[row.name] = y(last)
    labels = _spread(((at, name) for name, at in ends.items()), 15)
    over = max(labels.values()) - (height - 8)
    shift = max(0.0, over)
    for row in rows:
        points = [(x(sizes[k]), y(p50)) for k in keys if (p50 := row.cells[k].p50_ns)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        at = labels[row.name] - shift
        parts.append(
            f'<g class="series {css_class(row.family)}" tabindex="0"><title>{escape(row.label)}</title>'
            f'<polyline class="curve" points="{path}"/>'
            + "".join(mark(row.family, px, py, 4) for px, py in points)
            + f'<polyline class="curve" style="stroke-width:.7;opacity:.6" '
            f'points="{points[-1][0] + 6:.1f},{points[-1][1]:.1f} {right + 26},{at:.1f}"/>'
            f'<text x="{right + 30}" y="{at + 4:.1f}">{escape(row.label)}</text></g>'
        )
    return "".join(parts) + "</svg>"
