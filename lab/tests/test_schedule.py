"""When calls are due: the gaps are what they claim to be, the same seed gives the same, and nothing postpones them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nearcall_lab.load.schedule import Schedule, due_times


def _kolmogorov_smirnov(samples: np.ndarray, mean: float) -> float:
    """Largest distance between the samples' distribution and the exponential one with that mean, times sqrt(n)."""
    ordered = np.sort(samples)
    n = len(ordered)
    expected = 1 - np.exp(-ordered / mean)
    steps = np.arange(n + 1) / n
    return float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])) * math.sqrt(n))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_exponential(seed: int) -> None:
    gaps = np.diff(due_times(1000, 20, "poisson", seed), prepend=0)
    assert len(gaps) == pytest.approx(20_000, abs=5 * math.sqrt(20_000))
    assert _kolmogorov_smirnov(gaps, 1e6) < 1.63, "less likely than one in a hundred if they were exponential"
    assert _kolmogorov_smirnov(np.full(20_000, 1_000_000), 1e6) > 1.63, "the test itself would notice fixed gaps"
    successive = np.corrcoef(gaps[:-1], gaps[1:])[0, 1]
    assert abs(successive) < 4 / math.sqrt(len(gaps)), "a gap depends on the one before"


def test_fixed_gaps_are_equal() -> None:
    due = due_times(8, 2.0, "fixed", seed=1)
    assert due.tolist() == [125_000_000 * i for i in range(16)]


@pytest.mark.parametrize("arrivals", ["poisson", "fixed"])
def test_same_seed_same_times(arrivals: str) -> None:
    first = due_times(500, 2, arrivals, 7)  # type: ignore[arg-type]
    assert (first == due_times(500, 2, arrivals, 7)).all()  # type: ignore[arg-type]
    if arrivals == "poisson":
        assert not np.array_equal(first, due_times(500, 2, "poisson", 8))
    assert (np.diff(first) >= 0).all()
    assert first[0] >= 0
    assert first[-1] < 2e9


def test_parts_of_fixed_arrivals_take_turns() -> None:
    parts = [due_times(100, 1, "fixed", 1, part, 3) for part in range(3)]
    assert sorted(np.concatenate(parts)) == due_times(100, 1, "fixed", 1).tolist()


def test_parts_of_a_poisson_process_are_one_together() -> None:
    parts = [due_times(2000, 10, "poisson", 5, part, 4) for part in range(4)]
    gaps = np.diff(np.sort(np.concatenate(parts)), prepend=0)
    assert _kolmogorov_smirnov(gaps, 1e9 / 2000) < 1.63


@pytest.mark.parametrize(("rate", "seconds"), [(0, 1), (-1, 1), (1, 0), (1e9, 1)])
def test_impossible_schedules_are_refused(rate: float, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"calls|schedule"):
        due_times(rate, seconds, "fixed", 1)


def test_every_call_is_taken_once() -> None:
    schedule = Schedule([10, 20, 30], 100)
    assert [schedule.take() for _ in range(5)] == [0, 1, 2, -1, -1]
