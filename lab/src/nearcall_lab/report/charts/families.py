"""Cells that differ in one number only: the payload's size, the calls under way, or the rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from nearcall_lab.report.model import Report, Row
from nearcall_lab.results.model import RunInfo
from nearcall_lab.scenario.cell import Cell


@dataclass(frozen=True)
class Member:
    """One mechanism's cells, ascending by that number."""

    name: str
    rows: list[Row]
    at: list[float]


@dataclass(frozen=True)
class Family:
    """All mechanisms' cells that differ in that number, and otherwise only in ways that do not matter."""

    key: str
    title: str
    info: RunInfo
    members: list[Member]


def families(
    report: Report,
    prefix: str,
    number: Callable[[Cell], float],
    without: Callable[[Cell], Cell],
    has_value: Callable[[Row], bool],
) -> list[Family]:
    """The families with two numbers or more. `without` returns a cell without that number."""
    found: dict[tuple[int, Cell], list[Row]] = {}
    titles: dict[tuple[int, Cell], str] = {}
    for group in report.groups:
        for row in group.rows:
            # A cell's duration does not change its work: large payloads get more time.
            cell = without(replace(row.cell, mechanism="", mode=replace(row.cell.mode, seconds=0.0, warmup_s=0.0)))
            key = (id(row.info), cell)
            found.setdefault(key, []).append(row)
            suffix = f" ({row.info.scenario})" if group.several else ""
            titles.setdefault(key, cell.title() + suffix)
    result: list[Family] = []
    for key, rows in found.items():
        usable = [row for row in rows if has_value(row)]
        by_name: dict[str, list[Row]] = {}
        for row in usable:
            by_name.setdefault(row.cell.mechanism, []).append(row)
        members = []
        for name, mine in by_name.items():
            # The same work with another duration is the same point: the one with more samples is drawn.
            best = {number(row.cell): row for row in sorted(mine, key=lambda row: row.n)}
            members.append(Member(name, [best[at] for at in sorted(best)], sorted(best)))
        if any(len(set(member.at)) > 1 for member in members):
            result.append(Family(f"{prefix}{len(result)}", titles[key], rows[0].info, members))
    return result


def changed(cell: Cell, part: str, **values: Any) -> Cell:
    """The cell with other values in its ``work`` or its ``mode``."""
    return replace(cell, **{part: replace(getattr(cell, part), **values)})
