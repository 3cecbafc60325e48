"""What the receiver of one-way messages recorded, as arrays of numbers. Used by the lab's own process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.load.one_way import PHASE_BIT, SLOT_BIT, TIMED


@dataclass
class Arrivals:
    """Messages in the order of their arrival."""

    stamps: NDArray[np.int64]
    sequence: NDArray[np.int64]
    due: NDArray[np.int64]
    wrong: int = 0
    """Messages of another length or content than was sent."""
    beyond: int = 0
    """Messages for which there was no room."""

    def __len__(self) -> int:
        return len(self.stamps)

    def timed(self) -> Arrivals:
        """These arrivals without the messages of the warm-up."""
        return self._only(self.sequence >> PHASE_BIT == TIMED)

    def duplicated(self) -> int:
        """Arrivals of a number that had arrived before."""
        return len(self) - len(np.unique(self.sequence))

    def reordered(self) -> int:
        """Messages that arrived after a later one of the same slot."""
        late = 0
        slots = self.sequence >> SLOT_BIT
        for slot in np.unique(slots):
            numbers = self.sequence[slots == slot]
            late += int((numbers < np.maximum.accumulate(numbers)).sum())
        return late

    def first_of_each(self) -> Arrivals:
        """These arrivals without the second and later ones of a number."""
        _, kept = np.unique(self.sequence, return_index=True)
        return self._only(np.sort(kept))

    def _only(self, kept: NDArray[Any]) -> Arrivals:
        return Arrivals(self.stamps[kept], self.sequence[kept], self.due[kept], self.wrong, self.beyond)


def arrivals_of(blob: bytes, count: int, wrong: int = 0, beyond: int = 0) -> Arrivals:
    """The arrivals in what `Receiver.collect` returned: the times, then the heads."""
    stamps = np.frombuffer(blob, dtype=np.int64, count=count)
    heads = np.frombuffer(blob, dtype="<u8", offset=8 * count).reshape(-1, 2).astype(np.int64)
    kept = stamps > 0  # a message that was refused has left a gap
    return Arrivals(stamps[kept], heads[kept, 0], heads[kept, 1], wrong, beyond)
