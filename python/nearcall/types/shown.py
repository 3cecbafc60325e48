"""Makes text from a peer, a file or an exception safe to show in a terminal or a log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceback import TracebackException
    from types import FrameType

__all__ = ["shown", "shown_json", "traceback_of", "traceback_text"]

LONGEST = 2000
"""Characters of one text."""
_LONGEST_TRACEBACK = 32_000
"""Characters of a traceback; each part of it has at most :data:`LONGEST`."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
"""What the files of nearcall begin with."""


def shown(text: str, longest: int = LONGEST, *, keep: str = "") -> str:
    r"""The text, shortened, and without characters that control a terminal.

    Control characters, line ends, invisible characters and those that turn the direction of writing are escaped as
    ``\x1b`` or ``\u202e``. Text beyond ``longest`` characters is cut off, and replaced by its length.

    Args:
        text: Any text.
        longest: How many characters of it are kept.
        keep: Characters to leave as they are, such as line ends.
    """
    return _cut(text, len(text), longest, keep)


def _cut(text: str, length: int, longest: int, keep: str) -> str:
    """The first ``length`` characters, shown."""
    rest = length - longest
    cut = text[: min(length, longest)]
    if not cut.isprintable():
        cut = "".join(char if char.isprintable() or char in keep else _escaped(char) for char in cut)
    return f"{cut}... ({rest} characters more)" if rest > 0 else cut


def shown_json(text: str) -> str:
    """The same for JSON, whose value stays the same; nothing is cut off. Line ends are kept: they cannot be in a
    string.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped_json(char) for char in text)


def _escaped(char: str) -> str:
    # A backslash in the text is not doubled: people read the result, and no program parses it.
    return char.encode("unicode_escape").decode()


def _escaped_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def traceback_text(error: BaseException, *, begin_with_user: bool = False) -> str:
    """The traceback of an exception as Python prints it, fit to be shown. Never raises.

    Args:
        error: The exception.
        begin_with_user: See :func:`traceback_of`.
    """
    try:
        text = _joined(traceback_of(error, begin_with_user=begin_with_user).format())
    except Exception as problem:
        return f"(the traceback could not be made: {type(problem).__name__})"
    return text


def traceback_of(error: BaseException, *, begin_with_user: bool = False) -> TracebackException:
    """The traceback of an exception.

    Args:
        error: The exception.
        begin_with_user: Leave out the frames of nearcall before the first one of other code. If there are only frames
            of nearcall, all are kept.
    """
    # Imported only when something has failed: importing it takes as long as the whole room of types.
    from traceback import TracebackException

    found = TracebackException(type(error), error, error.__traceback__)
    if begin_with_user:
        others = (place for place, frame in enumerate(found.stack) if not frame.filename.startswith(_PACKAGE))
        del found.stack[: next(others, 0)]
    return found


def stack_text(frames: Sequence[FrameType]) -> str:
    """A stack as Python prints it, fit to be shown. Never raises.

    Args:
        frames: From the outermost to the innermost.
    """
    try:
        from traceback import StackSummary

        stack = StackSummary.extract((frame, frame.f_lineno) for frame in frames)
        return _joined(["Stack (most recent call last):\n", *stack.format()])
    except Exception as problem:
        return f"(the stack could not be shown: {type(problem).__name__})"


def _joined(parts: Iterable[str]) -> str:
    kept: list[str] = []
    length = 0
    for part in parts:
        # The part is not copied: an exception's text may be as long as a message.
        line = _cut(part, len(part) - part.endswith("\n"), LONGEST, "\n\t")
        if not line.startswith("  File "):
            # A text of several lines must not look like lines of the log.
            line = line.replace("\n", "\n    ")
        kept.append(line)
        length += len(line) + 1
    while length > _LONGEST_TRACEBACK and len(kept) > 2:
        # The beginning says where it was called from, the end what failed and where: the middle says least.
        length -= len(kept.pop(len(kept) // 2)) + 1
        kept[len(kept) // 2] = "  ..."
    return "\n".join(kept)
