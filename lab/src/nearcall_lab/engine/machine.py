"""What the CPUs of a launch did besides running it."""

from __future__ import annotations

import time
from collections.abc import Collection

from nearcall_lab.environment import CpuTimes, cpu_times

_SHORTEST_S = 0.2
"""The kernel's counts come in steps of 10 ms: over a shorter time they are too coarse."""


class Watch:
    """Reads the times of some CPUs when it is made and again at `stop`."""

    def __init__(self, cpus: Collection[int]) -> None:
        self._cpus = cpus
        self._before, self._begin_s = cpu_times(cpus), time.monotonic()
        self._after: CpuTimes | None = None
        self._all_s = 0.0
        """Time of all the CPUs together."""

    def stop(self) -> None:
        """Read the times again."""
        self._after = cpu_times(self._cpus)
        self._all_s = (time.monotonic() - self._begin_s) * len(self._cpus)

    def steal_share(self) -> float | None:
        """Share of the CPUs' time that went to other guests; None where the kernel does not report it."""
        if self._before is None or self._after is None or not self._all_s:
            return None
        return (self._after.stolen_s - self._before.stolen_s) / self._all_s

    def others_share(self, own_s: float) -> float | None:
        """Share of the CPUs' time in which they worked for something else, if `own_s` is what the launch used of it.

        None where the kernel does not report it, or the time was too short. Stolen time is not included.
        """
        if self._before is None or self._after is None or self._all_s < _SHORTEST_S * len(self._cpus):
            return None
        idle_s = self._after.idle_s - self._before.idle_s
        stolen_s = self._after.stolen_s - self._before.stolen_s
        return min(1.0, max(0.0, self._all_s - idle_s - stolen_s - own_s) / self._all_s)
