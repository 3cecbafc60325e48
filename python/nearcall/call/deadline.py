"""The deadline of calls: a block that gives every call inside it one."""

from __future__ import annotations

import time
from contextvars import ContextVar, Token
from types import TracebackType

from .. import _core
from ..options.checked import check_seconds

__all__ = ["current_deadline", "timeout"]

current_deadline: ContextVar[float | None] = ContextVar("nearcall.deadline", default=None)
"""The deadline of the surrounding blocks, in seconds of ``time.monotonic()``; the core reads it with every call."""


class timeout:  # noqa: N801 - reads as a word: with nearcall.timeout(0.5)
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

    __slots__ = ("_seconds", "_token")

    def __init__(self, seconds: float) -> None:
        self._seconds = check_seconds("timeout", seconds, endless=True)
        self._token: Token[float | None] | None = None

    def __enter__(self) -> timeout:
        if self._token is not None:
            raise RuntimeError("this timeout is in use already; make a new one with nearcall.timeout(...)")
        deadline = time.monotonic() + self._seconds
        outer = current_deadline.get()
        self._token = current_deadline.set(deadline if outer is None else min(deadline, outer))
        _core.count_blocks(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            current_deadline.reset(self._token)
            self._token = None
            _core.count_blocks(False)
