"""Lets one thread at a time run a plugin's code: old plugins were written for a host with one thread for all of
them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from ...call.variables import current_deadline
from ...errors import DeadlineExceeded

__all__ = ["Turn", "turn"]


class Turn:
    """The right to run the plugin's code, which one thread has at a time. It is a context manager.

    A thread gives the turn away while it waits for the host (:meth:`away`). So a handler may call the host, and the
    host may call another handler of the plugin before it answers, as in one process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            self._wait()
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()

    @contextmanager
    def away(self) -> Generator[None]:
        """Gives the turn away until the block ends, if this thread has it. Exceptions of the block pass through."""
        if self._owner != threading.get_ident():
            yield
            return
        depth, self._depth, self._owner = self._depth, 0, None
        self._lock.release()
        try:
            yield
        finally:
            # Without a deadline: this thread was running the plugin's code, and must be able to finish it.
            self._lock.acquire()
            self._owner, self._depth = threading.get_ident(), depth

    def _wait(self) -> None:
        until = current_deadline.get()
        if until is None:
            self._lock.acquire()
        elif not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise DeadlineExceeded("other code of this plugin had not come to an end in time")


turn = Turn()
"""The turn of this process."""
