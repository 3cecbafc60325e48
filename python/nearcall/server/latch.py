"""Waiting that a signal's handler may break off anywhere."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from time import monotonic

__all__ = ["Latch"]

_LONGEST = threading.TIMEOUT_MAX


class Latch:
    """A ``threading.Event`` that is set once, for waits in the main thread.

    ``Event`` has a lock that its methods take in Python code: if a signal's handler raises just after that, it stays
    locked, and whoever sets the event waits for ever (https://github.com/python/cpython/issues/74174). Here nothing is
    locked while Python code runs: each waiting thread has a lock of its own, and ``deque`` takes turns by itself.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: deque[threading.Lock] = deque()

    def is_set(self) -> bool:
        """Whether :meth:`set` was called."""
        return self._is_set

    def set(self) -> None:
        """Wakes all who wait, and lets nobody wait any more."""
        self._is_set = True
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft().release()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, at most ``timeout`` seconds. Returns whether it is set."""
        until = None if timeout is None else monotonic() + timeout
        mine = threading.Lock()
        mine.acquire()
        self._waiting.append(mine)
        # Who set it before that line has not seen this lock.
        if not self._is_set:
            mine.acquire(timeout=-1 if until is None else min(max(0.0, until - monotonic()), _LONGEST))
            if not self._is_set:
                with contextlib.suppress(ValueError):  # it was set meanwhile
                    self._waiting.remove(mine)
        return self._is_set
