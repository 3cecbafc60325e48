"""Functions that are run when nobody waits for a call any more, although its handler still runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from .. import _core
from ..log import ERROR, log

__all__ = ["watch_early_end"]

Callback = Callable[[Callable[[], None]], object]

_IDLE = 1.0
"""Seconds for which the thread stays while no call is watched."""


class _EarlyEnds:
    """The early ends of one process, and the thread that runs the errands: there is one only while calls are
    watched.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begins with no calls and no thread."""
        self._lock = threading.Lock()
        self._core = _core.EarlyEnds()
        self._thread: threading.Thread | None = None

    def watch(self, call: _core.Call, callback: Callback) -> bool:
        with self._lock:
            watched = self._core.watch(call, callback)
            if watched and self._thread is None:
                thread = threading.Thread(target=self._run, name="nearcall-early-ends", daemon=True)
                thread.start()
                self._thread = thread  # only now: starting it may have failed
        return watched

    def _run(self) -> None:
        while True:
            found = self._core.next(_IDLE)
            if found is not None:
                callback, left = found
                try:
                    callback(left.done)
                except BaseException as error:  # the thread serves all calls
                    left.done()
                    log(ERROR, "a callback for the early end of a call raised %s", type(error).__name__, error=error)
                # While waiting for the next callback, this thread must not keep alive what the last one refers to.
                del found, callback, left
                continue
            with self._lock:
                if self._core.idle:
                    self._thread = None
                    return


_ends = _EarlyEnds()
# A forked child has no such thread, and none of the calls.
os.register_at_fork(after_in_child=_ends.begin)


def watch_early_end(call: _core.Call, callback: Callback) -> bool:
    """Calls ``callback``, once and in a thread of its own, if the caller gives the call up or is gone, or its deadline
    passes, before the handler has ended. If that has happened already, at once. What it raises goes to the log.

    ``callback`` gets a function, to be called when all that it stands for is done. Until then the call is under way.

    Returns:
        Whether ``callback`` may still be called: not if the handler has ended.
    """
    return _ends.watch(call, callback)
