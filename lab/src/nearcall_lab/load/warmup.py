"""Whether a mechanism has warmed up: decided by the times of the calls themselves, not after a guessed time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUPS = 6
TOLERANCE = 0.10
ROUNDS = 5
"""A warm-up is repeated until the times have settled, but at most this many times."""


def settled(durations: NDArray[np.int64]) -> bool:
    """Whether the calls, in the order they were made, no longer change.

    They are cut into `GROUPS` groups of equal size. They have settled if the middle one of the last three groups'
    medians differs from that of the three before by less than a tenth. With fewer than two calls in a group this cannot
    be decided, and the answer is no.
    """
    if len(durations) < 2 * GROUPS:
        return False
    medians = [float(np.median(group)) for group in np.array_split(durations, GROUPS)]
    before, after = (float(np.median(medians[i : i + 3])) for i in (0, 3))
    return abs(after - before) <= TOLERANCE * max(before, 1.0)
