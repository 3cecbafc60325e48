"""Whether a plugin is asked: one that did not answer in time is left alone until it answers again.

It is the circuit breaker of Nygard, "Release It!" (2007), with a probe: before a plugin is asked again, its process is
asked whether the handlers that were late have come to their end. So a hung plugin costs its budget once.
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
        """``closed``: it is asked. ``open``: it is not. ``trial``: it has answered the probe, and may get one call."""
        self._pause = _FIRST
        self._trial_taken = False
        self._change = threading.Lock()
        self.silent_since = 0.0
        """By the monotonic clock: when it last failed to answer, while it is open."""

    def allows(self) -> bool:
        """Whether the plugin may be asked now. What it allows has to end in :meth:`answered` or :meth:`late`."""
        if self.state == "closed":
            return True
        with self._change:
            if self.state != "trial" or self._trial_taken:
                return False
            self._trial_taken = True
            return True

    def answered(self) -> bool:
        """It answered in time, well or not. Whether that ends a time in which it was not asked."""
        if self.state != "trial":
            return False
        with self._change:
            recovered = self.state == "trial"
            self.state = "closed"
            self._pause = _FIRST
            return recovered

    def given_up(self) -> None:
        """The caller gave the call up: nothing is known of the plugin."""
        with self._change:
            self._trial_taken = False

    def late(self) -> float | None:
        """It did not answer in time.

        Returns:
            Seconds until it is to be probed; ``None`` if others have found that out before.
        """
        with self._change:
            if self.state == "open":
                return None
            if self.state == "closed":
                self.silent_since = time.monotonic()
            self.state = "open"
            return self._wait()

    def probed(self, ready: bool) -> float | None:
        """What came of a probe.

        Args:
            ready: It has answered, and no handler of it runs any more.

        Returns:
            Seconds until the next probe; ``None`` if there need be none.
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
