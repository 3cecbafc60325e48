"""``nearcall-lab install``."""

from __future__ import annotations

import argparse

from rich.console import Console

from nearcall_lab.cli.command import UserError

NAME = "install"
HELP = "make environments for mechanisms that conflict with others, and build those in other languages"
EPILOG = """\
examples:
  nearcall-lab install                   all that are missing
  nearcall-lab install grpc-framework    this one, anew
  nearcall-lab install go node           the programs in Go and in Node.js, from their registries
  nearcall-lab install --list            what there is, and why
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, even if they are installed")
    parser.add_argument("--list", action="store_true", help="say what there is, and install nothing")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.environments.manage import InstallFailed, definitions, home, install, python_of
    from nearcall_lab.programs.build import LANGUAGES, build, lacks, missing
    from nearcall_lab.scenario.keys import suggest

    known = {name: definition.why for name, definition in definitions().items()}
    known |= {name: language.why for name, language in LANGUAGES.items()}

    def absent(name: str) -> bool:
        return bool(missing(name)) if name in LANGUAGES else python_of(name) is None

    for name in args.names:
        if name not in known:
            raise UserError(f"there is no {name!r} to install{suggest(name, known)}; there are: {', '.join(known)}")
    if args.list:
        for name, why in known.items():
            state = "not installed" if absent(name) else f"installed in {home(name)}"
            console.print(f"{name}: {why}; {state}", highlight=False, soft_wrap=True)
        return 0
    failed = 0
    for name in args.names or filter(absent, known):
        if not args.names and name in LANGUAGES and (reason := lacks(name)):
            console.print(f"{name}: left out: {reason}", highlight=False, soft_wrap=True, markup=False)
            continue
        with console.status(f"installing {name}"):
            try:
                build(name) if name in LANGUAGES else install(name)
            except InstallFailed as reason:
                console.print(f"{name}: not installed: {reason}", highlight=False, soft_wrap=True, markup=False)
                failed += 1
                continue
        console.print(f"{name}: installed", highlight=False)
    return 1 if failed else 0
