"""``nearcall-lab profile``."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from nearcall_lab.cli.command import UserError

NAME = "profile"
HELP = "a script's remote calls by RPyC, grpcio, Pyro5, xmlrpc, requests, httpx and nearcall: which lines wait"
EPILOG = """\
examples:
  nearcall-lab profile report.py --month 5          the script, with its own arguments
  nearcall-lab profile -m package.tool              a module, as python -m runs it
  nearcall-lab profile --sample 100 -m service      one call in a hundred, for hours

Options of the profiler stand before the script. Its exit status is the script's. It writes a page and its data as JSON;
docs/guide/profiling.md explains them.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from nearcall.cli.profile import add_arguments

    add_arguments(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall.cli import UsageError
    from nearcall.cli.profile import show
    from nearcall.profile import NEARCALL

    from nearcall_lab.profiling import ADAPTERS

    sys.stdout.flush()
    try:
        return int(show(args, {**NEARCALL, **ADAPTERS}))
    except (UsageError, OSError) as error:
        raise UserError(str(error)) from None
