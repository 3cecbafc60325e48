"""nearcall's own log: its lines are safe to show, and writing never fails.

The module ``logging`` is imported when there is something to write: many programs never write, and the import would be
a twelfth of the time that ``import nearcall`` takes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .types.shown import LONGEST, shown, traceback_text

if TYPE_CHECKING:
    import logging

__all__ = ["DEBUG", "ERROR", "INFO", "WARNING", "is_logged", "known_peer", "log", "write"]

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
"""The levels of ``logging``."""


def _logger() -> logging.Logger:
    import logging

    return logging.getLogger("nearcall")


def is_logged(level: int) -> bool:
    """Whether the logger ``nearcall`` writes lines of that level. As long as ``logging`` is not imported, nobody has
    configured it, and its default level counts.
    """
    return _logger().isEnabledFor(level) if "logging" in sys.modules else level >= WARNING


def log(
    level: int,
    text: str,
    *args: object,
    error: BaseException | None = None,
    begin_with_user: bool = False,
    stack: str | None = None,
) -> None:
    """Writes to the logger ``nearcall``; see :func:`write`."""
    if is_logged(level):
        write(_logger(), level, text, *args, error=error, begin_with_user=begin_with_user, stack=stack)


def write(
    logger: logging.Logger,
    level: int,
    text: str,
    *args: object,
    error: BaseException | None = None,
    extra: Mapping[str, Any] | None = None,
    begin_with_user: bool = False,
    stack: str | None = None,
) -> None:
    """Writes a line. Whatever the logging system raises must not end a thread, a loop or a call, so it is reported on
    stderr.

    Args:
        logger: The logger to write to.
        level: The line's level.
        text: The line, with places for ``args``.
        args: Its arguments; text is escaped, and cut.
        error: An exception whose traceback follows, escaped and cut.
        extra: Attributes of the record.
        begin_with_user: The traceback begins with the user's code, unless the logger writes lines for debugging.
        stack: A stack that follows, fit to be shown.
    """
    try:
        if not logger.isEnabledFor(level):
            return
        fit = tuple(shown(arg) if isinstance(arg, str) else arg for arg in args)
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        record = logger.makeRecord(logger.name, level, __file__, 0, text, fit, exc_info, None, extra)
        record.stack_info = stack
        if error is not None:
            # Formatters use this text; tools that report exceptions use the exception itself.
            record.exc_text = traceback_text(error, begin_with_user=begin_with_user and not logger.isEnabledFor(DEBUG))
        logger.handle(record)
    except (Exception, SystemExit) as problem:
        _complain(problem, text)


def known_peer(peer: dict[str, Any]) -> str:
    """The caller's identity, for a line of a log: ``pid=4711 uid=1000``."""
    return " ".join(f"{key}={peer[key]}" for key in ("pid", "uid", "address", "subject", "broker") if key in peer)


def _complain(problem: BaseException, text: str) -> None:
    import logging

    if not (logging.raiseExceptions and sys.stderr):
        return
    try:
        name = type(problem).__name__
        sys.stderr.write(f"nearcall: logging failed with {name}; what was not logged: {text[:LONGEST]}\n")
    except Exception:
        pass  # there is nowhere left to report it
