"""What receivers of many messages say of them, and how whoever sends is given to those who measure.

Each receiver is a process of its own. The clock is the same for all processes of a machine.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

REPORT = struct.Struct("<qq")
"""How many messages have come, and when the last did: nanoseconds of CLOCK_MONOTONIC."""
PATIENCE_S = 30.0

Reports = list[tuple[int, int]]
SendAll = Callable[[bytes, int], object]
Opened = tuple[SendAll, Callable[[], Reports]]
"""Sends one message so many times; asks all receivers, once all is sent."""
Measure = Callable[[str, int, int], tuple[float, list[int]]]
"""``measure("copies" or "turns", receivers, messages)``: messages per second until the last receiver had its last one,
and how many each had.
"""


class Tally:
    """What a receiver has seen."""

    def __init__(self) -> None:
        self._count = self._last = 0

    def take(self) -> None:
        self._last = time.monotonic_ns()
        self._count += 1

    def report(self) -> bytes:
        """What was seen since the last report."""
        report = REPORT.pack(self._count, self._last)
        self._count = 0
        return report


def each(send: Callable[[bytes], object]) -> SendAll:
    """Sends all by a function that sends one."""

    def send_all(data: bytes, messages: int) -> None:
        for _ in range(messages):
            send(data)

    return send_all
