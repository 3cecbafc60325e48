"""The command line. Every file in `commands` is one command; this one only finds and runs them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from rich.console import Console

from nearcall_lab import __version__
from nearcall_lab.cli.command import Parser, UserError, find_commands
from nearcall_lab.registry import AdapterError
from nearcall_lab.results.store import StoreError
from nearcall_lab.scenario.load import ScenarioError

_WIDTH_WITHOUT_TERMINAL = 190
"""Columns when the output goes to a file: enough for a wide table in one piece."""

_DESCRIPTION = "RPC mechanisms measured on identical work, on your own machine, with every reply verified."

_EPILOG = """\
a first hour:
  nearcall-lab doctor                       is this machine fit to measure on?
  nearcall-lab list                         what can run here, and what there is to run
  nearcall-lab run quick                    every mechanism once around, in about three minutes
  nearcall-lab run ping-pong --only 'nearcall-*,raw-*'
  nearcall-lab compare raw-unix nearcall-unix     two mechanisms of the last run: who is faster, and how sure is it

exit status: 0 fine; 1 it ran and found something bad (what that is, `COMMAND --help` says);
2 it could not run, or there is nothing to compare; 3 it ran and cannot tell; 130 interrupted, what was done is kept.
"""


def _parser() -> Parser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser("nearcall-lab", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw)
    parser.add_argument("--version", action="version", version=__version__)
    known = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in find_commands():
        about = f"{command.HELP[0].upper()}{command.HELP[1:]}."
        sub = known.add_parser(
            command.NAME,
            help=command.HELP,
            description=about,
            epilog=getattr(command, "EPILOG", None),
            formatter_class=raw,
        )
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = _parser().parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)
    try:
        return int(args.run(args, console))
    except (AdapterError, UserError, ScenarioError, StoreError) as error:
        print(f"nearcall-lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nearcall-lab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
