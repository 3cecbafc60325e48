"""Reads the command line with argparse; an error is one line that says what to do."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["CommandParser", "add_action"]

_NO_CHOICE = re.compile(r"invalid choice: '([^']*)'")


class CommandParser(argparse.ArgumentParser):
    """A command, or a group of commands.

    Options of a command may stand anywhere, even before an argument that can be left out.
    """

    in_order = False
    """Whether options stand before the arguments alone: these are another program's, with options of its own."""
    instead: str = ""
    """What to write in place of too many arguments, for the message."""
    elsewhere: Mapping[str, str] = {}
    """Commands that another program has: how each is written there."""
    _inside = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Nothing is taken for another option that begins so: --token would be a file, and be printed as one.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """As in argparse, but options and arguments may be mixed: ``parse_known_intermixed_args`` calls this method
        again.
        """
        if self._inside or self.in_order or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._inside = True
        try:
            found, extras = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False
        if extras:
            self.error(self._not_known(extras))
        return found, extras

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        if self._subparsers is not None:
            choice = _NO_CHOICE.search(message)
            if choice is None:  # without a command the program shows its help
                self.exit(2, self.format_help())
            meant = self._meant(choice[1], [*self._commands(), *self.elsewhere])
            message = f"there is no command '{choice[1]}'{meant}"
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _not_known(self, extras: list[str]) -> str:
        first = extras[0]
        if first.startswith("-"):
            flag = first.partition("=")[0]
            return f"there is no option {flag}{self._meant(flag, list(self._option_string_actions))}"
        return f"'{first}' is one argument too many{f': {self.instead}' if self.instead else ''}"

    def _commands(self) -> list[str]:
        return [name for action in self._actions for name in action.choices or ()]

    def _meant(self, given: str, known: list[str]) -> str:
        close = difflib.get_close_matches(given, known, n=1)
        return f": did you mean {self.elsewhere.get(close[0], close[0])}?" if close else ""


def add_action(actions: Any, name: str, run: Any, text: str, *, example: str = "") -> argparse.ArgumentParser:
    """Adds an action of a command.

    Args:
        actions: The command's.
        name: Its name.
        run: Carries it out.
        text: What it does, in one line.
        example: A whole command; empty: none is shown.
    """
    epilog = f"example: {example}" if example else None
    description = f"{text[0].upper()}{text[1:]}."
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=description, epilog=epilog)
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser
