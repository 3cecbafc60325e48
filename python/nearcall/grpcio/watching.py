"""Tells servicers that their call has ended before they have: its client gave it up, or its deadline has passed."""

from __future__ import annotations

import threading

from .outcome import Outcome

__all__ = ["Watcher"]

INTERVAL = 0.02
"""Seconds between two looks. Only calls with a callback are looked at, and without any there is no thread."""


class Watcher:
    """A thread for as long as there are calls to look after; one object for each server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Outcome] = set()
        self._thread: threading.Thread | None = None

    def add(self, outcome: Outcome) -> None:
        """Runs the callbacks of a call as soon as it has ended early."""
        with self._lock:
            self._watched.add(outcome)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nearcall-grpcio-watcher", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                self._watched = {outcome for outcome in self._watched if not outcome.over}
                if not self._watched:
                    self._thread = None
                    return
                ended = [outcome for outcome in self._watched if outcome.ended_early]
                self._watched.difference_update(ended)
            for outcome in ended:
                outcome.run_callbacks()
            pause.wait(INTERVAL)
