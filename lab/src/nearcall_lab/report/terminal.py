"""A run as tables in a terminal: one for each kind of work, the fastest mechanism first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearcall_lab.analysis.compare import Comparison, against_baseline, interval_text, note
from nearcall_lab.analysis.summary import Summary, summaries, without_number
from nearcall_lab.report.text import plain, rate, share
from nearcall_lab.results.model import CellResult, RunInfo
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import counted, format_time, significant


def print_run(console: Console, recorded: Recorded) -> None:
    """Print all results of the run, the numbers first."""
    info = recorded.info
    by_work: dict[str, list[Summary]] = {}
    for summary in summaries(recorded):
        by_work.setdefault(msgspec.structs.replace(summary.result.cell, mechanism="").digest(), []).append(summary)
    against = against_baseline(recorded)
    for group in by_work.values():
        _print_group(console, group, info, against)
    for line in [*notes(info), *([note(list(against.values()))] if against else [])]:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    for flag in info.environment.flags():
        console.print(Text.assemble(("caution: ", "red"), flag), highlight=False, soft_wrap=True)


def notes(info: RunInfo) -> list[str]:
    """How the numbers were measured, one sentence for each aspect."""
    how = "random blocks, each forwards and backwards" if info.order == "abba" else "a random order in each round"
    machine = info.environment
    what = "per cell" if info.cells_per_launch == "one" else "per mechanism, which measure its cells in turn"
    lines = [
        f"{counted(info.launches, 'launch')} of fresh processes {what}, interleaved in {how} (seed {info.seed}).",
        f"{info.placement[:1].upper()}{info.placement[1:]}, unless a title says otherwise.",
        "±: half the 95 % interval over launches. A quantile is shown from 10 / (1 − p) samples on.",
        f"{machine.cpu}, {machine.kernel}, {machine.python}; revision {info.revision or 'unknown'}.",
        *([f"nearcall was built {machine.build}."] if machine.build else []),
    ]
    for host in info.hosts:
        there = host.environment
        line = f"{host.url.partition('?')[0]}, at {host.address}: {there.cpu}, {there.kernel}, {there.python}"
        lines.append(f"{line}; {host.placement}{f'; {host.remark}' if host.remark else ''}.")
    if info.ended_early:
        lines.append(f"Ended early: {info.ended_early}. What was done is shown.")
    return lines


def _print_group(console: Console, group: Sequence[Summary], info: RunInfo, against: Mapping[str, Comparison]) -> None:
    measured = sorted(
        (s for s in group if s.value is not None),
        key=lambda s: (s.result.cell.mechanism == info.floor, -_speed(s)),
    )
    baseline = next((s for s in measured if s.result.cell.mechanism == info.baseline), None)
    first = group[0]
    console.print()
    if measured:
        rows = [_row(summary, baseline, info, against) for summary in measured]
        table = Table(title=Text(f"{first.result.cell.title()}: {first.metric.title}"), title_justify="left")
        columns = _fitting(rows, console.width)
        for column in columns:
            left = column in ("mechanism", "cell")
            # As `Text`: an adapter's own name is not markup.
            head = Text(plain(column))
            table.add_column(head, justify="left" if left else "right", style="dim" if column == "cell" else "")
        for row in rows:
            table.add_row(*(Text(plain(row[column])) for column in columns))
        console.print(table)
        for summary in measured:
            if summary.remarks:
                remarks = (plain("; ".join(summary.remarks)), "dim")
                console.print(
                    Text.assemble(f"  {plain(_name(summary, info))}: ", remarks), highlight=False, soft_wrap=True
                )
        if counted := _counted(measured):
            console.print(Text(counted, "dim"), highlight=False, soft_wrap=True)
    else:
        console.print(f"{first.result.cell.title()}: no numbers", style="bold", markup=False, highlight=False)
    reasons: dict[str, list[str]] = {}
    for summary in group:
        if summary.value is None:
            result = summary.result
            log = f" (log: {result.log})" if result.log else ""
            reasons.setdefault(f"{without_number(summary)}{log}", []).append(result.cell.mechanism)
    for reason, names in reasons.items():
        line = Text.assemble(f"  {', '.join(names)}: ", (plain(reason), "dim"))
        console.print(line, highlight=False, soft_wrap=True)


def _counted(group: Sequence[Summary]) -> str:
    """Over how many calls the column of system calls was counted."""
    calls = [seen.syscalls_calls for s in group if (seen := s.result.observation) and seen.syscalls_calls]
    if not calls:
        return ""
    over = f"{min(calls):,}" if min(calls) == max(calls) else f"{min(calls):,} to {max(calls):,}"
    return f"  System calls: of the client + of the server, counted over {over} calls in a pass of its own."


def _speed(summary: Summary) -> float:
    value = summary.value or 0.0
    return value if summary.metric.more_is_better else -value


def _name(summary: Summary, info: RunInfo) -> str:
    result = summary.result
    floor = " (floor)" if result.cell.mechanism == info.floor else ""
    return f"{result.label or result.cell.mechanism}{floor}"


def _row(
    summary: Summary, baseline: Summary | None, info: RunInfo, against: Mapping[str, Comparison]
) -> dict[str, str]:
    """The cells of one line, by their column's title."""
    result, value = summary.result, summary.value
    if result.status == "overloaded" and summary.metric.unit == "ns":
        shown = "overloaded"
    else:
        shown = format_time(value) if summary.metric.unit == "ns" else rate(value)
    p99, p999 = (summary.quantiles.get(p) for p in (0.99, 0.999))
    cpu = summary.cpu_us_per_call
    row = {
        "mechanism": _name(summary, info),
        summary.metric.title.rpartition(", ")[2]: shown,
        "±": "–" if summary.spread is None else f"{summary.spread:.{1 if summary.spread < 0.1 else 0}%}",
        "p99": format_time(p99.value if p99 else None),
        "p99.9": format_time(p999.value if p999 else None),
        "max": format_time(summary.longest_ns),
        "calls/s": rate(summary.throughput),
        "failed": share(summary.failed.share),
        "CPU/call": "–" if cpu is None else f"{significant(cpu)} µs",
        "syscalls/call": _syscalls(result),
    }
    if baseline is not None:
        row[f"against {baseline.result.cell.mechanism}"] = (
            "1" if summary is baseline else _against(against.get(result.digest))
        )
    calls = summary.response.n if summary.response else sum(launch.calls for launch in result.launches)
    row |= {"samples": f"{calls:,}", "launches": str(summary.launches), "cell": result.digest[:8]}
    return row


