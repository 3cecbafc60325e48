"""Times from the clock of one machine to that of another: whether they say anything."""

from __future__ import annotations

from nearcall_lab.results.histogram import histogram_of
from nearcall_lab.results.model import Launch
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.stats import format_time
from nearcall_lab.workers.worker import LaunchFailed

UNCERTAIN = 0.5
"""Share of the median of one-way times that the uncertainty of the clocks may be."""


def judge_clock(launch: Launch, cell: Cell) -> None:
    """Refuse one-way times that the clocks are too uncertain for. Where what is compared is a rate, which needs no two
    clocks, only the times are left out; otherwise it raises `LaunchFailed`.
    """
    clock, times = launch.clock, launch.response
    if clock is None or times is None or cell.mode.kind != "one-way":
        return
    median = int(histogram_of(times).get_value_at_percentile(50))
    if clock.uncertainty_ns <= UNCERTAIN * median:
        return
    if cell.mode.rate:
        raise LaunchFailed(
            f"{cell.host.partition('?')[0]}, compare clocks: its median would be {format_time(median)}, uncertain by "
            f"{format_time(clock.uncertainty_ns)}; measure calls, which need one clock only"
        )
    launch.response, launch.interval_p50_ns = None, []
