"""The clock that loads are timed and scheduled by. The tests put a virtual one in its place and get exact answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

SPIN_NS = 100_000
"""How long before its time a thread stops sleeping and spins: the kernel wakes a sleeper 50 µs late by design."""
SPIN_ASYNCIO_NS = 1_200_000
"""The same for an event loop, whose timers are rounded up to whole milliseconds. It serves its sockets meanwhile."""


@dataclass(frozen=True)
class Clock:
    """Nanoseconds since some beginning, and ways to wait."""

    now: Callable[[], int] = time.monotonic_ns
    """CLOCK_MONOTONIC: the same in all processes of the machine."""
    sleep: Callable[[float], object] = time.sleep
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    spin_ns: int = 0
    """Spin for the last nanoseconds of a wait; 0 where no CPU is spare, or somebody else would be kept from his."""

    def wait_until(self, due_ns: int) -> None:
        """Return at `due_ns` or as soon after it as the kernel manages."""
        while (left := due_ns - self.now()) > 0:
            if left > self.spin_ns:
                self.sleep((left - self.spin_ns) / 1e9)

    async def pause_until(self, due_ns: int) -> None:
        """The same, and the event loop runs meanwhile."""
        while (left := due_ns - self.now()) > 0:
            await self.pause(max(0, left - self.spin_ns) / 1e9)
