"""``nearcall-lab doctor``."""

from __future__ import annotations

import argparse

import msgspec
from rich.console import Console
from rich.text import Text

NAME = "doctor"
HELP = "what about this machine makes numbers untrustworthy, and how to mend it"
EPILOG = """\
Looks at CPUs, frequency, clock, control groups, memory, the Python build, nearcall's own build and, for a second, at
what else is running. Nothing is changed: what could be is shown as a command.

exit status: 0 fit to measure on; 1 something should be mended before a number from here is published.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.environments.doctor import examine
    from nearcall_lab.registry import discover

    found = examine(discover())
    bad = sum(finding.level == "bad" for finding in found)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return int(bad > 0)
    styles = {"bad": "bold red", "note": "yellow", "fine": "green"}
    for level in ("bad", "note", "fine"):
        for finding in (f for f in found if f.level == level):
            console.print(Text.assemble((f"{level:5}", styles[level]), finding.what), highlight=False, soft_wrap=True)
            if finding.mend:
                console.print(Text(f"     → {finding.mend}", style="dim"), highlight=False, soft_wrap=True)
    console.print(
        f"{bad} to mend before numbers from here are published" if bad else "fit to measure on",
        style="bold",
        highlight=False,
    )
    return int(bad > 0)
