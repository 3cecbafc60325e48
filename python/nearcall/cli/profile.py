"""``nearcall profile script.py``"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import UsageError

__all__ = ["add_arguments", "add_to", "end_like", "run", "show"]

DEFAULT_OUT = "nearcall-profile.html"

EPILOG = """\
examples:
  nearcall profile report.py --month 5          the script, with its own arguments
  nearcall profile -m package.tool              a module, as python -m runs it
  nearcall profile --sample 100 -m service      one call in a hundred, for hours
  nearcall profile pytest tests/                any command; the Python processes that it starts are profiled

Options of the profiler stand before the script. Its exit status is the script's. RPyC, grpcio, Pyro5, xmlrpc, requests
and httpx: nearcall-lab profile."""


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "profile",
        usage="nearcall profile [options] SCRIPT [ARGUMENT ...]",
        help="run a script, and show which lines wait for remote calls",
        description="Run a script as it is, and report its remote calls: which lines make them, how many, how "
        "long they wait, and what could be better. Writes a page and its data as JSON; a short table goes to standard "
        "error.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.in_order = True
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options, which other tools may have too."""
    parser.add_argument(
        "-o",
        "--out",
        default=DEFAULT_OUT,
        metavar="FILE",
        help=f"the page; .json lies beside it (default: {DEFAULT_OUT})",
    )
    parser.add_argument(
        "--sample", type=int, default=1, metavar="N", help="record one call in N, at random (default: 1)"
    )
    parser.add_argument(
        "--keep",
        type=int,
        default=250_000,
        metavar="N",
        help="records that each process keeps; of more calls a random choice (default: 250000)",
    )
    parser.add_argument("--quiet", action="store_true", help="no table")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT", help="what to run, with its arguments")


def run(options: argparse.Namespace) -> int:
    """Runs the script, and shows its profile."""
    from ..profile.running import NEARCALL

    return show(options, NEARCALL)


def show(options: argparse.Namespace, adapters: dict[str, str]) -> int:
    """The same with these adapters. Returns the script's exit status.

    Raises:
        UsageError: the command line does not make sense.
        OSError: the script cannot be started, or the page not be written.
    """
    import sys

    import msgspec

    from ..profile.page import render
    from ..profile.running import NEARCALL, Options
    from ..profile.running import run as profiled
    from ..profile.terminal import table

    words = ["-m", *options.module] if options.module is not None else options.command
    if words[:1] == ["--"]:
        words = words[1:]
    if not words or words == ["-m"]:
        raise UsageError("profile takes a script: nearcall profile script.py")
    for name, value in (("--sample", options.sample), ("--keep", options.keep)):
        if value < 1:
            raise UsageError(f"{name} {value}: at least 1")
    page = Path(options.out)
    if page.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {page}: the page's name ends with .html")
    if not page.parent.is_dir():
        raise UsageError(f"--out {page}: there is no directory {page.parent}")
    found = profiled(words, Options(options.sample, options.keep, adapters))
    data = page.with_suffix(".json")
    data.write_bytes(msgspec.json.encode(found))
    page.write_text(render(found), encoding="utf-8")
    if not options.quiet:
        said = f"\n{table(found)}\nwrote {page} and {data}"
        if adapters is NEARCALL and not any(process.calls for process in found.processes):
            said += "\ncalls by RPyC, grpcio, Pyro5, xmlrpc, requests and httpx are seen by: nearcall-lab profile"
        print(said, file=sys.stderr, flush=True)
    return end_like(found.status)


def end_like(status: int) -> int:
    """Ends as a program has: returns its exit status, or ends this process by the same signal."""
    import os
    import resource
    import signal
    import sys

    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.flush()
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status
