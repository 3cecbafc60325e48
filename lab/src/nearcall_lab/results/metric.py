"""The one number of a launch that cells are compared by; which one depends on how the calls arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nearcall_lab.results.distribution import decode
from nearcall_lab.results.model import Launch
from nearcall_lab.scenario.cell import Cell


@dataclass(frozen=True)
class Metric:
    """What is compared."""

    title: str
    unit: Literal["ns", "/s"]
    per_call: int = 1
    """Items that one call counts as, for a rate."""

    @property
    def more_is_better(self) -> bool:
        """Whether the larger number wins."""
        return self.unit == "/s"

    def of(self, launch: Launch) -> float | None:
        """The launch's number in the metric's unit; None where the launch has too few samples for it."""
        if self.unit == "/s":
            return launch.throughput * self.per_call or None
        return (decode(launch.response).quantile(0.5) or None) if launch.response is not None else None


def metric_of(cell: Cell) -> Metric:
    """Median response time in modes that wait for each call, throughput where only the amount counts."""
    mode = cell.mode
    if mode.kind == "connect":
        return Metric("connection to first reply, median", "ns")
    if mode.kind == "stream":
        return Metric("integers per second", "/s", per_call=max(1, cell.work.items))
    if mode.kind == "one-way":
        return Metric("until arrival, median", "ns") if mode.rate else Metric("messages per second", "/s")
    if mode.kind == "burst" or (mode.kind == "closed" and mode.slots > 1):
        return Metric("calls per second", "/s")
    return Metric("response, median" if mode.kind == "open" else "round trip, median", "ns")
