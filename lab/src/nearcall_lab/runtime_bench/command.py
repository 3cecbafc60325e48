"""The ``runtime`` command: run, judge, print Markdown, write JSON."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from nearcall_lab import __version__
from nearcall_lab.engine.machine import Watch
from nearcall_lab.environment import capture, conclude, cpu_ticks
from nearcall_lab.runtime_bench.measure import RuntimeRun
from nearcall_lab.runtime_bench.results import QUICK, Amounts, Collected
from nearcall_lab.runtime_bench.targets import judge, markdown
from nearcall_lab.stats import counted, format_time


def _series(collected: Collected) -> dict[str, dict[str, Any]]:
    """p50, p99 and n of every ping-pong series."""
    found = {}
    for key in sorted(collected.samples):
        if (samples := collected.pooled(key)) is not None:
            found[key] = {"p50_ns": samples.quantile(0.5), "p99_ns": samples.quantile(0.99), "n": samples.n}
    return found


def _latencies(series: dict[str, dict[str, Any]]) -> str:
    lines = ["| mechanism, workload | p50 | p99 | n |", "|---|---|---|---|"]
    ordered = sorted(series.items(), key=lambda item: item[1]["p50_ns"] or 0)
    lines += [f"| {k} | {format_time(s['p50_ns'])} | {format_time(s['p99_ns'])} | {s['n']:,} |" for k, s in ordered]
    return "\n".join(lines)


def _own_cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def run(console: Console, out: Path, rounds: int, floor_binary: str | None, quick: bool, only: str = "*") -> int:
    """Run the tasks whose names match `only`.

    Returns the exit status: 0 if the run completed, whatever the verdicts, 130 if interrupted. Raises `NoSuchTask`.
    """
    environment, ticks, begin = capture(), cpu_ticks(), time.monotonic()
    bench = RuntimeRun(rounds, QUICK if quick else Amounts(), floor_binary, only)
    console.print(f"nearcall-lab {__version__} runtime: {bench.placement}; {counted(rounds, 'round')}", highlight=False)

    def tell(what: str, done: int, total: int, left: float | None) -> None:
        if console.is_terminal:
            remaining = "" if left is None else f", about {int(left) // 60}:{int(left) % 60:02d} left"
            console.print(f"\r{done}/{total}{remaining}: {what}".ljust(78)[:78], end="", highlight=False)

    watch, own_before = Watch(os.sched_getaffinity(0)), _own_cpu_s()
    bench.run(tell)
    watch.stop()
    if console.is_terminal:
        console.print("\r" + " " * 78 + "\r", end="")
    # Tasks without a ping-pong do not measure other work; for these it is measured over the whole run.
    conclude(environment, ticks, bench.others or [watch.others_share(_own_cpu_s() - own_before)])
    verdicts, series = judge(bench.collected, all_of_them=only == "*"), _series(bench.collected)
    print(markdown(verdicts))
    if series:
        print(f"\n{_latencies(series)}")
    print(
        f"\n{counted(rounds, 'round')} of fresh processes in random order, {bench.placement} unless the line says "
        f"otherwise, medians, ratios paired by round with a 95 % interval (Student's, on logarithms). "
        f"{environment.cpu}, {environment.kernel}, {environment.python}."
    )
    if quick:
        print("Caution: a quick run, too short to publish.")
    for flag in environment.flags():
        print(f"Caution: {flag}.")
    if bench.interrupted:
        print("Interrupted: what was done is shown.")
    report = {
        "kind": "nearcall-lab runtime",
        "lab_version": __version__,
        "elapsed_s": round(time.monotonic() - begin, 1),
        "rounds": rounds,
        "quick": quick,
        "interrupted": bench.interrupted,
        "placement": bench.placement,
        "environment": environment,
        "red_flags": environment.flags(),
        "verdicts": verdicts,
        "latencies": series,
        "by_round": bench.collected.values,
        "problems": bench.collected.problems,
    }
    out.mkdir(parents=True, exist_ok=True)
    # Tools that read a whole run, such as the one that makes the table, must not read a part of one.
    path = out / ("runtime.json" if only == "*" else "runtime-part.json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    console.print(f"wrote {path}", highlight=False)
    return 130 if bench.interrupted else 0
