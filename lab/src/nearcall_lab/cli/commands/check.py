"""``nearcall-lab check``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from nearcall_lab.cli.command import UserError

if TYPE_CHECKING:
    from nearcall_lab.registry import Entrant

NAME = "check"
HELP = "whether an adapter keeps its promises; it must before its numbers mean anything"
EPILOG = """\
examples:
  nearcall-lab check nearcall-shm
  nearcall-lab check 'rpyc*' pynng --quick     messages up to 1 MB only
  nearcall-lab check ./my_adapter.py           an adapter of your own, from its file
  nearcall-lab check ./my-rpc-c                one in another language, from its directory

What passed is remembered for as long as neither the adapter nor its package changes.
nearcall-lab run says what has not passed.

exit status: 0 all promises kept, 1 some broken, 2 nothing to check.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("adapters", nargs="+", metavar="ADAPTER", help="mechanisms by name (* is anything), or a path")
    parser.add_argument("--quick", action="store_true", help="messages up to 1 MB, not 100 MB")
    parser.add_argument(
        "--ship", action="store_true", help="keep what passes of the lab's own adapters with their source"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.check.promises import PROMISES, Broken, NotPromised, Subject
    from nearcall_lab.checked import remember, ship, ships

    if args.ship and args.quick:
        raise UserError("--ship is for the whole check, and --quick leaves out a part of it")
    chosen = _chosen(args.adapters)
    broken = cannot = 0
    for name, entrant in chosen.items():
        console.print(f"[bold]{name}[/] {entrant.version}", highlight=False)
        if entrant.problem:
            console.print(f"  cannot run here: {entrant.problem}", markup=False, highlight=False, soft_wrap=True)
            cannot += 1
            continue
        subject, broken_before = Subject(entrant, args.quick, []), broken
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
        try:
            remember(entrant, passed=broken == broken_before)
            if args.ship and ships(entrant):
                ship(entrant, passed=broken == broken_before)
        except OSError as error:
            console.print(f"  cannot be remembered: {error}", markup=False, highlight=False, soft_wrap=True)
    return 1 if broken else 2 if cannot == len(chosen) else 0


def _chosen(wanted: list[str]) -> dict[str, Entrant]:
    """The mechanisms of these paths and patterns, by name. Raises `UserError`."""
    import fnmatch
    import os

    from nearcall_lab.registry import at, discover
    from nearcall_lab.scenario.keys import suggest

    known: dict[str, Entrant] = {}
    chosen: dict[str, Entrant] = {}
    for one in wanted:
        if os.sep in one or one.endswith(".py"):
            try:
                chosen |= {entrant.mechanism.name: entrant for entrant in at(one)}
            except FileNotFoundError as error:
                raise UserError(f"{one}: {error}") from None
            continue
        known = known or {entrant.mechanism.name: entrant for entrant in discover()}
        found = fnmatch.filter(known, one)
        if not found:
            raise UserError(f"no mechanism {one!r}{suggest(one, known)}; see nearcall-lab list mechanisms")
        chosen |= {name: known[name] for name in found}
    return chosen
