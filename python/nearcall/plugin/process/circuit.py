"""Decides whether a plugin is asked: a plugin that did not answer in time is left alone until it answers again.

It is the circuit breaker of Nygard, "Release It!" (2007), with a probe: before a plugin is asked again, its process is
asked whether the handlers that were late have ended. So a hung plugin costs its budget once.
"""

from __future__ import annotations

import threading
import time
from typing import Literal

__all__ = ["Circuit"]

_FIRST = 0.25
"""Seconds until the first probe."""
_LONGEST = 30.0
"""Seconds between two probes at most."""


class Circuit:
    """The state of one plugin. Any thread may use it."""

    def __init__(self) -> None:
        self.state: Literal["closed", "open", "trial"] = "closed"
        """``closed``: the plugin is asked. ``open``: it is not. ``trial``: it has answered the probe, and may get one
        call.
        """
        self._pause = _FIRST
        self._trial_taken = False
        self._change = threading.Lock()
        self.silent_since = 0.0
        """While the state is ``open``: when the plugin first failed to answer, by the monotonic clock."""

    def allows(self) -> bool:
        """Whether the plugin may be asked now. If so, :meth:`answered`, :meth:`late` or :meth:`given_up` must
        follow.
        """
        if self.state == "closed":
            return True
        with self._change:
            if self.state != "trial" or self._trial_taken:
                return False
            self._trial_taken = True
            return True

    def answered(self) -> bool:
        """Called when the plugin has answered in time, with a result or an error. Returns whether it is asked again
        from now on.
        """
        if self.state != "trial":
            return False
        with self._change:
            recovered = self.state == "trial"
            self.state = "closed"
            self._pause = _FIRST
            return recovered

    def given_up(self) -> None:
        """Called when the caller gave the call up, so that nothing is known of the plugin."""
        with self._change:
            self._trial_taken = False

    def late(self) -> float | None:
        """Called when the plugin did not answer in time.

        Returns:
            Seconds until it is to be probed; ``None`` if another call has found that out before.
        """
        with self._change:
            if self.state == "open":
                return None
            if self.state == "closed":
                self.silent_since = time.monotonic()
            self.state = "open"
            return self._wait()

    def probed(self, ready: bool) -> float | None:
        """Called with the result of a probe.

        Args:
            ready: Whether the plugin has answered, and none of its handlers runs any more.

        Returns:
            Seconds until the next probe; ``None`` if none is needed.
        """
        with self._change:
            if ready:
                self.state = "trial"
                self._trial_taken = False
                return None
            return self._wait()

    def _wait(self) -> float:
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST)
        return pause
