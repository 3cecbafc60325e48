"""A study as text: Markdown, which a terminal shows as well."""

from __future__ import annotations

import shlex

from nearcall_lab.markdown import code, escaped
from nearcall_lab.markdown import table as table_text
from nearcall_lab.stats import significant
from nearcall_lab.studies.model import ShownTable, StudyResult, Value


def markdown(result: StudyResult) -> str:
    """The whole study: every table as published, as its method gives it here, and corrected; then the flaws."""
    parts = [f"# {escaped(result.title)}"]
    if result.ended_early:
        parts.append(f"**Caution:** {escaped(ended_early(result))}")
    parts.append(f"The published figures' machine: {escaped(result.machine)}.")
    if result.versions:
        parts[-1] += " " + escaped(", ".join(f"{name} {version}" for name, version in result.versions.items())) + "."
    if result.here:
        parts.append(f"The machine here: {escaped(result.here)}.")
    replicated = {table.id: table for table in result.replicated}
    corrected = {table.id: table for table in result.corrected}
    for table in result.published:
        parts.append(f"## {escaped(table.title)}")
        parts.append(_table("as published", table))
        if table.id in replicated:
            parts.append(_table("the same method, here", replicated[table.id]))
        if table.id in corrected:
            parts.append(_table(f"corrected: {corrected[table.id].title}", corrected[table.id]))
    published = {table.id for table in result.published}
    for table in result.corrected:
        if table.id not in published:
            parts.append(f"## {escaped(table.title)}")
            parts.append(_table("corrected", table))
    parts.append("## What is wrong with it, in numbers from this machine")
    for flaw in result.flaws:
        lines = [f"- **{escaped(flaw.claim)}** {escaped(flaw.truth)}"]
        lines.extend(f"  - {escaped(name)}: {escaped(value)}" for name, value in flaw.numbers.items())
        if not flaw.numbers:
            lines.append("  - not shown by this run: a row it needs has no numbers")
        parts.append("\n".join(lines))
    if result.problems:
        problems = "; ".join(f"{row}: {problem}" for row, problem in result.problems.items())
        parts.append(f"Could not be repeated here: {escaped(problems)}.")
    parts.append(f"{code(shlex.join(result.command))}, {escaped(result.started)}, {result.seconds:.0f} s.")
    return "\n\n".join(parts) + "\n"


def ended_early(result: StudyResult) -> str:
    """What a reader must know first about a study that was not carried out completely."""
    return f"this study ended early: {result.ended_early}. What was done until then follows; it is not for publishing."


def _table(name: str, table: ShownTable) -> str:
    rows = []
    for row, values in table.rows.items():
        padded = [*values, *([None] * (len(table.columns) - len(values)))]
        rows.append([escaped(row), *(escaped(shown(value)) for value in padded)])
    return table_text([escaped(name), *(escaped(column) for column in table.columns)], rows)


def shown(value: Value) -> str:
    """Three significant digits for a number, a text unchanged, a dash for None."""
    if value is None:
        return "–"
    return significant(float(value)) if isinstance(value, (int, float)) else value
