"""Distributions as they are stored, and numbers computed from them. Percentiles are never averaged: counts are
added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from nearcall_lab.results.histogram import DIGITS, HIGHEST_NS, LOWEST_NS
from nearcall_lab.results.model import Latencies
from nearcall_lab.stats import enough


class BrokenHistogram(ValueError):
    """A text that is not a histogram with this lab's range."""


@dataclass(frozen=True)
class Distribution:
    """How often each bucket was hit; a bucket's value is its middle, at most 0.05 % away from the measured values."""

    counts: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    def at_rank(self, rank: int) -> float:
        """The value of the sample that is `rank`-th from below, from 1; nanoseconds."""
        index = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(_middles(len(self.counts))[index])

    def quantile(self, p: float) -> float | None:
        """The `p` quantile in nanoseconds, or None where there are too few samples for it (n below 10 / (1 - p))."""
        n = self.n
        return self.at_rank(min(n, max(1, math.ceil(p * n)))) if n and enough(n, p) else None

    def mean(self) -> float:
        """Nanoseconds; NaN if there are no samples."""
        n = self.n
        return float((self.counts * _middles(len(self.counts))).sum()) / n if n else math.nan

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Values in nanoseconds that occur, ascending, and how often each does."""
        hit = np.flatnonzero(self.counts)
        return _middles(len(self.counts))[hit], self.counts[hit]


@lru_cache(maxsize=2)
def _middles(length: int) -> NDArray[np.float64]:
    """The middle of each bucket. The first 2048 are one nanosecond wide; every 1024 more double the width."""
    index = np.arange(length)
    shift = np.maximum(0, index // 1024 - 1)
    low = np.where(index < 2048, index, (index % 1024 + 1024) << shift)
    middles: NDArray[np.float64] = low + ((1 << shift) - 1) / 2
    return middles


def decode(latencies: Latencies) -> Distribution:
    """A stored distribution. Raises `BrokenHistogram`."""
    try:
        found = HdrHistogram.decode(latencies.histogram.encode("ascii"))
    except Exception as error:  # the library raises whatever its parts do
        raise BrokenHistogram(f"not a histogram: {type(error).__name__}: {error}") from None
    shape = (found.lowest_trackable_value, found.highest_trackable_value, found.significant_figures)
    if shape != (LOWEST_NS, HIGHEST_NS, DIGITS):
        raise BrokenHistogram(f"histogram of another range: {shape}, not {(LOWEST_NS, HIGHEST_NS, DIGITS)}")
    return Distribution(np.ctypeslib.as_array(found.counts).astype(np.int64))


def merged(parts: Iterable[Latencies | None]) -> Distribution | None:
    """All samples of all parts in one distribution; None if there is no part."""
    total: NDArray[np.int64] | None = None
    for part in parts:
        if part is not None:
            counts = decode(part).counts
            total = counts if total is None else total + counts
    return None if total is None else Distribution(total)
