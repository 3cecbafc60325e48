"""A/A comparisons: whether the lab finds no difference where there is none, and a small one where there is one.

Launches come in pairs that were made one right after the other. A comparison takes some of the pairs and lets a coin
decide for each which of its launches counts as A and which as B, as the engine's random order does with two mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearcall_lab.analysis.compare import LIMITS, Limits, Outcome, judge, speed_of
from nearcall_lab.stats import FEWEST, student_t

Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Tally:
    """How many comparisons had which outcome."""

    comparisons: int
    faster: int
    slower: int
    same: int
    cannot_tell: int
    own_launches: bool
    """Every comparison had launches of its own; otherwise they were drawn from a common pool, and the comparisons are
    not independent.
    """

    @property
    def different(self) -> int:
        """How many named a difference, in either direction."""
        return self.faster + self.slower


def tally(
    pairs: Pairs,
    launches: int,
    comparisons: int,
    seed: int,
    exchange: bool = True,
    more_is_better: bool = False,
    limits: Limits = LIMITS,
) -> Tally:
    """Compare B with A, `launches` against `launches`, again and again.

    With `exchange` a coin decides for each pair which launch is A; without it the second one is B, as for two
    mechanisms that do differ. Raises `ValueError` if there are fewer pairs than `launches`.
    """
    if len(pairs) < launches:
        raise ValueError(f"{launches} launches on each side need {launches} pairs, there are {len(pairs)}")
    rng = np.random.default_rng(seed)
    own = len(pairs) >= launches * comparisons
    found: dict[Outcome, int] = {"faster": 0, "slower": 0, "same": 0, "cannot tell": 0, "unusable": 0}
    for turn in range(comparisons):
        if own:
            chosen = np.arange(turn * launches, (turn + 1) * launches)
        else:
            chosen = np.sort(rng.choice(len(pairs), launches, replace=False))
        drawn = [pairs[i] if not exchange or rng.random() < 0.5 else pairs[i][::-1] for i in chosen.tolist()]
        theirs, ours = [a for a, _ in drawn], [b for _, b in drawn]
        found[judge(speed_of(ours, theirs, more_is_better, True, limits.confidence), limits)] += 1
    return Tally(comparisons, found["faster"], found["slower"], found["same"], found["cannot tell"], own)


def launches_for(pairs: Pairs, effect: float, most: int = 1000, limits: Limits = LIMITS) -> int | None:
    """Launches on each side with which a slowdown by the share `effect` would be found about 19 times in 20 here.

    How much the ratio of two launches varies is taken from the pairs. A difference is found where its logarithm is
    beyond the reach of the interval by the 95 % quantile of the estimate's own error, both taken from Student's t: the
    usual approximation, for example J. Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988). None if
    even `most` are too few, or if there are fewer than three pairs.
    """
    if len(pairs) < FEWEST:
        return None
    noise = float(np.std([math.log(b / a) for a, b in pairs], ddof=1))
    for launches in range(FEWEST, most + 1):
        reach = student_t((1 + limits.confidence) / 2, launches - 1) + student_t(0.95, launches - 1)
        if reach * noise / math.sqrt(launches) <= math.log1p(effect):
            return launches
    return None
