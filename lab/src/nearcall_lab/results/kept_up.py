"""Whether a launch did what was asked of it; where it did not, its times are not latencies."""

from __future__ import annotations

import itertools

from nearcall_lab.results.model import Launch

LEAST_SHARE = 0.99
"""Done divided by due, below which a launch was overloaded."""


def overload(launch: Launch) -> str:
    """Why a launch of an open loop, or of messages at a rate, was overloaded; empty where it kept up."""
    if launch.offered <= 0 or launch.wall_s <= 0:
        return ""
    due = launch.offered * launch.wall_s
    share = launch.throughput / launch.offered
    # Arrivals of a Poisson process vary by the square root of their number; what is due is what was scheduled.
    if share < LEAST_SHARE and due - launch.calls > 2 * due**0.5:
        return f"{share:.1%} of the {launch.offered:g}/s that were due got done"
    intervals = launch.interval_p50_ns
    if _grows(intervals):
        return f"the median rose steadily from {intervals[0] / 1e6:.3g} ms to {intervals[-1] / 1e6:.3g} ms"
    return ""


def _grows(medians: list[int]) -> bool:
    """Whether times climb all through the launch: every quarter above the one before, and tenfold in all."""
    if len(medians) < 8 or min(medians) <= 0:
        return False
    quarter = len(medians) // 4
    means = [sum(medians[i * quarter : (i + 1) * quarter]) / quarter for i in range(4)]
    return all(b > a for a, b in itertools.pairwise(means)) and means[-1] > 10 * means[0]
