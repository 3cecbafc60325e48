"""A study as text: Markdown, which a terminal shows as well."""

from __future__ import annotations

from collections.abc import Sequence

from nearcall_lab.stats import significant
from nearcall_lab.studies.model import ShownTable, StudyResult, Value


def markdown(result: StudyResult) -> str:
    """The whole study: every table as published, as its method gives it here, and corrected; then the flaws."""
    parts = [f"# {result.title}", f"Published figures: {result.machine}."]
    if result.versions:
        parts[-1] += " " + ", ".join(f"{name} {version}" for name, version in result.versions.items()) + "."
    replicated = {table.id: table for table in result.replicated}
    corrected = {table.id: table for table in result.corrected}
    for table in result.published:
        parts.append(f"## {table.title}")
        parts.append(_table("as published", table))
        if table.id in replicated:
            parts.append(_table("the same method, here", replicated[table.id]))
        if table.id in corrected:
            parts.append(_table(f"corrected: {corrected[table.id].title}", corrected[table.id]))
    published = {table.id for table in result.published}
    for table in result.corrected:
        if table.id not in published:
            parts.append(f"## {table.title}")
            parts.append(_table("corrected", table))
    parts.append("## What is wrong with it, in numbers from this machine")
    for flaw in result.flaws:
        lines = [f"- **{flaw.claim}** {flaw.truth}"]
        lines.extend(f"  - {name}: {value}" for name, value in flaw.numbers.items())
        if not flaw.numbers:
            lines.append("  - not shown by this run: a row it needs has no numbers")
        parts.append("\n".join(lines))
    if result.problems:
        parts.append("Could not be repeated here: " + "; ".join(f"{k}: {v}" for k, v in result.problems.items()) + ".")
    parts.append(f"`{' '.join(result.command)}`, {result.started}, {result.seconds:.0f} s.")
    return "\n\n".join(parts) + "\n"


def _table(name: str, table: ShownTable) -> str:
    lines = [
        _line([name, *table.columns]),
        _line(["---", *("---:" for _ in table.columns)]),
    ]
    for row, values in table.rows.items():
        padded = [*values, *([None] * (len(table.columns) - len(values)))]
        lines.append(_line([row, *(shown(value) for value in padded)]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(value: Value) -> str:
    """Three significant digits for a number, a text as it is, a dash for nothing."""
    if value is None:
        return "–"
    return significant(float(value)) if isinstance(value, (int, float)) else value
