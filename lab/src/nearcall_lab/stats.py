"""Quantiles and ratio intervals. Times are in nanoseconds wherever the unit matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FEWEST = 3
"""Launches that an interval needs: of two, Student's would reach from a tenth to ten times of almost anything."""


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


def student_p(t: float, freedom: int) -> float:
    """Probability that Student's t with `freedom` degrees of freedom is at least `t` away from 0, to either side.

    It is exact to about 1e-15, so that a smaller probability may come out as 0. The source is that of `student_t`.
    """
    return max(0.0, 1 - _within(math.atan(abs(t) / math.sqrt(freedom)), freedom))


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
    """A ratio with an interval, of 95 % unless another confidence was given; the interval is None where there are too
    few launches.
    """

    value: float
    low: float | None
    high: float | None
    pairs: int
    """Launches on each side; the fewer of the two where they are not paired."""
    p_value: float | None = None
    """Probability of a ratio at least as far from 1 as this one if the true ratio were 1; None where there is no
    interval.
    """

    def decided(self) -> bool:
        """Whether the interval exists and excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    def inverse(self) -> Ratio:
        """The ratio with numerator and denominator exchanged."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Ratio(1 / self.value, low, high, self.pairs, self.p_value)


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Geometric mean of ``numerator[i] / denominator[i]`` with an interval over the pairs.

    A pair is one round, in which both were measured close together in time. The interval is Student's, on the
    logarithms of the pairs' ratios: "The Probable Error of a Mean", Biometrika 6 (1908). It reaches beyond the smallest
    and the largest measured ratio, as it must where they are few. What it covers, and what it does not, is in
    docs/adr/0024-verdicts-for-few-launches.md. Raises `ValueError` for sequences that are empty or not
    equally long.
    """
    if len(numerator) != len(denominator) or not numerator:
        raise ValueError("paired_ratio needs two sequences of the same length, at least one long")
    logs = np.log(np.asarray(numerator, float)) - np.log(np.asarray(denominator, float))
    n = len(logs)
    mean = float(logs.mean())
    if n < FEWEST:
        return Ratio(math.exp(mean), None, None, n)
    return _student(mean, float(logs.std(ddof=1)) / math.sqrt(n), n - 1, n, confidence)


def _student(mean: float, error: float, freedom: int, launches: int, confidence: float) -> Ratio:
    """The ratio whose logarithm is `mean`, known with the standard error `error`."""
    reach = student_t((1 + confidence) / 2, freedom) * error
    p = student_p(mean / error, freedom) if error else float(mean == 0)
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), launches, p)


def unpaired_ratio(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Ratio of two geometric means whose launches have nothing in common, such as those of two runs.

    The interval is Welch's, on the logarithms: B. L. Welch, "The generalization of 'Student's' problem when several
    different population variances are involved", Biometrika 34 (1947). It cannot remove the effect of a disturbance
    that hit only one of the runs. Raises `ValueError` for an empty sequence.
    """
    if not numerator or not denominator:
        raise ValueError("unpaired_ratio needs two sequences, each at least one long")
    top, bottom = np.log(np.asarray(numerator, float)), np.log(np.asarray(denominator, float))
    mean = float(top.mean() - bottom.mean())
    fewest = min(len(top), len(bottom))
    if fewest < FEWEST:
        return Ratio(math.exp(mean), None, None, fewest)
    parts = [float(side.var(ddof=1)) / len(side) for side in (top, bottom)]
    if sum(parts) == 0:
        return _student(mean, 0.0, 1, fewest, confidence)
    freedom = sum(parts) ** 2 / sum(p**2 / (len(s) - 1) for p, s in zip(parts, (top, bottom), strict=True))
    return _student(mean, math.sqrt(sum(parts)), max(1, math.floor(freedom)), fewest, confidence)


def credible(p_values: Sequence[float], rate: float) -> list[bool]:
    """Which of many differences may be reported so that at most the share `rate` of those reported is wrong on average.

    `p_values` has one for each comparison that was made. Where nothing differs at all, the probability of reporting
    anything is at most `rate`, too. The method is that of Y. Benjamini and Y. Hochberg, "Controlling the False
    Discovery Rate", Journal of the Royal Statistical Society B 57 (1995).
    """
    ordered = sorted(p_values)
    passing = [p for rank, p in enumerate(ordered, 1) if p <= rate * rank / len(ordered)]
    return [bool(passing) and p <= passing[-1] for p in p_values]


def spread(values: Sequence[float], confidence: float = 0.95) -> float | None:
    """Half the width of the interval of the geometric mean, as a share of it; None with fewer than three launches."""
    if len(values) < FEWEST:
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


def counted(number: int, what: str) -> str:
    """A number of things: ``1 launch``, ``3 launches``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}{'es' if what.endswith('ch') else 's'}"


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
