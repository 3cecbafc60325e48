"""``nearcall-lab check``."""

from __future__ import annotations

import argparse

from rich.console import Console

from nearcall_lab.cli.command import UserError

NAME = "check"
HELP = "whether an adapter keeps its promises; it must before its numbers mean anything"
EPILOG = """\
examples:
  nearcall-lab check nearcall-shm
  nearcall-lab check 'rpyc*' pynng --quick     messages up to 1 MB only

exit status: 0 all promises kept, 1 some broken, 2 nothing to check.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("adapters", nargs="+", metavar="ADAPTER", help="mechanisms by name; * stands for anything")
    parser.add_argument("--quick", action="store_true", help="messages up to 1 MB, not 100 MB")


def run(args: argparse.Namespace, console: Console) -> int:
    import fnmatch

    from nearcall_lab.check.promises import PROMISES, Broken, NotPromised, Subject
    from nearcall_lab.registry import discover
    from nearcall_lab.scenario.keys import suggest

    known = {entrant.mechanism.name: entrant for entrant in discover()}
    chosen: list[str] = []
    for pattern in args.adapters:
        found = fnmatch.filter(known, pattern)
        if not found:
            raise UserError(f"no mechanism {pattern!r}{suggest(pattern, known)}; see nearcall-lab list mechanisms")
        chosen.extend(name for name in found if name not in chosen)
    broken = cannot = 0
    for name in chosen:
        entrant = known[name]
        console.print(f"[bold]{name}[/] {entrant.version}", highlight=False)
        if entrant.problem:
            console.print(f"  cannot run here: {entrant.problem}", markup=False, highlight=False, soft_wrap=True)
            cannot += 1
            continue
        subject = Subject(entrant, args.quick, [])
        for title, promise in PROMISES:
            with console.status(title):
                try:
                    state, seen = "[green]kept[/]  ", promise(subject)
                except NotPromised as reason:
                    state, seen = "[dim]–[/]     ", str(reason)
                except Broken as reason:
                    state, seen = "[red]broken[/]", str(reason)
                    broken += 1
            console.print(f"  {state} {title}: ", end="", highlight=False)
            console.print(seen, markup=False, highlight=False, soft_wrap=True)
    return 1 if broken else 2 if cannot == len(chosen) else 0
