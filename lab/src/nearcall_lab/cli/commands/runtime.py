"""``nearcall-lab runtime``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from nearcall_lab.cli.command import UserError, above_zero

NAME = "runtime"
HELP = "nearcall against its own targets: Markdown and JSON"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=above_zero(int), default=5, help="fresh launches per mechanism (default 5)")
    parser.add_argument("--floor-binary", metavar="PATH", help="program that measures the shared-memory ring alone")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        default="*",
        help="only tasks with such a name, such as 'plugin*', into runtime-part.json",
    )
    parser.add_argument("--quick", action="store_true", help="shorter slices; for trying it out, not for publishing")
    parser.add_argument("--out", default="out", help="directory for runtime.json (default out)")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.runtime_bench.command import run as run_bench
    from nearcall_lab.runtime_bench.measure import NoSuchTask

    try:
        return run_bench(console, Path(args.out), args.rounds, args.floor_binary, quick=args.quick, only=args.only)
    except NoSuchTask as error:
        raise UserError(f"--only: {error}") from error
