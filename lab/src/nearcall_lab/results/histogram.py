"""Distributions as HdrHistograms: they can be merged, and every quantile can be computed afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from nearcall_lab.results.model import Latencies

LOWEST_NS, HIGHEST_NS, DIGITS = 1, 3_600_000_000_000, 3
_EXACT_BITS = 11
"""2048 linear buckets per doubling: three digits."""


def latencies(samples: NDArray[np.int64]) -> Latencies | None:
    """A distribution of nanoseconds; None if there are no samples. Mean, smallest and largest are those of the raw
    values.

    Values outside 1 ns to one hour are counted at the border; `min` and `max` have their true values.
    """
    if not len(samples):
        return None
    clipped = np.clip(samples, LOWEST_NS, HIGHEST_NS)
    # One call of the library per bucket instead of one per sample: a million samples take 20 ms instead of 2 s.
    shift = np.maximum(0, np.frexp(clipped.astype(np.float64))[1] - _EXACT_BITS)
    buckets, counts = np.unique((clipped >> shift) << shift, return_counts=True)
    histogram: Any = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for value, count in zip(buckets.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)
    text = histogram.encode()
    return Latencies(
        histogram=text.decode() if isinstance(text, bytes) else text,
        n=len(samples),
        mean=float(samples.mean()),
        min=int(samples.min()),
        max=int(samples.max()),
    )


def histogram_of(*parts: Latencies) -> Any:
    """The library's histogram of one or several distributions put together."""
    merged: Any = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for part in parts:
        merged.add(HdrHistogram.decode(part.histogram))
    return merged


def bucket_width(value: int) -> int:
    """How many nanoseconds share a bucket with `value`."""
    return 1 << max(0, value.bit_length() - _EXACT_BITS)
