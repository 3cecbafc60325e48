"""``nearcall-lab install``."""

from __future__ import annotations

import argparse

from rich.console import Console

from nearcall_lab.cli.command import UserError

NAME = "install"
HELP = "make the environments of mechanisms whose dependencies conflict with the others'"
EPILOG = """\
examples:
  nearcall-lab install                   all that are missing
  nearcall-lab install grpc-framework    this one, anew
  nearcall-lab install --list            what there is, and why
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, even if they are installed")
    parser.add_argument("--list", action="store_true", help="say what there is, and install nothing")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.environments.manage import InstallFailed, definitions, home, install, python_of
    from nearcall_lab.scenario.keys import suggest

    known = definitions()
    for name in args.names:
        if name not in known:
            raise UserError(f"unknown environment {name!r}{suggest(name, known)}; there are: {', '.join(known)}")
    if args.list:
        for name, definition in known.items():
            state = f"installed in {home(name)}" if python_of(name) else "not installed"
            console.print(f"{name}: {definition.why}; {state}", highlight=False, soft_wrap=True)
        return 0
    failed = 0
    for name in args.names or [name for name in known if python_of(name) is None]:
        with console.status(f"installing {name}"):
            try:
                install(name)
            except InstallFailed as reason:
                console.print(f"{name}: not installed: {reason}", highlight=False, soft_wrap=True, markup=False)
                failed += 1
                continue
        console.print(f"{name}: installed", highlight=False)
    return 1 if failed else 0
