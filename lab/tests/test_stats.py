from __future__ import annotations

import math

import numpy as np
import pytest

from nearcall_lab.stats import Ratio, enough, format_ratio, format_time, paired_ratio, quantile, significant


def test_quantile_is_an_observed_value_of_the_right_rank() -> None:
    samples = np.random.default_rng(1).permutation(np.arange(1, 10_001))
    assert quantile(samples, 0.5) == 5000
    assert quantile(samples, 0.99) == 9900
    assert quantile(samples, 0.999) == 9990


def test_quantile_of_a_known_distribution() -> None:
    samples = np.random.default_rng(2).exponential(1000, 200_000).astype(np.int64)
    for p in (0.5, 0.99):
        assert quantile(samples, p) == pytest.approx(-1000 * math.log(1 - p), rel=0.02)


@pytest.mark.parametrize(
    ("n", "p", "expected"), [(19, 0.5, False), (20, 0.5, True), (999, 0.99, False), (1000, 0.99, True)]
)
def test_a_quantile_needs_ten_samples_beyond_it(n: int, p: float, expected: bool) -> None:
    assert enough(n, p) is expected
    assert (quantile(np.arange(n), p) is not None) is expected


def test_paired_ratio_removes_what_a_round_has_in_common() -> None:
    noise = np.random.default_rng(3).lognormal(0, 1, 5)
    ratio = paired_ratio(list(20 * noise), list(10 * noise))
    assert ratio.value == pytest.approx(2)
    assert ratio.low == pytest.approx(2)
    assert ratio.high == pytest.approx(2)
    assert ratio.decided()


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    hits = 0
    for trial in range(400):
        top = 3 * rng.lognormal(0, 0.2, 5)
        ratio = paired_ratio(list(top), list(rng.lognormal(0, 0.2, 5)), seed=trial, resamples=2000)
        assert ratio.low is not None
        assert ratio.high is not None
        hits += ratio.low <= 3 <= ratio.high
    assert 0.89 <= hits / 400 <= 0.99


def test_no_interval_from_two_pairs() -> None:
    ratio = paired_ratio([2, 2], [1, 1])
    assert (ratio.low, ratio.high) == (None, None)
    assert not ratio.decided()


def test_paired_ratio_wants_pairs() -> None:
    with pytest.raises(ValueError, match="same length"):
        paired_ratio([1.0], [])


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "–"), (85, "85.0 ns"), (999.7, "1.00 µs"), (1234, "1.23 µs"), (65_400, "65.4 µs"), (3_277_000, "3.28 ms")],
)
def test_format_time(ns: float | None, text: str) -> None:
    assert format_time(ns) == text


def test_format_numbers() -> None:
    assert significant(2561.4) == "2,560"
    assert significant(0.0973) == "0.0973"
    assert format_ratio(Ratio(278.4, 270.1, 290.2, 5)) == "278× [270–290]"
    assert format_ratio(None) == "–"
