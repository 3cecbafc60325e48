"""Signals that tell a process to end: ``SIGTERM`` and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["Terminated", "Told", "raise_when_told"]


class Terminated(BaseException):
    """``SIGTERM`` arrived. The signal's handler raises it, as Ctrl-C does, and stops nothing itself: it may have
    interrupted code that holds a lock which stopping needs.
    """


class Told:
    """The signals that have arrived since :func:`raise_when_told`."""

    def __init__(self) -> None:
        self.to_end = False
        """A signal has arrived. What its handler raised may be lost: Python swallows exceptions in finalizers."""
        self._terminated = False
        self._before: dict[int, Any] = {}

    def watch(self) -> None:
        """Installs the handlers of the signals. In the main thread only."""
        self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._on_sigterm)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_sigint)

    def restore(self) -> None:
        """Puts the earlier handlers back."""
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_sigterm(self, number: int, frame: object) -> None:
        self.to_end = True
        if not self._terminated:  # a second signal must not interrupt what the first has begun
            self._terminated = True
            raise Terminated

    def _on_sigint(self, number: int, frame: object) -> None:
        self.to_end = True
        raise KeyboardInterrupt


def raise_when_told() -> Told:
    """Lets ``SIGTERM`` raise in the main thread, as Ctrl-C does. The result knows whether one of them has arrived."""
    told = Told()
    if threading.current_thread() is threading.main_thread():
        told.watch()
    return told
