"""What is to be done when nobody waits for a call any more, although its handler is not through."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from .. import _core
from ..log import ERROR, log

__all__ = ["watch_early_end"]

_IDLE = 1.0
"""Seconds for which the thread stays when no call is watched."""


class _EarlyEnds:
    """Those of one process, and the thread that runs what is to be done: there is one only while calls are watched."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begins without any."""
        self._lock = threading.Lock()
        self._core = _core.EarlyEnds()
        self._thread: threading.Thread | None = None

    def watch(self, call: _core.Call, errand: Callable[[], object]) -> bool:
        with self._lock:
            watched = self._core.watch(call, errand)
            if watched and self._thread is None:
                thread = threading.Thread(target=self._run, name="nearcall-early-ends", daemon=True)
                thread.start()
                self._thread = thread  # one that could not be started is none
        return watched

    def _run(self) -> None:
        while True:
            errand = self._core.next(_IDLE)
            if errand is not None:
                try:
                    errand()
                except (Exception, SystemExit) as error:  # the thread is everybody's
                    log(ERROR, "a callback for the early end of a call raised %s", type(error).__name__, error=error)
                # Until the next one, what it holds is not held here.
                del errand
                continue
            with self._lock:
                if self._core.idle:
                    self._thread = None
                    return


_ends = _EarlyEnds()
# In a child by fork there is no thread, and none of the calls.
os.register_at_fork(after_in_child=_ends.begin)


def watch_early_end(call: _core.Call, errand: Callable[[], object]) -> bool:
    """Runs ``errand``, once and in a thread of its own, if the caller gives the call up or is gone, or its deadline
    passes, before the handler is through. At once if that is so already. What it raises goes to the log.

    Returns:
        Whether it may: not if the handler is through.
    """
    return _ends.watch(call, errand)
