"""The clock of another machine beside this one's: by round trips, of which the shortest counts.

A machine is asked for its time between two readings of ours. Whatever the ways there and back took, its reading was
made in between: so the offset is known to within half of the round trip, and the shortest one says most. That is
Cristian's method ("Probabilistic clock synchronization", Distributed Computing 3, 1989) with the minimum filter of NTP
(RFC 5905, section 10). Nothing is assumed of the ways: one that is longer there than back is inside the bound.

Both clocks are CLOCK_MONOTONIC, which nobody sets, but whose rate NTP may change by up to 500 ppm on each machine
(adjtimex(2)). So they are compared before the timed part and after it, and the line between the two offsets is
subtracted. Two offsets that differ by more than their uncertainties and such rates explain show a clock that jumped, as
after a machine was suspended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.results.model import ClockComparison

MOST_DRIFT = 1000e-6
"""Two clocks, each changed by 500 ppm at most."""


class ClockJumped(Exception):
    """The two comparisons contradict each other; the message says by how much."""


@dataclass(frozen=True)
class Reading:
    """The best of many round trips."""

    at_ns: int
    """Middle of the round trip, by the clock here."""
    offset_ns: int
    """What the clock there was ahead of the one here."""
    round_trip_ns: int

    @property
    def uncertainty_ns(self) -> int:
        """The true offset is at most so far from `offset_ns`."""
        return (self.round_trip_ns + 1) // 2


def best_of(trips: Sequence[tuple[int, int, int]]) -> Reading:
    """From round trips as (sent here, read there, received here), nanoseconds each."""
    sent, there, received = min(trips, key=lambda trip: trip[2] - trip[0])
    middle = (sent + received) // 2
    return Reading(middle, there - middle, received - sent)


@dataclass(frozen=True)
class Comparison:
    """Two readings with something measured in between."""

    before: Reading
    after: Reading

    def __post_init__(self) -> None:
        """Raises `ClockJumped`."""
        elapsed_ns = self.after.at_ns - self.before.at_ns
        moved_ns = self.after.offset_ns - self.before.offset_ns
        explained_ns = self.uncertainty_ns * 2 + elapsed_ns * MOST_DRIFT
        if abs(moved_ns) > explained_ns:
            raise ClockJumped(
                f"its clock moved by {moved_ns / 1e6:+.3f} ms against this one in {elapsed_ns / 1e9:.3f} s, and at "
                f"most {explained_ns / 1e6:.3f} ms can be explained: one of the two jumped"
            )

    @property
    def uncertainty_ns(self) -> int:
        """Of each offset between the two readings, as long as both clocks kept their rates."""
        return max(self.before.uncertainty_ns, self.after.uncertainty_ns)

    @property
    def drift(self) -> float:
        """How much faster the clock there went, as a share."""
        return (self.after.offset_ns - self.before.offset_ns) / max(1, self.after.at_ns - self.before.at_ns)

    def here(self, there_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Stamps of the clock there as this one's."""
        begin_ns = self.before.at_ns + self.before.offset_ns
        since = there_ns - begin_ns
        # In whole nanoseconds as far as possible: a double has not enough digits for a time since a machine's start.
        moved = np.rint(since * (self.drift / (1 + self.drift))).astype(np.int64)
        here: NDArray[np.int64] = there_ns - self.before.offset_ns - moved
        return here

    def record(self) -> ClockComparison:
        """As it is stored with a launch."""
        return ClockComparison(
            self.before.offset_ns,
            self.uncertainty_ns,
            self.drift * 1e6,
            min(self.before.round_trip_ns, self.after.round_trip_ns),
        )
