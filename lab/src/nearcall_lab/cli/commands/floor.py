"""``nearcall-lab floor``."""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from pathlib import Path

from rich.console import Console

from nearcall_lab.cli.command import above_zero

NAME = "floor"
HELP = "what cannot be beaten here: the clock, a function call, raw sockets"
EPILOG = """\
Every number of the lab contains the first three lines. The table under them is the scenario `floor`, kept like any
other run. With --floor-binary (make bench builds target/release/examples/ring_floor) the ring alone, without Python, is
measured too.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--floor-binary", metavar="PATH", help="program that measures the shared-memory ring alone")
    parser.add_argument("--launches", type=above_zero(int), metavar="N", help="fresh processes per cell")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's directory (default: a new one in out/runs)")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.cli.runs import carry_out, new_directory
    from nearcall_lab.engine.run import Options, begin
    from nearcall_lab.placement import choose
    from nearcall_lab.registry import discover
    from nearcall_lab.report.terminal import print_run
    from nearcall_lab.runtime_bench import floor
    from nearcall_lab.scenario.load import load
    from nearcall_lab.stats import format_time

    for what, ns in own_costs().items():
        console.print(f"{what:44}{format_time(ns):>10}", highlight=False)
    program, reason = floor.find(args.floor_binary)
    if program:
        for size, ns in floor.measure(program, choose("apart")).items():
            console.print(
                f"{f'ring in shared memory, Rust to Rust, {size} B':44}{format_time(ns):>10}", highlight=False
            )
    else:
        console.print(f"ring in shared memory, Rust to Rust: {reason}", highlight=False)
    scenario = load("floor", discover())
    command = ("nearcall-lab", *sys.argv[1:])
    opened = begin(args.out or new_directory("floor"), scenario, Options(args.launches, command=command))
    recorded = carry_out(opened, scenario.planned, console)
    print_run(console, recorded)
    if recorded.info.ended_early == "interrupted":
        return 130
    return int(any(cell.status == "failed" for cell in recorded.cells))


def own_costs(rounds: int = 20, calls: int = 20_000) -> dict[str, float]:
    """What measuring itself costs, in nanoseconds: the best of some rounds, since disturbance only ever adds."""
    clock = time.perf_counter_ns
    samples = array("q", bytes(8 * calls))
    pair = store = loop = float("inf")
    for _ in range(rounds):
        begin = clock()
        for _ in range(calls):
            clock()
            clock()
        pair = min(pair, (clock() - begin) / calls)
        begin = clock()
        for index in range(calls):
            samples[index] = index
        store = min(store, (clock() - begin) / calls)
        begin = clock()
        for _ in range(calls):
            pass
        loop = min(loop, (clock() - begin) / calls)
    return {
        "two readings of the clock": pair - loop,
        "keeping one sample": store - loop,
        "one turn of an empty loop": loop,
    }
