"""The statistics of a worker, which others read as well: it measures while one of them watches."""

from __future__ import annotations

import threading
import time

from .. import _core

__all__ = ["Watched"]


class Watched:
    """The statistics of this worker for the others.

    Args:
        core: The server.
    """

    def __init__(self, core: _core.Server) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._until = 0.0
        self._timer: threading.Timer | None = None

    def read(self, lease: float) -> bytes:
        """The statistics, in msgpack. They are measured for so many seconds more, at least."""
        with self._lock:
            self._until = max(self._until, time.monotonic() + lease)
            if self._timer is None:
                self._core.watch_statistics(True)
                self._set_timer()
        return self._core.statistics()

    def _set_timer(self) -> None:
        self._timer = threading.Timer(max(self._until - time.monotonic(), 0.0), self._on_timer)
        self._timer.daemon = True
        self._timer.name = "nearcall-watched"
        self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            if time.monotonic() < self._until:
                self._set_timer()
            else:
                self._timer = None
                self._core.watch_statistics(False)
