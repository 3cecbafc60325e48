"""``nearcall.timeout``: the deadline of the calls inside a block."""

from __future__ import annotations

import time
from contextvars import ContextVar, Token
from types import TracebackType

from . import _core

__all__ = ["timeout"]

_deadline: ContextVar[float | None] = ContextVar("nearcall.deadline", default=None)
_core.set_deadline_variable(_deadline)


class timeout:  # noqa: N801 - reads as a word: with nearcall.timeout(0.5)
    """Gives every call inside the block a deadline, counted from the block's beginning.

    Blocks nest; the nearest deadline counts. A call that is not answered in time raises
    :class:`~nearcall.DeadlineExceeded` and is given up at the server, too. Works in threads and in tasks alike::

        with nearcall.timeout(0.5):
            calc.add(1, 2)

    Args:
        seconds: Seconds from now, zero or more.
    """

    __slots__ = ("_seconds", "_token")

    def __init__(self, seconds: float) -> None:
        if not seconds >= 0:
            raise ValueError(f"a timeout is a number of seconds, zero or more, not {seconds!r}")
        self._seconds = seconds
        self._token: Token[float | None] | None = None

    def __enter__(self) -> timeout:
        if self._token is not None:
            raise RuntimeError("this timeout is in use already; make a new one with nearcall.timeout(...)")
        deadline = time.monotonic() + self._seconds
        outer = _deadline.get()
        self._token = _deadline.set(deadline if outer is None else min(deadline, outer))
        _core.count_deadlines(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _deadline.reset(self._token)
            self._token = None
            _core.count_deadlines(False)
