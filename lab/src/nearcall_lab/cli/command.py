"""What a command is, and how commands are found.

A command is one module in `nearcall_lab.cli.commands` with

* ``NAME``: the word on the command line;
* ``HELP``: one line, in small letters and without a full stop;
* ``EPILOG`` (optional): examples and exit statuses, shown as written;
* ``arguments(parser)``: adds its arguments;
* ``run(args, console) -> int``: does it, and returns the exit status.

A new file is a new command; nothing else has to be changed. A module imports what it needs inside `run`, so that
``--help`` stays quick.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, cast

from rich.console import Console

CANNOT_TELL = 3
"""Exit status where results were compared and the answer is neither yes nor no."""


class Command(Protocol):
    """The shape of a command's module."""

    NAME: str
    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, console: Console) -> int: ...


class UserError(Exception):
    """An error that the user has to correct, in one line; ends the command with the status 2."""


_USUAL_ORDER = ("doctor", "list", "run", "compare", "reproduce", "floor", "report", "demo", "runtime")


def find_commands() -> list[Command]:
    """Every command: those that a new user needs come first, the others follow by name."""
    package = importlib.import_module("nearcall_lab.cli.commands")
    names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    found = [cast(Command, importlib.import_module(name)) for name in names]

    def order(command: Command) -> tuple[int, str]:
        known = command.NAME in _USUAL_ORDER
        return (_USUAL_ORDER.index(command.NAME) if known else len(_USUAL_ORDER), command.NAME)

    return sorted(found, key=order)


def above_zero(kind: Callable[[str], float]) -> Callable[[str], float]:
    """A type for argparse: a number above zero."""

    def convert(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be above zero, not {text}")
        return value

    convert.__name__ = "number"  # argparse names the type in its own message
    return convert


def percent(text: str) -> float:
    """A type for argparse: a percentage, as a share."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a percentage such as 2 or 2%, not {text}") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"takes a percentage from 0 to 100, not {text}")
    return value


def names(text: str) -> list[str]:
    """A type for argparse: names separated by commas."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("takes names separated by commas, and there is none")
    return found


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines of columns, two spaces apart, each column as wide as its widest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, and which command shows the right usage."""

    def error(self, message: str) -> NoReturn:
        """End with the status 2."""
        if wrong := re.search(r"COMMAND: invalid choice: '([^']*)'", message):
            close = difflib.get_close_matches(wrong[1], [command.NAME for command in find_commands()], n=1)
            message = f"there is no command '{wrong[1]}'{f': did you mean {close[0]}?' if close else ''}"
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help shows what it takes\n")
