"""Reports events of plugins to the host program, in a thread in which the program's function may take long."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ...log import WARNING, log
from ..points.settings import PluginEvent

__all__ = ["Teller", "call_safely"]

OnEvent = Callable[[PluginEvent], object]


class Teller:
    """Calls a function with each event, one after the other, in a thread that begins with the first.

    Args:
        on_event: The function. It may call the host: start and stop plugins, or stop the host itself.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._events: queue.SimpleQueue[PluginEvent | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()

    def tell(self, event: PluginEvent) -> None:
        """Has the function called with an event. Does not wait."""
        with self._beginning:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nearcall-plugin-events", daemon=True)
                self._thread.start()
        self._events.put(event)

    def end(self, patience: float) -> None:
        """Waits until the function was called with all events, at most ``patience`` seconds. Called in the function
        itself, it does not wait.
        """
        with self._beginning:
            thread = self._thread
        self._events.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            call_safely(self._on_event, event)


def call_safely(on_event: OnEvent, event: PluginEvent) -> None:
    """Calls a host program's function; what it raises is logged."""
    try:
        on_event(event)
    except Exception as error:
        log(WARNING, "on_event of the plugin host raised", error=error)
