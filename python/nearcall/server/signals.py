"""Being told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

__all__ = ["Terminated", "nothing", "raise_on_sigterm"]


class Terminated(BaseException):
    """``SIGTERM`` arrived. Raised as Ctrl-C is: the handler may have interrupted the very lock it would need."""


def raise_on_sigterm() -> Callable[[], object]:
    """Lets ``SIGTERM`` raise in the main thread; returns what undoes it."""
    if threading.current_thread() is not threading.main_thread():
        return nothing

    told = False

    def stop(number: int, frame: object) -> None:
        nonlocal told
        if not told:  # a second one must not interrupt what the first has begun
            told = True
            raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    return lambda: signal.signal(signal.SIGTERM, before)


def nothing() -> None:
    """Undoes nothing."""
