"""Being told to end."""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["Terminated", "Told", "raise_when_told"]


class Terminated(BaseException):
    """``SIGTERM`` arrived. Raised as Ctrl-C is: the handler may have interrupted the very lock it would need."""


class Told:
    """What signals have told the process since :func:`raise_when_told`."""

    def __init__(self) -> None:
        self.to_end = False
        """A signal was here. What it raised may have been swallowed: a finalizer's exceptions are."""
        self._terminated = False
        self._before: dict[int, Any] = {}

    def watch(self) -> None:
        """Begins with it. In the main thread only."""
        self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._on_sigterm)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_sigint)

    def restore(self) -> None:
        """Undoes it."""
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_sigterm(self, number: int, frame: object) -> None:
        self.to_end = True
        if not self._terminated:  # a second one must not interrupt what the first has begun
            self._terminated = True
            raise Terminated

    def _on_sigint(self, number: int, frame: object) -> None:
        self.to_end = True
        raise KeyboardInterrupt


def raise_when_told() -> Told:
    """Lets ``SIGTERM`` raise in the main thread, as Ctrl-C does; says whether one of them was here."""
    told = Told()
    if threading.current_thread() is threading.main_thread():
        told.watch()
    return told
