"""A fixed piece of work. When it takes longer than usual, so does everything else on this CPU at this moment."""

from __future__ import annotations

import statistics
from time import monotonic_ns

_ADDITIONS = 10_000
_TIMES = 5


def canary_ns() -> int:
    """Nanoseconds that the loop takes here and now: the median of five times, some milliseconds in all."""
    times = []
    for _ in range(_TIMES):
        begin = monotonic_ns()
        total = 0
        for number in range(_ADDITIONS):
            total += number
        times.append(monotonic_ns() - begin)
    return int(statistics.median(times))
