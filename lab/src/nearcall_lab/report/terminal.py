"""A run as tables in a terminal: one for each kind of work, the fastest mechanism first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearcall_lab.analysis.compare import compare, interval_text
from nearcall_lab.analysis.summary import Summary, summaries
from nearcall_lab.report.text import plain, rate
from nearcall_lab.results.model import CellResult, RunInfo
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import format_time, significant


def print_run(console: Console, recorded: Recorded) -> None:
    """Everything the run found, the numbers first."""
    info = recorded.info
    by_work: dict[str, list[Summary]] = {}
    for summary in summaries(recorded):
        by_work.setdefault(msgspec.structs.replace(summary.result.cell, mechanism="").digest(), []).append(summary)
    for group in by_work.values():
        _print_group(console, group, info)
    for line in notes(info):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    for flag in info.environment.flags():
        console.print(Text.assemble(("caution: ", "red"), flag), highlight=False, soft_wrap=True)


def notes(info: RunInfo) -> list[str]:
    """How the numbers came about, one sentence each."""
    how = "random blocks, each forwards and backwards" if info.order == "abba" else "a random order in each round"
    machine = info.environment
    lines = [
        f"{info.launches} launches of fresh processes per cell, interleaved in {how} (seed {info.seed}).",
        f"{info.placement[:1].upper()}{info.placement[1:]}, unless a title says otherwise.",
        "±: half the 95 % interval over launches. A quantile is shown from 10 / (1 − p) samples on.",
        f"{machine.cpu}, {machine.kernel}, {machine.python}; revision {info.revision or 'unknown'}.",
    ]
    if info.ended_early:
        lines.append(f"Ended early: {info.ended_early}. What was done is shown.")
    return lines


def _print_group(console: Console, group: Sequence[Summary], info: RunInfo) -> None:
    measured = sorted(
        (s for s in group if s.value is not None),
        key=lambda s: (s.result.cell.mechanism == info.floor, -_speed(s)),
    )
    baseline = next((s for s in measured if s.result.cell.mechanism == info.baseline), None)
    first = group[0]
    console.print()
    if measured:
        table = Table(title=Text(f"{first.result.cell.title()}: {first.metric.title}"), title_justify="left")
        table.add_column("mechanism", no_wrap=True)
        for column in (first.metric.title.rpartition(", ")[2], "±", "p99", "p99.9", "calls/s", "CPU/call"):
            table.add_column(column, justify="right", no_wrap=True)
        observed = any(s.result.observation is not None for s in measured)
        if observed:
            table.add_column("syscalls/call", justify="right", no_wrap=True)
        if baseline is not None:
            table.add_column(f"against {baseline.result.cell.mechanism}", justify="right", no_wrap=True)
        for column in ("samples", "launches"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("cell", no_wrap=True, style="dim")
        table.add_column("beware", style="dim")
        for summary in measured:
            # As text: what an adapter calls itself is no markup.
            table.add_row(*(Text(plain(cell)) for cell in _row(summary, baseline, info, observed)))
        console.print(table)
    else:
        console.print(f"{first.result.cell.title()}: no numbers", style="bold", markup=False, highlight=False)
    reasons: dict[tuple[str, str], list[str]] = {}
    for summary in group:
        if summary.value is None:
            result = summary.result
            log = f" (log: {result.log})" if result.log else ""
            key: tuple[str, str] = (result.status, f"{result.problem}{log}")
            if result.status in ("ok", "overloaded"):
                calls = sum(launch.calls for launch in result.launches)
                key = ("too few samples for a median", f"{calls} in {summary.launches} launches")
            reasons.setdefault(key, []).append(result.cell.mechanism)
    for (status, problem), names in reasons.items():
        line = Text.assemble(
            (f"  {status}: ", "dim"), ", ".join(names), (f": {plain(problem)}" if problem else "", "dim")
        )
        console.print(line, highlight=False, soft_wrap=True)


def _speed(summary: Summary) -> float:
    value = summary.value or 0.0
    return value if summary.metric.more_is_better else -value


def _row(summary: Summary, baseline: Summary | None, info: RunInfo, observed: bool) -> list[str]:
    result = summary.result
    value = summary.value
    if result.status == "overloaded" and summary.metric.unit == "ns":
        shown = "overloaded"
    else:
        shown = format_time(value) if summary.metric.unit == "ns" else rate(value)
    quantiles = (summary.quantiles.get(p) for p in (0.99, 0.999))
    cpu = summary.cpu_us_per_call
    against = []
    if baseline is not None:
        if baseline is summary or result.cell.mechanism == info.floor:
            against = ["1" if baseline is summary else "–"]
        else:
            comparison = compare(baseline.result, result, paired=True)
            sure = comparison.outcome in ("faster", "slower")
            against = [interval_text(comparison.speed) if comparison.speed and sure else "–"]
            if comparison.outcome == "same":
                against = ["no difference"]
    return [
        f"{result.label or result.cell.mechanism}{' (floor)' if result.cell.mechanism == info.floor else ''}",
        shown,
        "–" if summary.spread is None else f"{summary.spread:.{1 if summary.spread < 0.1 else 0}%}",
        *(format_time(q.value if q else None) for q in quantiles),
        rate(summary.throughput),
        "–" if cpu is None else f"{significant(cpu)} µs",
        *([_syscalls(result)] if observed else []),
        *against,
        f"{summary.response.n if summary.response else sum(launch.calls for launch in result.launches):,}",
        str(summary.launches),
        result.digest[:8],
        "; ".join(summary.remarks),
    ]


def _syscalls(result: CellResult) -> str:
    """Of the client and of the server."""
    counts = result.observation
    if counts is None or counts.client_syscalls is None or counts.server_syscalls is None:
        return "–"
    return f"{significant(counts.client_syscalls, 2)} + {significant(counts.server_syscalls, 2)}"
