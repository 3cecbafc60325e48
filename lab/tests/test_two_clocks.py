"""Clocks of two machines: what is subtracted is right to within what is said, whatever ways the messages took."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nearcall_lab.engine.two_clocks import judge_clock
from nearcall_lab.hosts.clock import ClockJumped, Comparison, Reading, best_of
from nearcall_lab.hosts.round_trips import ROUNDS
from nearcall_lab.results.histogram import latencies
from nearcall_lab.results.model import ClockComparison, Launch
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.workers.worker import LaunchFailed

SECOND = 1_000_000_000


class _There:
    """A clock that is ahead, goes at a rate of its own, and is a way of chance away."""

    def __init__(self, seed: int, ahead_ns: int, drift: float) -> None:
        self.chance = random.Random(seed)
        self.ahead_ns, self.drift = ahead_ns, drift

    def at(self, here_ns: int) -> int:
        return here_ns + self.ahead_ns + round(here_ns * self.drift)

    def reading(self, from_ns: int) -> Reading:
        trips, now = [], from_ns
        for _ in range(ROUNDS):
            # Longer there than back, with queues on top.
            way, back = (least + round(self.chance.expovariate(1 / 50_000)) for least in (80_000, 20_000))
            trips.append((now, self.at(now + way), now + way + back))
            now += way + back
        return best_of(trips)


@pytest.mark.parametrize("seed", range(50))
def test_the_true_offset_is_within_the_uncertainty(seed: int) -> None:
    there = _There(seed, ahead_ns=-(3 << 50), drift=400e-6)
    found = there.reading(SECOND)
    true = there.at(found.at_ns) - found.at_ns
    assert abs(found.offset_ns - true) <= found.uncertainty_ns + 1
    assert found.round_trip_ns < 120_000  # the shortest, not the usual one


@pytest.mark.parametrize("drift", [0.0, 500e-6, -900e-6])
def test_stamps_between_two_readings_are_right(drift: float) -> None:
    there = _There(7, ahead_ns=5 << 50, drift=drift)
    comparison = Comparison(there.reading(SECOND), there.reading(11 * SECOND))
    here = np.linspace(2 * SECOND, 11 * SECOND, 101).astype(np.int64)
    found = comparison.here(np.array([there.at(int(stamp)) for stamp in here]))
    assert int(abs(found - here).max()) <= comparison.uncertainty_ns + 2
    assert comparison.drift == pytest.approx(drift, abs=20e-6)


def test_a_jump_is_noticed() -> None:
    before, after = Reading(0, 100, 60_000), Reading(SECOND, 100, 60_000)
    Comparison(before, after)
    Comparison(before, Reading(SECOND, 1_000_000, 60_000))  # 1000 ppm: the rates may differ by so much
    with pytest.raises(ClockJumped, match=r"moved by \+1\.200 ms .* at most 1\.060 ms can be explained"):
        Comparison(before, Reading(SECOND, 1_200_100, 60_000))
    with pytest.raises(ClockJumped, match=r"moved by -1\.200 ms"):
        Comparison(before, Reading(SECOND, -1_199_900, 60_000))


def _launch(uncertainty_ns: int) -> Launch:
    clock = ClockComparison(0, uncertainty_ns, 0.0, 2 * uncertainty_ns)
    times = latencies(np.full(1000, 100_000, np.int64))
    return Launch(0, 0, "", 1000, 1.0, response=times, clock=clock, interval_p50_ns=[1])


def test_one_way_times_that_say_nothing_are_refused() -> None:
    paced = Cell("x", Work("send", size=64), Mode("one-way", rate=10.0), host="ssh://box?python=python3")
    judge_clock(launch := _launch(49_000), paced)
    assert launch.response is not None
    with pytest.raises(LaunchFailed, match=r"^ssh://box, compare clocks: its median would be 100 µs, uncertain by 60"):
        judge_clock(_launch(60_000), paced)


def test_a_rate_needs_no_second_clock() -> None:
    judge_clock(launch := _launch(60_000), Cell("x", Work("send", size=64), Mode("one-way"), host="ssh://box"))
    assert launch.response is None
    assert launch.throughput == 1000
    judge_clock(launch := _launch(60_000), Cell("x", Work("echo", size=64), Mode(), host="ssh://box"))
    assert launch.response is not None
