"""``nearcall-lab study``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from nearcall_lab.cli.command import UserError, above_zero, names

NAME = "study"
HELP = "a published study: its figures, its method repeated here, and the corrected tables"
EPILOG = """\
examples:
  nearcall-lab study art                 under fifteen minutes on two CPUs
  nearcall-lab study shm --quick         under three minutes, to see what it does
  nearcall-lab study shm --full          until the intervals are narrow
  nearcall-lab study rpyc-http --host ssh://me@box
                                         the corrected tables on loopback, and with the servers on another machine

Writes a run's directory with study.json and study.md in it, by default in out/studies.

exit status: 0 the study was carried out; 2 its own method could not be repeated; 130 interrupted, what was done is
shown and says so.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from nearcall_lab.studies import NAMES

    parser.add_argument("study", choices=tuple(NAMES), help="which one")
    parser.add_argument("--only", metavar="NAME,…", type=names, help="corrected tables: only these mechanisms")
    parser.add_argument("--launches", type=above_zero(int), metavar="N", help="fresh processes per cell")
    parser.add_argument("--quick", action="store_true", help="one launch, and a fiftieth of the study's own work")
    parser.add_argument("--full", action="store_true", help="all of the study's own work, and narrow intervals")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory (default: a new one in out/studies)")
    parser.add_argument("--host", metavar="URL", type=_host, help="corrected tables: also with the servers there")


def _host(url: str) -> str:
    from nearcall_lab.scenario.host import HostProblem, host_of

    try:
        host_of(url)
    except HostProblem as problem:
        raise argparse.ArgumentTypeError(f"{url} {problem}") from None
    return url


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.cli.runs import new_directory
    from nearcall_lab.engine.run import Options
    from nearcall_lab.results.store import INFO
    from nearcall_lab.studies import study
    from nearcall_lab.studies.run import FULL, QUICK, USUAL, ReplicaFailed, carry_out_study
    from nearcall_lab.studies.show import ended_early, markdown

    if args.quick and args.full:
        raise UserError("--quick and --full contradict each other")
    chosen = study(args.study)
    if args.host and chosen.elsewhere is None:
        raise UserError(f"the study {args.study} has no second host; rpyc-http has")
    directory = args.out or Path("out/studies") / new_directory(args.study).name
    effort = FULL if args.full else QUICK if args.quick else USUAL
    launches = args.launches or effort.launches
    if (directory / INFO).exists():  # checked before the study's own method, which takes minutes
        raise UserError(f"{directory} holds a run already; name another --out")
    options = Options(launches, args.full, ("nearcall-lab", *sys.argv[1:]))
    try:
        result = carry_out_study(chosen, directory, console, options, effort.scale, args.only or (), args.host or "")
    except ReplicaFailed as reason:
        raise UserError(f"the method of {args.study} could not be repeated: {reason}") from None
    text = markdown(result)
    (directory / "study.md").write_text(text, encoding="utf-8")
    console.print(Markdown(text) if console.is_terminal else text, markup=False, highlight=False, soft_wrap=True)
    console.print(f"wrote {directory / 'study.md'} and {directory / 'study.json'}", highlight=False, soft_wrap=True)
    page = f"as a page: nearcall-lab report --study {directory} --out report.html"
    console.print(page, markup=False, highlight=False, soft_wrap=True)
    if result.ended_early:
        console.print(ended_early(result), markup=False, highlight=False, soft_wrap=True)
    if result.ended_early.startswith("interrupted"):
        return 130
    return 0
