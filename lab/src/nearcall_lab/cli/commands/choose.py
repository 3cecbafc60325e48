"""``nearcall-lab choose``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from nearcall_lab.choice.needs import Payload, Security
from nearcall_lab.cli.command import UserError, above_zero, aligned, names
from nearcall_lab.contract import Style

NAME = "choose"
HELP = "which mechanism for what: the candidates for stated needs, with their numbers from stored runs"
EPILOG = """\
examples:
  nearcall-lab choose                                         two Python processes, 1 KB, one call at a time
  nearcall-lab choose --size '1 MB' --rate 500 --streaming
  nearcall-lab choose --languages go,java --other-host --security encrypted
  nearcall-lab choose --fan-out --keeps --run out/runs/one-way-20260101-120000
  nearcall-lab choose --facts                                 what is known of each, as tables in Markdown

Numbers come from all runs in out/runs, or from those that are named: of each mechanism the cell that comes closest to
what is asked for, which the table names. The facts are the lab's; lab/docs/choosing.md has them on a page.

exit status: 0 there are candidates; 1 there is none.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--other-host", action="store_true", help="the two sides are on different machines")
    parser.add_argument(
        "--languages", type=names, default=[], metavar="NAME,…", help="of the other side: go, java, … or any"
    )
    parser.add_argument("--system", choices=("linux", "macos", "windows"), default="", help="that it has to run on")
    parser.add_argument("--size", default="1 KB", help="of a message: bytes, or '10 KB' (default: 1 KB)")
    parser.add_argument("--payload", choices=get_args(Payload), default="bytes", help="NumPy arrays, or data frames")
    parser.add_argument("--rate", type=above_zero(float), default=0.0, metavar="N", help="calls or items a second")
    parser.add_argument("--at-once", type=above_zero(int), default=1, metavar="N", help="calls under way at once")
    parser.add_argument("--streaming", action="store_true", help="many items for one call")
    parser.add_argument("--one-way", action="store_true", help="messages without a reply")
    parser.add_argument("--fan-out", action="store_true", help="one message to many")
    parser.add_argument("--keeps", action="store_true", help="messages wait for who is not there")
    parser.add_argument("--security", choices=get_args(Security), default="none", help="who may be on the way, or call")
    parser.add_argument("--style", choices=get_args(Style), default="", help="how your program calls")
    parser.add_argument("--run", dest="runs", action="append", default=[], type=Path, metavar="RUN", help="repeatable")
    parser.add_argument("--facts", action="store_true", help="what is known of each library, and nothing else")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.choice import show
    from nearcall_lab.choice.choose import choose
    from nearcall_lab.choice.needs import Needs
    from nearcall_lab.cli.runs import recorded_runs
    from nearcall_lab.registry import discover
    from nearcall_lab.results.store import read

    if args.facts:
        print(show.page(), end="")
        return 0
    given = {key: value for key, value in vars(args).items() if key in Needs.__dataclass_fields__}
    needs = Needs(**{**given, "size": _size(args.size), "languages": _languages(args.languages)})
    runs = [read(path) for path in args.runs or recorded_runs()]
    choice = choose(needs, discover(), runs)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    measured = [candidate for candidate in choice.candidates if candidate.number is not None]
    for title, candidates in (("Candidates", measured), ("Slower than that, as measured", choice.too_slow)):
        if candidates:
            console.print(f"[bold]{title}[/]")
            for line in aligned([show.HEAD, *show.rows(candidates)]):
                say(f"  {line}")
    if more := [candidate.entrant.mechanism.label for candidate in choice.candidates if candidate.number is None]:
        console.print("[bold]Candidates that no stored run has measured[/]")
        say(f"  {show.in_line(more)}")
    console.print("[bold]Left out[/]")
    for reason, labels in show.left_out(choice):
        say(f"  {reason}:")
        say(f"    {labels}")
    console.print("[bold]Remember[/]")
    for remark in show.remarks(choice, needs):
        say(f"  {remark}")
    if flags := sorted({flag for recorded in runs for flag in recorded.info.environment.flags()}):
        say(f"  the machine of these runs: {'; '.join(flags)}")
    return 0 if choice.candidates else 1


def _languages(given: list[str]) -> tuple[str, ...]:
    from nearcall_lab.choice.facts import ANY_LANGUAGE, known_languages

    known = [*known_languages(), ANY_LANGUAGE]
    for name in given:
        if name.lower() not in known:
            raise UserError(
                f"--languages: the lab knows nothing of {name!r}, but of {', '.join(known[:-1])}; "
                f"'{ANY_LANGUAGE}' is another one that has an HTTP client, or can open a socket"
            )
    return tuple(name.lower() for name in given)


def _size(text: str) -> int:
    from nearcall_lab.scenario.keys import CELLS, KeyProblem

    value: Any = int(text) if text.isdigit() else text
    try:
        return int(CELLS["size"].one(value))
    except KeyProblem as problem:
        raise UserError(f"--size: {problem}") from None
