"""Quantiles and ratio intervals. Times are in nanoseconds wherever the unit matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_T975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t, 97.5 % point, for 1 to 30 degrees of freedom."""


def enough(n: int, p: float) -> bool:
    """Whether `n` samples support the quantile `p`: at least ten are expected beyond it."""
    return n * (1 - p) >= 10 - 1e-9


def quantile(samples: NDArray[np.int64], p: float) -> float | None:
    """The `p` quantile as an observed value (never interpolated), or None where there are too few samples for it."""
    n = len(samples)
    if not enough(n, p):
        return None
    rank = min(n - 1, max(0, math.ceil(p * n) - 1))
    return float(np.partition(samples, rank)[rank])


@dataclass(frozen=True)
class Ratio:
    """A ratio with a 95 % interval; the interval is None with fewer than three pairs."""

    value: float
    low: float | None
    high: float | None
    pairs: int

    def decided(self) -> bool:
        """Whether the interval exists and excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def paired_ratio(
    numerator: Sequence[float], denominator: Sequence[float], seed: int = 0, resamples: int = 10_000
) -> Ratio:
    """Geometric mean of ``numerator[i] / denominator[i]`` with a bootstrap interval over the pairs.

    A pair is one round, in which both were measured close together in time. A plain percentile bootstrap is too narrow
    for a handful of pairs, so the percentiles are widened to what Student's t would give: the expanded percentile
    interval of T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015).
    """
    if len(numerator) != len(denominator) or not numerator:
        raise ValueError("paired_ratio needs two sequences of the same length, at least one long")
    logs = np.log(np.asarray(numerator, float)) - np.log(np.asarray(denominator, float))
    n = len(logs)
    value = math.exp(float(logs.mean()))
    if n < 3:
        return Ratio(value, None, None, n)
    t = _T975[n - 2] if n - 1 <= len(_T975) else 1.96
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t)
    means = logs[np.random.default_rng(seed).integers(0, n, (resamples, n))].mean(axis=1)
    low, high = np.quantile(means, (tail, 1 - tail))
    return Ratio(value, math.exp(float(low)), math.exp(float(high)), n)


def format_time(ns: float | None) -> str:
    """Three significant digits with the unit that fits; a dash for None."""
    if ns is None:
        return "–"
    for limit, scale, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (math.inf, 1e9, "s")):
        if ns < limit * 0.9995:
            return f"{significant(ns / scale)} {unit}"
    raise AssertionError("unreachable")


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits and no exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    value = float(f"{value:.{digits - 1}e}")  # round first, so that 0.9997 is 1.00 and not 1.000
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def format_ratio(ratio: Ratio | None) -> str:
    """For example ``278× [270–290]``."""
    if ratio is None:
        return "–"
    text = f"{significant(ratio.value)}×"
    if ratio.low is not None and ratio.high is not None:
        text += f" [{significant(ratio.low)}–{significant(ratio.high)}]"
    return text
