"""``nearcall-lab reproduce``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from nearcall_lab.cli.command import CANNOT_TELL, UserError, above_zero, percent

NAME = "reproduce"
HELP = "measure one cell of an earlier run again, and say whether it is the same"
EPILOG = """\
examples:
  nearcall-lab reproduce 3f9c                        the beginning of a digest, as a run's table shows it
  nearcall-lab reproduce 3f9c --run combined.json    from a run that someone else made

The two were measured at different times, so they are not paired, and a machine that was slower for a while shows.
Exit status 0 needs launches enough to show that the two differ by less than --margin; --launches gives more. What this
measures goes to out/again, and is not "the last run" of report and compare.

exit status: 0 the same within the margin; 1 it is faster or slower now; 2 it could not be measured or compared;
3 it was measured, and the launches cannot tell.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("digest", help="the cell's digest, or its beginning")
    parser.add_argument("--run", dest="source", type=Path, metavar="RUN", help="where it is (default: all of out/runs)")
    parser.add_argument("--launches", type=above_zero(int), metavar="N", help="fresh processes (default: as many)")
    parser.add_argument(
        "--margin",
        type=percent,
        default=0.05,
        metavar="PERCENT",
        help="the same where the whole interval is within it (default 5%%)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the new run's directory (default: one in out/again)")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.analysis.compare import LIMITS, compare, note
    from nearcall_lab.cli.runs import AGAIN, carry_out, find_cell, new_directory, recorded_runs
    from nearcall_lab.engine.run import Options, begin
    from nearcall_lab.registry import discover, named
    from nearcall_lab.report.terminal import print_run
    from nearcall_lab.scenario.load import Planned, Scenario, Settings

    limits = replace(LIMITS, margin=args.margin, min_effect=min(LIMITS.min_effect, args.margin))
    source, digest = find_cell(args.digest, [args.source] if args.source else recorded_runs())
    before = source.cell(digest)
    assert before is not None
    cell, info = before.cell, source.info
    entrant = named(cell.mechanism, discover())
    if entrant is None or entrant.problem:
        raise UserError(f"{cell.mechanism}: {entrant.problem if entrant else 'no such mechanism here'}")
    launches = args.launches or max(3, len(before.launches))
    settings = Settings(launches, cell.mode.seconds, cell.mode.warmup_s, cell.placement, "abba", cell.seed)
    scenario = Scenario(
        f"reproduce-{digest}", f"Again: {cell.mechanism}, {cell.title()}", "", settings, (Planned(cell, entrant),)
    )
    console.print(
        f"{cell.mechanism}, {cell.title()}, of {source.path} ({info.started}): {launches} launches",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    command = ("nearcall-lab", *sys.argv[1:])
    opened = begin(args.out or new_directory(scenario.name, AGAIN), scenario, Options(command=command))
    recorded = carry_out(opened, scenario.planned, console)
    print_run(console, recorded)
    after = recorded.cells[0]
    if recorded.info.ended_early == "interrupted":
        return 130
    if after.version != before.version:
        console.print(f"version then {before.version}, now {after.version}", highlight=False)
    if info.environment.cpu != recorded.info.environment.cpu:
        console.print(f"machine then {info.environment.cpu}, now {recorded.info.environment.cpu}", highlight=False)
    if info.cells_per_launch == "all":
        console.print("then other cells were measured in the same processes, now it has its own", highlight=False)
    comparison = compare(before, after, paired=False, limits=limits)
    console.print(f"now against then: {comparison.sentence()}", style="bold", highlight=False, soft_wrap=True)
    console.print(note([comparison], limits), style="dim", highlight=False, soft_wrap=True)
    return {"same": 0, "faster": 1, "slower": 1, "unusable": 2, "cannot tell": CANNOT_TELL}[comparison.outcome]
