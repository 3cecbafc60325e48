"""``nearcall-lab report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

NAME = "report"
HELP = "show a run that was made earlier"
EPILOG = """\
examples:
  nearcall-lab report                               the last run in out/runs
  nearcall-lab report out/runs/quick-20260101-120000
  nearcall-lab report combined.json                 the one file of a run, from wherever it came
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", nargs="?", type=Path, metavar="RUN", help="a run's directory or combined.json")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.cli.runs import latest
    from nearcall_lab.report.terminal import print_run
    from nearcall_lab.results.store import read

    recorded = read(args.run_path or latest())
    console.print(f"{recorded.info.title} ({recorded.path}, {recorded.info.started})", markup=False, highlight=False)
    print_run(console, recorded)
    return 0
