"""Runs side by side: the same cells of several runs, on one machine or on different ones."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from msgspec.structs import replace

from nearcall_lab.analysis.compare import Comparison, compare, note, together
from nearcall_lab.report.html import element, join, paragraph
from nearcall_lab.report.look import css_class, icon
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.sections import verdict
from nearcall_lab.report.text import NOTHING, metric_text, spread_text
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import significant

_CAVEAT = (
    "Under each value: how many times as fast as the baseline of its own run, which is what can be compared between "
    "machines. The last column compares the values themselves."
)


def section(report: Report) -> Markup:
    """The cells that at least two of the runs have; nothing where there is one run, or no such cell."""
    shared = [rows for rows in _by_cell(report) if sum(row is not None for row in rows) > 1]
    if not shared:
        return Markup("")
    two = len(report.runs) == 2
    judged = _judged(shared) if two else [None] * len(shared)
    heads = [
        element("th", "mechanism", scope="col", class_="words"),
        element("th", "work", scope="col", class_="words"),
        [
            element(
                "th", recorded.path.name or recorded.info.scenario, element("small", _machine(recorded)), scope="col"
            )
            for recorded in report.runs
        ],
        element("th", "second against first", scope="col", class_="words") if two else None,
    ]
    lines = [_line(rows, found, two) for rows, found in zip(shared, judged, strict=True)]
    caption = f"{len(shared)} cells that several of these runs have"
    table = element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", heads)),
        element("tbody", lines),
        id="runs",
    )
    said = note([found for found in judged if found is not None]) if two else ""
    return join(
        element("div", table, class_="scroll main", tabindex="0", role="region", aria_label=caption),
        paragraph(f"{_CAVEAT if two else _CAVEAT.rpartition(' The ')[0]} {said}".strip(), class_="caveat"),
    )


def _by_cell(report: Report) -> list[list[Row | None]]:
    """Rows with the same mechanism and work, one for each run; None where a run has none."""
    places = {str(recorded.path): at for at, recorded in enumerate(report.runs)}
    found: dict[str, list[Row | None]] = {}
    for row in report.rows:
        # Which machine its server ran on is what may differ here.
        mine = found.setdefault(replace(row.cell, host="").digest(), [None] * len(places))
        mine[places[row.source]] = row
    return list(found.values())


def _judged(shared: Sequence[Sequence[Row | None]]) -> list[Comparison | None]:
    """The second run's cells against the first's, judged together."""
    able = [at for at, rows in enumerate(shared) if all(row and row.summary.value is not None for row in rows)]
    made = [
        compare(first.result, second.result, paired=False) for first, second in map(_both, (shared[a] for a in able))
    ]
    found: list[Comparison | None] = [None] * len(shared)
    for at, comparison in zip(able, together(made), strict=True):
        found[at] = comparison
    return found


def _both(rows: Sequence[Row | None]) -> tuple[Row, Row]:
    first, second = rows
    assert first is not None
    assert second is not None
    return first, second


def _machine(recorded: Recorded) -> str:
    machine = recorded.info.environment
    return f"{machine.cpu}, {machine.cpus_usable} CPUs, {machine.kernel}"


def _line(rows: Sequence[Row | None], found: Comparison | None, two: bool) -> Markup:
    row = next(row for row in rows if row is not None)
    family = row.result.family
    return element(
        "tr",
        element("th", icon(family), " ", row.name, scope="row", class_=css_class(family)),
        element("td", row.cell.title(), class_="words"),
        [_value(each) for each in rows],
        element("td", verdict(found, "the first") or NOTHING, class_="words") if two else None,
    )


def _value(row: Row | None) -> Markup:
    if row is None or row.summary.value is None:
        return element("td", NOTHING if row is None else row.result.status)
    against = row.against.speed if row.against is not None else None
    own = f"{significant(against.value)}× its baseline" if against else "the baseline" if row.is_baseline else None
    value = f"{metric_text(row.summary.metric, row.summary.value)} {spread_text(row.summary.spread)}".strip()
    return element("td", element("b", value), element("small", own) if own else None)
