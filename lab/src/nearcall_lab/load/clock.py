"""The clock that loads are timed and scheduled by. The tests put a virtual one in its place and get exact answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

SPIN_NS = 100_000
"""How long before its time a thread stops sleeping and spins: the kernel wakes a sleeper 50 µs late by design."""
SPIN_ASYNCIO_NS = 1_200_000
"""The same for an event loop, whose timers are rounded up to whole milliseconds. It serves its sockets while it
spins.
"""


@dataclass(frozen=True)
class Clock:
    """Nanoseconds since some beginning, and ways to wait."""

    now: Callable[[], int] = time.monotonic_ns
    """CLOCK_MONOTONIC: the same in all processes of the machine."""
    sleep: Callable[[float], object] = time.sleep
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    cpu: Callable[[], int] = time.thread_time_ns
    """CPU time of the calling thread, nanoseconds."""
    spin_ns: int = 0
    """Spin for the last nanoseconds of a wait; 0 where no CPU is spare, or spinning would take one from another
    thread.
    """

    def wait_until(self, due_ns: int) -> int:
        """Return at `due_ns`, or as soon after it as the kernel manages. Returns the CPU time that the waiting took,
        nanoseconds.
        """
        if self.now() >= due_ns:
            return 0
        before = self.cpu()
        while (left := due_ns - self.now()) > 0:
            if left > self.spin_ns:
                self.sleep((left - self.spin_ns) / 1e9)
        return self.cpu() - before

    async def doze_until(self, due_ns: int) -> None:
        """Return when it is time to spin for `due_ns`, or at once where that is past."""
        if (left := due_ns - self.now() - self.spin_ns) > 0:
            await self.pause(left / 1e9)

    async def pause_until(self, due_ns: int) -> int:
        """Like `wait_until`, while the event loop goes on running: the CPU time of what it does is included."""
        if self.now() >= due_ns:
            return 0
        before = self.cpu()
        while (left := due_ns - self.now()) > 0:
            await self.pause(max(0, left - self.spin_ns) / 1e9)
        return self.cpu() - before
