"""``nearcall-lab run``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from nearcall_lab.cli.command import UserError, above_zero, aligned, names

if TYPE_CHECKING:
    from nearcall_lab.scenario.load import Planned, Settings

NAME = "run"
HELP = "run a scenario: one of the lab's, or a TOML file of your own"
EPILOG = """\
examples:
  nearcall-lab run quick                                every mechanism once around, in about three minutes
  nearcall-lab run saturation --only 'nearcall-*,grpcio-*' --launches 10
  nearcall-lab run mine.toml --full                     go on until the intervals are narrow
  nearcall-lab run --resume out/runs/quick-20260101-120000

A run is a directory: run.json, a file for each cell, combined.json, and results.sqlite for questions of your own. It is
written after every launch, so Ctrl-C, a crash or a full disk keeps what is done, and --resume goes on from there.
A mechanism that is missing, fails or hangs shows its reason, and the others go on.

exit status: 0 every cell that can run here has numbers; 1 some failed; 2 nothing could be run; 130 interrupted.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", help="a name that `nearcall-lab list scenarios` shows, or a .toml file")
    parser.add_argument("--only", metavar="NAME,…", type=names, help="only these mechanisms; * stands for anything")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's directory (default: a new one in out/runs)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with a run that ended early")
    parser.add_argument("--launches", type=above_zero(int), metavar="N", help="fresh processes per cell")
    parser.add_argument(
        "--full", action="store_true", help="more launches until every interval is within 2 %%, or there are 30"
    )
    parser.add_argument("--limit", type=above_zero(float), metavar="SECONDS", help="start no launch after so long")
    parser.add_argument(
        "--observe",
        action="store_true",
        help="afterwards count system calls and switches per call (needs strace or perf)",
    )
    parser.add_argument("--plan", action="store_true", help="say what would be run, and run nothing")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.cli.runs import announce, carry_out, new_directory
    from nearcall_lab.engine.run import Options, begin, resume
    from nearcall_lab.registry import discover
    from nearcall_lab.report.terminal import print_run
    from nearcall_lab.scenario.load import load

    entrants = discover()
    if args.resume:
        if args.scenario or args.only or args.out or args.launches or args.plan:
            raise UserError(
                "--resume goes on with a run as planned: it takes no scenario, --only, --out, --launches or --plan"
            )
        opened, planned = resume(args.resume, entrants)
        if args.full:
            opened.info.full = True
        if args.observe:
            opened.info.observe = True
        if args.limit:
            opened.info.limit_s = args.limit
    else:
        if not args.scenario:
            raise UserError("run takes a scenario; nearcall-lab list scenarios shows those there are")
        scenario = load(args.scenario, entrants)
        if args.only:
            scenario = scenario.only(args.only)
        planned = list(scenario.planned)
        if args.plan:
            return _plan(console, planned, args.launches, scenario.settings)
        if all(p.problem for p in planned):
            raise UserError(f"nothing of {args.scenario} can run here: {planned[0].problem}")
        command = ("nearcall-lab", *sys.argv[1:])
        options = Options(args.launches, args.full, command, args.limit, args.observe)
        opened = begin(args.out or new_directory(args.scenario), scenario, options)
    announce(console, opened, planned)
    _say_what_is_unchecked(console, planned)
    recorded = carry_out(opened, planned, console)
    print_run(console, recorded)
    page = f"as a page: nearcall-lab report {recorded.path} --out report.html"
    console.print(page, markup=False, highlight=False, soft_wrap=True)
    if recorded.info.ended_early:
        console.print(f"go on with: nearcall-lab run --resume {recorded.path}", highlight=False, soft_wrap=True)
    if recorded.info.ended_early == "interrupted":
        return 130
    return int(any(cell.status == "failed" for cell in recorded.cells))


def _say_what_is_unchecked(console: Console, planned: Sequence[Planned]) -> None:
    from nearcall_lab.checked import unchecked

    if names := unchecked(p.entrant for p in planned if not p.problem):
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        said = f"not checked as they are now: {shown}; nearcall-lab check NAME says whether they keep their promises"
        console.print(said, markup=False, highlight=False, soft_wrap=True)


def _plan(console: Console, planned: Sequence[Planned], wanted: int | None, settings: Settings) -> int:
    from nearcall_lab.engine.progress import clock_text
    from nearcall_lab.engine.run import expected_seconds
    from nearcall_lab.stats import counted

    rows = [
        (p.cell.digest(), p.cell.mechanism, p.cell.title(), p.problem and f"left out: {p.problem}") for p in planned
    ]
    for line in aligned([("cell", "mechanism", "work", ""), *rows]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    able, launches = [p.cell for p in planned if not p.problem], wanted or settings.launches
    about = clock_text(expected_seconds(able, launches, settings.cells_per_launch))
    console.print(f"{counted(len(able), 'cell')}, {counted(launches, 'launch')} each, about {about}", highlight=False)
    return 0
