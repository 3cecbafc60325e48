"""Handlers that sleep, and for how long all workers of their server did: then it had nobody who could answer a call.

That is what an honest client waits if its server has few workers, and the attack is calls of handlers that sleep.
"""

from __future__ import annotations

import threading
import time

from .lateness import Notes


class _Naps:
    """Counts them."""

    def __init__(self) -> None:
        self.notes: Notes | None = None
        self.workers = 0
        self._lock = threading.Lock()
        self._napping = 0
        self._since = 0.0

    def begin(self) -> None:
        with self._lock:
            self._napping += 1
            if self._napping == self.workers:
                self._since = time.monotonic()

    def end(self, notes: Notes) -> None:
        with self._lock:
            if self._napping == self.workers:
                notes.add(time.monotonic() - self._since)
            self._napping -= 1


_naps = _Naps()


def record_naps(path: str, workers: int) -> None:
    """From now on, notes in a file for how many seconds this many threads slept in :func:`nap` at once: each time from
    the moment the last of them began to the moment the first of them ended."""
    _naps.notes, _naps.workers = Notes(path), workers


def nap(seconds: float) -> None:
    """What a handler does that takes its time."""
    notes = _naps.notes
    if notes is None:
        time.sleep(seconds)
        return
    _naps.begin()
    try:
        time.sleep(seconds)
    finally:
        _naps.end(notes)
