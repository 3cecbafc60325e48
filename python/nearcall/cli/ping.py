"""``nearcall ping URL``"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from . import UsageError
from .flags import add_client_options
from .remote import channel

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "ping",
        usage="nearcall ping [options] URL",
        help="measure the round trip to a server",
        description="Measure the time that a message to a server and back takes.",
        epilog="example: nearcall ping shm://calc -n 10",
    )
    parser.add_argument("url", metavar="URL", help="where the server is")
    parser.add_argument("-n", "--count", type=int, default=4, metavar="N", help="how often (default: 4)")
    parser.add_argument(
        "-i", "--interval", type=float, default=0.2, metavar="S", help="seconds between two (default: 0.2)"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints each round trip and their summary."""
    if options.count < 1:
        raise UsageError(f"-n {options.count}: at least one ping is needed")
    if options.interval < 0:
        raise UsageError(f"-i {options.interval}: the interval cannot be negative")
    times: list[float] = []
    try:
        with channel(options) as opened:
            for number in range(options.count):
                if number:
                    time.sleep(options.interval)
                seconds = float(opened.ping())
                times.append(seconds)
                print(f"{number + 1}: {duration(seconds)}", flush=True)
    finally:  # also after Ctrl-C, as ping does
        if times:
            middle = statistics.median(times)
            print(f"min {duration(min(times))}, median {duration(middle)}, max {duration(max(times))}", flush=True)


def duration(seconds: float) -> str:
    """A time for people, with three significant digits: ``4.21 us``."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
