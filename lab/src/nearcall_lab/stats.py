"""Quantiles and ratio intervals. Times are in nanoseconds wherever the unit matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=256)
def student_t(p: float, freedom: int) -> float:
    """The `p` quantile, above one half, of Student's t with `freedom` degrees of freedom.

    Found by bisection in the closed form of the distribution for whole degrees of freedom: Abramowitz and Stegun,
    "Handbook of Mathematical Functions" (1964), 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 + _within(middle, freedom)) / 2 < p else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(theta: float, freedom: int) -> float:
    """Probability that |t| is at most ``sqrt(freedom) * tan(theta)``."""
    cosine = math.cos(theta)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    area = math.sin(theta) * total
    return (theta + area) * 2 / math.pi if odd else area


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
    """A ratio with an interval, of 95 % unless its maker was told otherwise; None where there are too few launches."""

    value: float
    low: float | None
    high: float | None
    pairs: int
    """Launches on each side; the fewer of the two where they are not paired."""

    def decided(self) -> bool:
        """Whether the interval exists and excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    def inverse(self) -> Ratio:
        """The ratio with numerator and denominator exchanged."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Ratio(1 / self.value, low, high, self.pairs)


def paired_ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
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
    t = student_t((1 + confidence) / 2, n - 1)
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t)
    means = logs[np.random.default_rng(seed).integers(0, n, (resamples, n))].mean(axis=1)
    low, high = np.quantile(means, (tail, 1 - tail))
    return Ratio(value, math.exp(float(low)), math.exp(float(high)), n)


def unpaired_ratio(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Ratio of two geometric means whose launches have nothing in common, such as those of two runs.

    The interval is Welch's, on the logarithms: B. L. Welch, "The generalization of 'Student's' problem when several
    different population variances are involved", Biometrika 34 (1947). It cannot take out what a machine did to one
    run and not to the other.
    """
    if not numerator or not denominator:
        raise ValueError("unpaired_ratio needs two sequences, each at least one long")
    top, bottom = np.log(np.asarray(numerator, float)), np.log(np.asarray(denominator, float))
    value = math.exp(float(top.mean() - bottom.mean()))
    fewest = min(len(top), len(bottom))
    if fewest < 3:
        return Ratio(value, None, None, fewest)
    parts = [float(side.var(ddof=1)) / len(side) for side in (top, bottom)]
    if sum(parts) == 0:
        return Ratio(value, value, value, fewest)
    freedom = sum(parts) ** 2 / sum(p**2 / (len(s) - 1) for p, s in zip(parts, (top, bottom), strict=True))
    reach = student_t((1 + confidence) / 2, max(1, math.floor(freedom))) * math.sqrt(sum(parts))
    return Ratio(value, value * math.exp(-reach), value * math.exp(reach), fewest)


def spread(values: Sequence[float], confidence: float = 0.95) -> float | None:
    """Half the width of the interval of the geometric mean, as a share of it; None with fewer than three launches."""
    if len(values) < 3:
        return None
    logs = np.log(np.asarray(values, float))
    reach = student_t((1 + confidence) / 2, len(values) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(values))
    return math.expm1(reach)


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
