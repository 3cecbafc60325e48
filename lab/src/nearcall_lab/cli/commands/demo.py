"""``nearcall-lab demo``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from nearcall_lab.cli.command import above_zero, names

NAME = "demo"
HELP = "every mechanism beside its peers, in about four minutes: a table, JSON and a page"
EPILOG = """\
It runs the scenario "demo" and shows it in a table of its own. What is in --out afterwards:
  demo.json    the table; `make readme` puts it into the README
  demo.html    the page that `nearcall-lab report` makes of the run
  runs/        the run itself, for `nearcall-lab report`, `compare` and `run --resume`
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launches", type=above_zero(int), metavar="N", help="fresh processes per mechanism")
    parser.add_argument("--limit", type=above_zero(float), metavar="SECONDS", help="start no launch after so long")
    parser.add_argument("--only", metavar="NAME,…", type=names, help="only these mechanisms; * stands for anything")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="where it all goes (default: out)")


def run(args: argparse.Namespace, console: Console) -> int:
    import msgspec

    from nearcall_lab.cli.runs import announce, carry_out, new_directory
    from nearcall_lab.demo.results import report_of
    from nearcall_lab.demo.terminal import FirstNumbers, print_report
    from nearcall_lab.engine.run import Options, begin
    from nearcall_lab.registry import discover
    from nearcall_lab.report import page
    from nearcall_lab.report.model import prepare
    from nearcall_lab.scenario.load import load

    scenario = load("demo", discover())
    if args.only:
        scenario = scenario.only(args.only)
    options = Options(args.launches, command=("nearcall-lab", *sys.argv[1:]), limit_s=args.limit)
    opened = begin(new_directory(scenario.name, args.out / "runs"), scenario, options)
    announce(console, opened, scenario.planned)
    if (build := opened.info.environment.build) and any(
        p.cell.mechanism.startswith("nearcall") for p in scenario.planned
    ):
        console.print(f"nearcall was built {build}", markup=False, highlight=False, soft_wrap=True)
    recorded = carry_out(opened, scenario.planned, console, FirstNumbers(console))
    report = report_of(recorded)
    print_report(console, report)
    (args.out / "demo.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (args.out / "demo.html").write_text(page.render(prepare([recorded])), encoding="utf-8")
    wrote = f"wrote {args.out / 'demo.json'} and {args.out / 'demo.html'}"
    console.print(wrote, markup=False, highlight=False, soft_wrap=True)
    return 130 if recorded.info.ended_early == "interrupted" else 0
