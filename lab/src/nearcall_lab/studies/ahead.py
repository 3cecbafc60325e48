"""Where others are ahead of nearcall: the table that a reader looks for first in a lab that comes with it."""

from __future__ import annotations

from nearcall_lab.analysis.summary import Summary
from nearcall_lab.stats import format_time, significant
from nearcall_lab.studies.model import ShownTable, Summaries, Value

_OURS = "nearcall"


def others_ahead(cells: Summaries) -> ShownTable:
    """Each work at which the best is not nearcall's, by the numbers; whether a difference is sure, the report says."""
    works: dict[str, list[Summary]] = {}
    for summary in cells.all:
        if summary.value is not None and summary.result.status == "ok" and summary.result.family != "floor":
            works.setdefault(summary.result.cell.title(), []).append(summary)
    rows: dict[str, list[Value]] = {}
    for work, found in works.items():
        ranked = sorted(found, key=_rank)
        ours = next((each for each in ranked if each.result.family == _OURS), None)
        if ours is not None and ranked[0] is not ours:
            rows[work] = [ranked[0].result.label, _value(ranked[0]), ours.result.label, _value(ours)]
    return ShownTable("ahead", "Where others are ahead of nearcall", ["the best", "", "nearcall's best", " "], rows)


def _rank(summary: Summary) -> float:
    value = summary.value or 0.0
    return -value if summary.metric.more_is_better else value


def _value(summary: Summary) -> str:
    value = summary.value or 0.0
    return format_time(value) if summary.metric.unit == "ns" else f"{significant(value)}/s"
