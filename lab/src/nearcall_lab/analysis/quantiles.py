"""Quantiles of merged launches, with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from nearcall_lab.results.distribution import Distribution
from nearcall_lab.stats import enough


@dataclass(frozen=True)
class Quantile:
    """One quantile of all samples of a cell; nanoseconds."""

    p: float
    value: float
    low: float
    high: float | None
    """None where the interval reaches beyond the largest sample."""
    n: int


def quantile(distribution: Distribution, p: float, confidence: float = 0.95) -> Quantile | None:
    """A quantile with its interval by order statistics, or None where n is below 10 / (1 - p).

    How many samples lie below the true quantile follows a binomial distribution, whatever the samples follow; the
    normal approximation to it is close with the ten samples beyond that are asked for. The interval assumes independent
    samples, which those of one launch are not: it covers what more samples of these launches would show. What other
    launches would show is covered by the ratio's interval.
    """
    n = distribution.n
    if n == 0 or not enough(n, p):
        return None
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * p * (1 - p))
    low, high = math.floor(n * p - reach), math.ceil(n * p + reach) + 1
    return Quantile(
        p,
        distribution.at_rank(min(n, max(1, math.ceil(n * p)))),
        distribution.at_rank(max(1, low)),
        distribution.at_rank(high) if high <= n else None,
        n,
    )
