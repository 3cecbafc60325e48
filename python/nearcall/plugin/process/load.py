"""Measures the processor time that a plugin takes, from outside: the plugin is not asked, and so cannot lie."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["EVERY", "Load"]

EVERY = 10.0
"""Seconds between two measurements: a plugin may work hard for a while."""
_ROUNDING = 1.25
"""The factor beyond its share from which a plugin takes too much: a control group is not exact either."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Load:
    """The processor time of one process, and of those of its children that it has waited for.

    Args:
        pid: The process. It must not be waited for while this is used, or its id could be another's.
        share: Processors that it may take: 0.5 is half of one.
    """

    def __init__(self, pid: int, share: float) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._share = share
        self._seconds = self._taken()
        self._at = time.monotonic()

    def too_much(self) -> str | None:
        """If it took more than its share since the last measurement, a text that says so."""
        now, seconds = time.monotonic(), self._taken()
        passed = max(now - self._at, 1e-3)
        took = (seconds - self._seconds) / passed
        self._at, self._seconds = now, seconds
        if took <= self._share * _ROUNDING:
            return None
        return f"took {took:.0%} of a processor for {passed:.1f} s, and may take {self._share:.0%}"

    def _taken(self) -> float:
        """Seconds of processor time in total; those of the last measurement if the process has ended."""
        try:
            # The fields after the name, which may contain anything, begin with the state, the third field; see proc(5).
            fields = self._stat.read_bytes().rpartition(b")")[2].split()
        except OSError:
            return getattr(self, "_seconds", 0.0)
        return sum(int(field) for field in fields[11:15]) / _TICKS
