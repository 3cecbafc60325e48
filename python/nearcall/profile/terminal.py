"""A profile in a terminal: what was found, and the lines that wait longest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..types.shown import shown
from .findings import duration
from .model import Line, Profile

__all__ = ["place", "size", "table"]

MOST_LINES = 12
MOST_FINDINGS = 6


def table(profile: Profile) -> str:
    """The table: a few lines of text that end with a line break."""
    return "".join(f"{line}\n" for line in _lines(profile))


def _lines(profile: Profile) -> Iterator[str]:
    calls = sum(process.calls for process in profile.processes)
    if not calls:
        yield "no remote calls were seen"
    else:
        first = profile.processes[0]
        several = f" in {len(profile.processes)} processes" if len(profile.processes) > 1 else ""
        yield (
            f"{_about(profile)}{calls:,} remote calls{several} in {duration(profile.took)}; "
            f"{first.waiting:.0%} of that time the program waited for one"
        )
        yield ""
        yield from _table(profile)
    for process in profile.processes:
        yield from (f"note: {shown(note)}" for note in process.notes)
    if profile.findings:
        yield ""
    for finding in profile.findings[:MOST_FINDINGS]:
        saves = f" (saves about {duration(finding.saves)})" if finding.saves else ""
        yield f"{place(finding.file, finding.line)} {shown(finding.name)}: {shown(finding.text)}{saves}"
        if finding.advice:
            yield f"    {shown(finding.advice)}"
    if len(profile.findings) > MOST_FINDINGS:
        yield f"and {len(profile.findings) - MOST_FINDINGS} more findings on the page"


def _about(profile: Profile) -> str:
    return "about " if any(process.recorded != process.calls for process in profile.processes) else ""


_HEAD = ("line", "calls", "waited", "share", "median", "p99", "sent", "received", "failed", "what")


def _table(profile: Profile) -> Iterator[str]:
    rows = [_HEAD, *(_row(line) for line in profile.lines[:MOST_LINES])]
    # A column without numbers says nothing.
    kept = [column for column in range(len(_HEAD)) if any(row[column] not in ("-", "0") for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in kept}
    for row in rows:
        yield "  ".join(_padded(row, column, widths[column]) for column in kept).rstrip()
    if len(profile.lines) > MOST_LINES:
        yield f"and {len(profile.lines) - MOST_LINES} more lines on the page"


def _padded(row: Sequence[str], column: int, width: int) -> str:
    return row[column].ljust(width) if _HEAD[column] in ("line", "what") else row[column].rjust(width)


def _row(line: Line) -> tuple[str, ...]:
    kind = "" if line.kind == "call" else f" ({line.kind})"
    return (
        place(line.file, line.line),
        f"{line.calls:,}",
        duration(line.waited),
        f"{line.share:.1%}",
        duration(line.median),
        duration(line.p99),
        size(line.sent),
        size(line.received),
        str(sum(failure.calls for failure in line.failures)),
        f"{shown(line.name)}{kind}",
    )


def place(file: str, line: int) -> str:
    """Where a line is: by its file's path from here, if it lies below."""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{shown(str(path))}:{line}"


def size(count: int | None) -> str:
    """Bytes for people; a dash if they are not known."""
    if count is None:
        return "-"
    for factor, unit in ((1, "B"), (1e3, "KB"), (1e6, "MB")):
        if count / factor < 999.5:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"
