"""What connections cost a server: its memory, and its CPU time for each call, against their number."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from nearcall_lab.analysis.summary import SideName
from nearcall_lab.report.charts.families import Family, Member, changed, families
from nearcall_lab.report.charts.frame import (
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
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import NOTHING, cpu, memory
from nearcall_lab.results.model import Side
from nearcall_lab.stats import format_time, significant

_LEFT, _RIGHT, _WIDTH, _TOP = 76, 770, 1000, 34


def figures(report: Report) -> list[Figure]:
    """Two for each work that the same callers did over several numbers of connections."""
    found = []
    for family in families(
        report,
        "held",
        lambda cell: float(cell.mode.connections),
        lambda cell: changed(cell, "mode", connections=1),
        lambda row: bool(row.cell.mode.callers and row.result.launches),
    ):
        found += [_figure(family, quantity) for quantity in _QUANTITIES]
    return found


def memory_kb(row: Row, side: SideName) -> float:
    """Memory of a side's processes, median over launches."""
    return _median(row, side, lambda used: used.pss_kb)


def kb_a_connection(row: Row, fewest: Row, side: SideName) -> float | None:
    """What each further connection adds to a side's memory; None for the row with the fewest, and where the server did
    not keep them all.
    """
    more = row.cell.mode.connections - fewest.cell.mode.connections
    return (memory_kb(row, side) - memory_kb(fewest, side)) / more if more and not closes(row) else None


def closes(row: Row) -> bool:
    """Whether the server had fewer descriptors at the end than it had connections: it closes those that are idle, and
    its clients connect anew.
    """
    held = _median(row, "server", lambda used: used.descriptors)
    return 0 < held < row.cell.mode.connections


@dataclass(frozen=True)
class _Quantity:
    key: str
    title: str
    axis: str
    kind: str
    of: Callable[[Row], float]
    write: Callable[[float], str]


_QUANTITIES = (
    _Quantity(
        "memory", "memory of the server", "MB", "number", lambda row: memory_kb(row, "server") / 1024,
        lambda mb: memory(mb * 1024),
    ),
    _Quantity(
        "cpu", "CPU time of the server for each call", "CPU time per call", "time",
        lambda row: 1e3 * row.cpu_us[1] if row.cpu_us else 0.0, lambda ns: cpu(ns / 1e3),
    ),
)  # fmt: skip


def _figure(family: Family, quantity: _Quantity) -> Figure:
    members = [member for member in family.members if len(member.rows) > 1]
    values = [quantity.of(row) for member in members for row in member.rows]
    at = sorted({number for member in members for number in member.at})
    bottom = _TOP + height_for(len(members))
    x, y = around(at, _LEFT, _RIGHT, 1.0), around(values, bottom, _TOP, 1.3)
    drawn = [_curve(member, quantity, x, y) for member in members]
    about = f"{quantity.title} against connections, one line for each of {len(members)} mechanisms.".capitalize()
    drawing = canvas(
        _WIDTH, bottom + 46, about,
        grid_y(y, _LEFT, _RIGHT, quantity.kind, quantity.axis),
        grid_x(x, _TOP, bottom, [(number, short_number(number)) for number in at], "connections"),
        curves(drawn, _RIGHT, _TOP, bottom),
    )  # fmt: skip
    head = [
        *("mechanism", "connections", "memory of server", "KB a connection", "of client", "threads of server"),
        *("descriptors of server", "CPU of server/call", "p50", "p99"),
    ]
    table = [_numbers(row, member.rows[0]) for member in members for row in member.rows]
    remarks = [
        f"{row.name}, {row.cell.mode.connections:,} connections: its server had "
        f"{_median(row, 'server', lambda used: used.descriptors):,.0f} descriptors at the end. It closes "
        "idle connections, and clients make new ones."
        for member in members
        for row in member.rows
        if closes(row)
    ]
    key = f"{family.key}-{quantity.key}"
    return Figure(key, f"{family.title}, connections × N: {quantity.title}", drawing, about, head, table, remarks)


def _curve(member: Member, quantity: _Quantity, x: Callable[[float], float], y: Callable[[float], float]) -> Curve:
    row = member.rows[0]
    found = [(number, quantity.of(each)) for number, each in zip(member.at, member.rows, strict=True)]
    said = ", ".join(f"{number:g}: {quantity.write(value)}" for number, value in found)
    return Curve(row, [(x(number), y(value)) for number, value in found], f"{row.name}: {said}")


def _numbers(row: Row, fewest: Row) -> list[str]:
    p50, p99 = (row.summary.quantiles.get(p) for p in (0.5, 0.99))
    return [
        row.name,
        f"{row.cell.mode.connections:,}",
        memory(memory_kb(row, "server")),
        *(_kb(kb_a_connection(row, fewest, side)) for side in ("server", "client")),
        f"{_median(row, 'server', lambda used: used.threads):g}",
        f"{_median(row, 'server', lambda used: used.descriptors):,.0f}",
        cpu(row.cpu_us[1] if row.cpu_us else None),
        format_time(p50.value if p50 else None),
        format_time(p99.value if p99 else None),
    ]


def _kb(value: float | None) -> str:
    return NOTHING if value is None else significant(max(0.0, value))


def _median(row: Row, side: SideName, of: Callable[[Side], float]) -> float:
    return statistics.median(of(getattr(launch, side)) for launch in row.result.launches)
