"""What a command reads: standard input, or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from . import UsageError

__all__ = ["lines", "named_text"]


def named_text(argument: str) -> str:
    """An argument; what ``@FILE`` names, and for ``-`` all of standard input, which is closed then.

    Raises:
        UsageError: the file cannot be read, or it is no text.
    """
    if argument != "-" and not argument.startswith("@"):
        return argument
    what = "standard input" if argument == "-" else argument[1:]
    try:
        if argument == "-":
            with sys.stdin as file:
                return file.read()
        with open(argument[1:], encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise UsageError(f"{what} is no text in UTF-8") from None


def lines() -> Iterator[tuple[int, str]]:
    """The lines of standard input that are not empty, and their numbers.

    Raises:
        UsageError: it held the arguments.
    """
    if sys.stdin.closed:
        raise UsageError("standard input held the arguments: write the stream among them, as a list")
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            yield number, line
