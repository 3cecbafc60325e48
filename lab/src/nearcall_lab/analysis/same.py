"""A/A: does the lab find no difference where there is none, and a small one where there is one?

Launches come in pairs that stand side by side in time. A comparison takes some of the pairs and lets a coin decide for
each which of its launches counts as A and which as B, as the engine's random order does with two mechanisms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearcall_lab.analysis.compare import CONFIDENCE, MIN_EFFECT, Outcome, judge, speed_of

Pairs = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Tally:
    """How many comparisons found what."""

    comparisons: int
    faster: int
    slower: int
    same: int
    own_launches: bool
    """Every comparison had launches of its own; else they were drawn from a common pool, and are not independent."""


def tally(
    pairs: Pairs,
    launches: int,
    comparisons: int,
    seed: int,
    exchange: bool = True,
    more_is_better: bool = False,
    confidence: float = CONFIDENCE,
    min_effect: float = MIN_EFFECT,
) -> Tally:
    """Compare B with A, `launches` against `launches`, again and again.

    With `exchange` a coin decides for each pair who is A; without it the pair's second is B, as for two mechanisms that
    do differ. Raises `ValueError` if there are fewer pairs than `launches`.
    """
    if len(pairs) < launches:
        raise ValueError(f"{launches} launches on each side need {launches} pairs, there are {len(pairs)}")
    rng = np.random.default_rng(seed)
    own = len(pairs) >= launches * comparisons
    found: dict[Outcome, int] = {"faster": 0, "slower": 0, "same": 0, "unusable": 0}
    for turn in range(comparisons):
        if own:
            chosen = np.arange(turn * launches, (turn + 1) * launches)
        else:
            chosen = np.sort(rng.choice(len(pairs), launches, replace=False))
        drawn = [pairs[i] if not exchange or rng.random() < 0.5 else pairs[i][::-1] for i in chosen.tolist()]
        theirs, ours = [a for a, _ in drawn], [b for _, b in drawn]
        found[judge(speed_of(ours, theirs, more_is_better, True, confidence), min_effect)] += 1
    return Tally(comparisons, found["faster"], found["slower"], found["same"], own)
