"""The report as Markdown: the same numbers as the page, without its pictures."""

from __future__ import annotations

from nearcall_lab.analysis.summary import without_number
from nearcall_lab.markdown import code, escaped, table
from nearcall_lab.report import why
from nearcall_lab.report.charts import concurrency, load, sizes
from nearcall_lab.report.charts.frame import Figure
from nearcall_lab.report.model import Group, Report, Row, command_text
from nearcall_lab.report.sections import flags_of, how_judged, verdict
from nearcall_lab.report.table import rows_as_text
from nearcall_lab.report.terminal import notes
from nearcall_lab.report.text import NOTHING, metric_text
from nearcall_lab.stats import significant
from nearcall_lab.studies.show import markdown as study_text

_HEAD = (
    *("mechanism", "result ±", "against baseline", "p50", "p99", "p99.9", "max", "calls/s", "CPU/call", "RSS"),
    *("failed", "n", "launches", "beware"),
)


def render(report: Report) -> str:
    """The whole text."""
    parts = [f"# {escaped(report.title)}"]
    for recorded in report.runs:
        if recorded.info.ended_early:
            parts.append(f"**Caution:** the run ended early: {escaped(recorded.info.ended_early)}.")
    if any(group.ranked() for group in report.groups):
        parts += ["## Verdicts", _verdicts(report)]
    parts.append("## Machine")
    for recorded in report.runs:
        lines = [escaped(line) for line in notes(recorded.info)]
        lines += [f"**Caution:** {escaped(flag)}." for flag in flags_of(recorded)]
        if recorded.info.command:
            lines.append(f"Made by {code(command_text(recorded.info))}, {escaped(recorded.info.started)}.")
        parts.append("\n".join(f"- {line}" for line in lines))
    if any(group.floor for group in report.groups):
        parts += ["## Floor", _floors(report)]
    parts.append("## All numbers")
    if not report.groups:
        parts.append("This run has no cell: nothing was planned.")
    for group in report.groups:
        parts.append(f"### {escaped(group.full_title)}")
        parts.append(_group(group))
    series = [*load.figures(report), *concurrency.figures(report), *sizes.figures(report)]
    if series:
        parts.append("## Series")
        parts += [_figure(figure) for figure in series]
    counted = why.reasons(report)
    if counted:
        rows = [
            [escaped(reason.row.name), escaped(reason.work), *(escaped(text) for text in reason.cells)]
            for reason in counted
        ]
        parts += ["## Why", table(why.HEADS, rows, words=2), "\n".join(f"- {escaped(line)}" for line in why.CAVEATS)]
    for study in report.studies:
        parts.append(study_text(study).replace("\n## ", "\n### ").replace("# ", "## ", 1).strip())
    return "\n\n".join(parts) + "\n"


def _verdicts(report: Report) -> str:
    lines = []
    for group in report.groups:
        ranked = group.ranked()
        if not ranked:
            continue
        best, base = ranked[0], group.baseline
        value = metric_text(best.summary.metric, best.summary.value)
        if group.not_reached:
            reached = f"{escaped(best.name)} is the fastest of those that were, {value}"
            lines.append(f"- {escaped(group.full_title)}: no verdict, {group.not_reached}; {reached}")
            continue
        line = f"- {escaped(group.full_title)}: **{escaped(best.name)}**, {value}"
        if best.is_baseline:
            line += ", the baseline itself"
        elif base is not None:
            line += f", {escaped(verdict(best.against, base.name))}"
        if best.summary.failed.calls:
            line += f" ({escaped(best.summary.failed.sentence())})"
        lines.append(line)
    note = f"{how_judged(report)} The fastest was chosen by looking, so its lead is on the high side."
    return "\n".join(lines) + f"\n\n{note}"


def _floors(report: Report) -> str:
    rows = []
    for group in report.groups:
        floor, ranked = group.floor, group.ranked()
        if floor is None:
            continue
        low, high = floor.summary.value or 0.0, ranked[0].summary.value if ranked else None
        times = NOTHING
        if low and high:
            times = f"{significant(low / high if floor.summary.metric.more_is_better else high / low)}×"
        best = escaped(ranked[0].name) if ranked else NOTHING
        rows.append([escaped(group.full_title), metric_text(floor.summary.metric, low), best, times])
    return table(("work", "floor", "fastest", "from the floor"), rows)


def _group(group: Group) -> str:
    ranked = {row.key: at for at, row in enumerate(group.ranked())}
    rows = sorted(group.rows, key=lambda row: ranked.get(row.key, len(ranked)))
    measured = [row for row in rows if row.summary.value is not None]
    parts = []
    if measured:
        body = [
            [_name(row), *(escaped(text) for text in texts), escaped("; ".join(row.summary.remarks))]
            for row, texts in zip(measured, rows_as_text(measured), strict=True)
        ]
        parts.append(table(_HEAD, body))
    without = [
        f"- {escaped(row.name)}: {escaped(without_number(row.summary))}" for row in rows if row.summary.value is None
    ]
    return "\n\n".join([*parts, *(["\n".join(without)] if without else [])])


def _name(row: Row) -> str:
    role = " (floor)" if row.is_floor else " (baseline)" if row.is_baseline else ""
    tuned = ", tuned" if row.result.tuned and "tuned" not in row.name else ""
    return f"{escaped(row.name)}{role}{tuned} {code(row.result.digest[:8])}"


def _figure(figure: Figure) -> str:
    rows = [[escaped(str(value)) for value in row] for row in figure.rows]
    parts = [f"**{escaped(figure.title)}**", table([escaped(head) for head in figure.head], rows)]
    parts += [f"- {escaped(remark)}" for remark in figure.remarks]
    return "\n\n".join(parts)
