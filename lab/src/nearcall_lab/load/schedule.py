"""When calls are due: decided before the first of them starts, so that a slow reply cannot postpone the next call."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

MOST = 20_000_000
"""Arrivals in one schedule: 160 MB."""


def due_times(
    rate: float,
    seconds: float,
    arrivals: Literal["poisson", "fixed"],
    seed: int,
    part: int = 0,
    parts: int = 1,
    stream: int | None = None,
) -> NDArray[np.int64]:
    """Nanoseconds from the beginning at which calls are due, in order, all before `seconds`.

    `rate` is that of all `parts` together; part `part` (a process of several) gets its share. Poisson arrivals have
    independent exponential gaps, and shares of a Poisson process are Poisson processes. Fixed arrivals of several parts
    take turns. The same arguments give the same times. `stream` selects the sequence of random numbers; by default it
    is `part`.
    """
    if rate <= 0 or seconds <= 0:
        raise ValueError(f"a schedule needs a rate and a length above zero, not {rate} and {seconds}")
    if rate * seconds > MOST:
        raise ValueError(f"{rate:g} calls per second for {seconds:g} s are more than {MOST} calls: lower one of them")
    if arrivals == "fixed":
        count = int(np.ceil(rate * seconds - 1e-9))
        times = np.arange(count)[part::parts] / rate
        return (times * 1e9).astype(np.int64)
    generator = np.random.default_rng((seed, part if stream is None else stream))
    mean = parts / rate
    times = np.empty(0)
    while not len(times) or times[-1] < seconds:
        more = generator.exponential(mean, max(16, int(seconds / mean * 1.1)))
        times = np.concatenate((times, (times[-1] if len(times) else 0.0) + np.cumsum(more)))
    return (times[times < seconds] * 1e9).astype(np.int64)


@dataclass
class Schedule:
    """Due times that several slots share: a free slot takes the next one."""

    due: list[int]
    """Absolute, in the clock's nanoseconds, ascending."""
    closes_ns: int
    """No call starts after this; what was due and has not started by then was missed."""
    _next: itertools.count[int] = field(default_factory=itertools.count)

    def take(self) -> int:
        """The number of the next call, or -1. For any thread: `next` on a counter is atomic."""
        at = next(self._next)
        return at if at < len(self.due) else -1
