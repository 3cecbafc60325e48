"""How slow the slow calls are: response time against percentile."""

from __future__ import annotations

import math

import numpy as np

from nearcall_lab.report.charts.frame import Axis, Curve, Figure, around, canvas, curves, grid_x, grid_y, height_for
from nearcall_lab.report.model import Group, Report, Row
from nearcall_lab.stats import format_time

_LEFT, _RIGHT, _WIDTH, _TOP = 76, 770, 1000, 34
_NAMED = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


def figures(report: Report) -> list[Figure]:
    """One for each work with a distribution that reaches beyond its median."""
    return [figure for group in report.groups if (figure := _figure(group))]


def _reach(n: int) -> float:
    """The highest percentile that ten samples lie beyond."""
    return 1 - 10 / n


def _spectrum(row: Row) -> list[tuple[float, float]]:
    """Percentile as a number of nines, and nanoseconds, as far up as there are samples for."""
    response = row.summary.response
    if response is None or row.result.status != "ok" or response.n < 40:
        return []
    last = -math.log10(1 - _reach(response.n))
    nines = np.unique(np.concatenate((np.linspace(0.02, last, 44), [0.30103])))
    nines = nines[nines <= last + 1e-9]
    ranks = np.clip(np.ceil((1 - 10.0**-nines) * response.n), 1, response.n)
    values, counts = response.points()
    found = values[np.searchsorted(np.cumsum(counts), ranks)]
    return [(float(a), max(float(b), 1.0)) for a, b in zip(nines, found, strict=True)]


def _figure(group: Group) -> Figure | None:
    spectra = {row.key: spectrum for row in group.rows if (spectrum := _spectrum(row))}
    rows = [row for row in group.rows if row.key in spectra]
    if not rows:
        return None
    bottom = _TOP + height_for(len(rows))
    most = max(spectrum[-1][0] for spectrum in spectra.values())
    x = Axis(0, max(most, 1.0), _LEFT, _RIGHT, log=False)
    y = around((v for s in spectra.values() for _, v in s), bottom, _TOP)
    found = [
        Curve(row, [(x(a), y(b)) for a, b in spectra[row.key]], _said(row), marked=False)
        for row in sorted(rows, key=lambda row: spectra[row.key][-1][1])
    ]
    ticks = [(-math.log10(1 - p), f"{100 * p:g} %") for p in _NAMED if -math.log10(1 - p) <= x.high]
    about = f"Response time against percentile at {group.full_title}, one line for each of {len(rows)} mechanisms."
    drawing = canvas(
        _WIDTH, bottom + 46, about,
        grid_y(y, _LEFT, _RIGHT, "time", "response time"),
        grid_x(x, _TOP, bottom, ticks, "percentile"),
        curves(found, _RIGHT, _TOP, bottom),
    )  # fmt: skip
    table = [
        [row.name, *(format_time(q.value if (q := row.summary.quantiles.get(p)) else None) for p in _NAMED[1:6]),
         f"{row.n:,}"]
        for row in rows
    ]  # fmt: skip
    return Figure(
        group.key, group.full_title, drawing, about, ["mechanism", "p50", "p90", "p99", "p99.9", "p99.99", "n"], table
    )


def _said(row: Row) -> str:
    named = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    parts = [f"{name} {format_time(q.value)}" for name, p in named if (q := row.summary.quantiles.get(p))]
    return f"{row.name}: {', '.join(parts)}, n {row.n:,}"