def _against(comparison: Comparison | None) -> str:
    if comparison is None or comparison.speed is None or comparison.outcome == "unusable":
        return "–"
    if comparison.outcome == "same":
        return f"same within {100 * comparison.margin:g} %"
    return "cannot tell" if comparison.outcome == "cannot tell" else interval_text(comparison.speed)


_DROPPED_FIRST = ("samples", "launches", "p99.9", "CPU/call", "calls/s", "cell", "max", "p99", "syscalls/call")
"""Columns that are left out in a narrow terminal, in this order; the files have everything."""


def _fitting(rows: Sequence[dict[str, str]], width: int) -> list[str]:
    """The columns that fit; those that would be empty are left out."""
    empty = {"syscalls/call": "–", "failed": "0"}
    columns = [c for c in rows[0] if any(row[c] != empty.get(c) for row in rows)]
    if "calls per second" in columns:  # the compared value is the same number
        columns.remove("calls/s")

    def needed() -> int:
        return 1 + sum(3 + max(len(column), *(len(row[column]) for row in rows)) for column in columns)

    for column in _DROPPED_FIRST:
        if needed() > width and column in columns:
            columns.remove(column)
    return columns


def _syscalls(result: CellResult) -> str:
    """Of the client and of the server."""
    counts = result.observation
    if counts is None or counts.client_syscalls is None or counts.server_syscalls is None:
        return "–"
    return f"{significant(counts.client_syscalls, 2)} + {significant(counts.server_syscalls, 2)}"
