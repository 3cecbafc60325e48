"""The deadline of calls: a block that gives every call inside it one."""

from __future__ import annotations

import time
from contextvars import ContextVar, Token

from .. import _core
from ..options.checked import check_seconds
from .block import Block

__all__ = ["current_deadline", "enter_deadline", "leave_deadline", "timeout"]

current_deadline: ContextVar[float | None] = ContextVar("nearcall.deadline", default=None)
"""The deadline of the surrounding blocks, in seconds of ``time.monotonic()``; the core reads it with every call."""


def enter_deadline(at: float) -> Token[float | None]:
    """Gives calls a deadline from now on, in this thread or task, until :func:`leave_deadline`. It is what a block of
    :class:`timeout` does, for callers that know the instant and call often.

    Args:
        at: Seconds of ``time.monotonic()``, no later than any surrounding deadline.
    """
    token = current_deadline.set(at)
    _core.count_blocks(True)
    return token


def leave_deadline(token: Token[float | None]) -> None:
    """Ends what :func:`enter_deadline` began."""
    current_deadline.reset(token)
    _core.count_blocks(False)


class timeout(Block[float]):  # noqa: N801 - reads as a word: with nearcall.timeout(0.5)
    """Gives every call inside the block a deadline, counted from the block's beginning.

    Blocks nest; the nearest deadline counts. A call that is not answered in time raises
    :class:`~nearcall.DeadlineExceeded` and is given up at the server, too. A handler's own calls inherit its deadline
    without any block. Works in threads and in tasks alike::

        with nearcall.timeout(0.5):
            calc.add(1, 2)

    Args:
        seconds: Seconds from now, zero or more.

    Raises:
        InvalidArgument: it is no such number.
    """

    __slots__ = ("_seconds",)
    _variable = current_deadline

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = check_seconds("timeout", seconds, endless=True)

    def _inside(self, outer: float | None) -> float:
        deadline = time.monotonic() + self._seconds
        return deadline if outer is None else min(deadline, outer)
