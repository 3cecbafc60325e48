"""When a server stops: the hooks that are still to run for clients that have gone, and for released objects."""

from __future__ import annotations

import threading
import time
from contextvars import Context

from .. import _core

__all__ = ["end_departures"]

_PATIENCE = 5.0
"""Seconds that a stopping server waits, after its grace, for the functions that its user runs when clients leave."""
_AT_ONCE = 8
"""Departures that are handled at the same time."""


def end_departures(core: _core.Server, context: Context) -> bool:
    """Handles the departures that no worker of a closed server has handled, in threads, because the user's functions
    may hang.

    Args:
        core: The server.
        context: What the contexts of these functions are copies of.

    Returns:
        Whether all have ended. Those that take longer than 5 seconds are not waited for.
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
            time.sleep(0.001)  # a worker thread that is just ending may still add some

    try:
        for number in range(_AT_ONCE):
            run, name = context.copy().run, f"nearcall-departures-{number + 1}"
            threading.Thread(target=run, args=(end_some,), name=name, daemon=True).start()
    except RuntimeError:
        context.copy().run(end_some)  # no more threads, or the interpreter ends
    while time.monotonic() < until:
        if core.departures_ended():
            return True
        time.sleep(0.001)
    return False
