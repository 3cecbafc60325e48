"""The deadline of calls: a block that gives every call inside it one."""

from __future__ import annotations

import time

from ..options.checked import check_seconds
from .block import Block
from .variables import current_deadline

__all__ = ["timeout"]


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
        InvalidArgument: ``seconds`` is no such number.
    """

    __slots__ = ("_seconds",)
    _variable = current_deadline

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = check_seconds("timeout", seconds, endless=True)

    def _inside(self, outer: float | None) -> float:
        deadline = time.monotonic() + self._seconds
        return deadline if outer is None else min(deadline, outer)
