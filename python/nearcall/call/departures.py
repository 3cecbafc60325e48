"""What is left to do for clients that have gone, and for objects that were let go of, when a server stops."""

from __future__ import annotations

import threading
import time

from .. import _core

__all__ = ["end_departures"]

_PATIENCE = 5.0
"""Seconds that a server that stops waits, after its grace, for what its user does when clients leave."""
_AT_ONCE = 8
"""Departures that are told of at the same time."""


def end_departures(core: _core.Server) -> bool:
    """Tells of what no worker of a closed server has told of: in threads, because what a user does then may hang.

    Returns:
        Whether all is through. What takes longer than 5 seconds is not waited for.
    """
    if core.departures_ended():
        return True  # the usual case, without threads

    until = time.monotonic() + _PATIENCE

    def end_some() -> None:
        while True:
            if core.end_departure():
                continue
            if core.departures_ended() or time.monotonic() >= until:
                return
            time.sleep(0.001)  # a worker that ends just now may still bring some

    try:
        for number in range(_AT_ONCE):
            threading.Thread(target=end_some, name=f"nearcall-departures-{number + 1}", daemon=True).start()
    except RuntimeError:
        end_some()  # no more threads, or the interpreter ends
    while time.monotonic() < until:
        if core.departures_ended():
            return True
        time.sleep(0.001)
    return False
