"""``nearcall completion bash``"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, cast

from . import UsageError

__all__ = ["add_to", "run"]

SHELLS = ("bash", "zsh", "fish")


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "completion",
        usage="nearcall completion bash | zsh | fish",
        help="print what a shell needs to complete commands and options",
        description="Print what a shell needs to complete commands and options. It needs nearcall[completion]; what it "
        "prints needs nothing.",
        epilog="example: nearcall completion bash > ~/.local/share/bash-completion/completions/nearcall",
    )
    parser.add_argument("shell", choices=SHELLS, help="for which shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the script."""
    from . import parser

    try:
        import shtab
    except ModuleNotFoundError:
        raise UsageError("completion needs shtab: pip install 'nearcall[completion]'") from None
    every = parser()
    for action in _actions(every):
        if action.metavar in ("FILE", "DIR"):
            action.complete = shtab.FILE if action.metavar == "FILE" else shtab.DIRECTORY  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    print(shtab.complete(every, options.shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            commands = cast("dict[str, argparse.ArgumentParser]", cast(Any, action).choices)
            for command in commands.values():
                yield from _actions(command)
