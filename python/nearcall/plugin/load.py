"""How much of a processor a plugin takes, seen from outside: it need not be asked, and cannot lie."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["EVERY", "Load"]

EVERY = 10.0
"""Seconds between two looks: a plugin may work hard for a while."""
_ROUNDING = 1.25
"""How much more than its share counts as more: a control group is not exact either."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Load:
    """The processor time of one process, and of those of its children that it has waited for.

    Args:
        pid: The process. It must not have been waited for while this is used.
        share: What it may take, in processors: 0.5 is half of one.
    """

    def __init__(self, pid: int, share: float) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._share = share
        self._seconds = self._taken()
        self._at = time.monotonic()

    def too_much(self) -> str | None:
        """What it has taken since the last look, if that was more than its share."""
        now, seconds = time.monotonic(), self._taken()
        passed = max(now - self._at, 1e-3)
        took = (seconds - self._seconds) / passed
        self._at, self._seconds = now, seconds
        if took <= self._share * _ROUNDING:
            return None
        return f"took {took:.0%} of a processor for {passed:.1f} s, and may take {self._share:.0%}"

    def _taken(self) -> float:
        """Seconds, all in all; those of the last look if the process has ended."""
        try:
            # After the name, which may have anything in it: from the state on, the third field; see proc(5).
            fields = self._stat.read_bytes().rpartition(b")")[2].split()
        except OSError:
            return getattr(self, "_seconds", 0.0)
        return sum(int(field) for field in fields[11:15]) / _TICKS
