from __future__ import annotations

import math

import numpy as np
import pytest

from nearcall_lab.stats import (
    Ratio,
    counted,
    enough,
    format_ratio,
    format_time,
    paired_ratio,
    quantile,
    significant,
    student_p,
)


def test_one_is_not_counted_like_many() -> None:
    counts = [counted(1, "launch"), counted(2, "launch"), counted(1, "round"), counted(1234, "cell")]
    assert counts == ["1 launch", "2 launches", "1 round", "1,234 cells"]


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


def test_an_interval_reaches_beyond_the_ratios_that_were_seen() -> None:
    """Of three pairs it must, by far: no resampling of them can."""
    ratio = paired_ratio([1.0, 1.1, 1.2], [1.0, 1.0, 1.0], confidence=0.99)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 0.7
    assert ratio.high > 1.7
    assert ratio.p_value == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(("t", "freedom", "p"), [(9.925, 2, 0.01), (3.25, 9, 0.01), (2.776, 4, 0.05), (0, 5, 1)])
def test_student_p_is_the_printed_table(t: float, freedom: int, p: float) -> None:
    assert student_p(t, freedom) == student_p(-t, freedom) == pytest.approx(p, rel=0.001)


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
