"""Raw nanoseconds, written into memory that is there before the first call. The rest is worked out afterwards."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

BLOCK = 16_384
"""Calls per block. A further block, when the guess was too low, is made between two calls, never inside one."""
_MOST_RESERVED = 256


class Block:
    """Room for `BLOCK` calls."""

    __slots__ = ("done", "intended", "started", "used")

    def __init__(self, intended: bool) -> None:
        zeros = bytes(8 * BLOCK)  # copied, so that every page is there
        self.started = array("q", zeros)
        self.done = array("q", zeros)
        self.intended = array("q", zeros if intended else b"")
        self.used = 0


class Recorder:
    """The stamps of one slot, in the order of its calls."""

    def __init__(self, expected: int = 0, intended: bool = False) -> None:
        self._intended = intended
        blocks = min(expected // BLOCK + 1, _MOST_RESERVED)
        self._spare = [Block(intended) for _ in range(blocks)]
        self._blocks = [self._spare.pop()]

    def room(self) -> Block:
        """A block that is not full."""
        if self._blocks[-1].used == BLOCK:
            self._blocks.append(self._spare.pop() if self._spare else Block(self._intended))
        return self._blocks[-1]

    def add(self, intended: int, started: int, done: int) -> None:
        """Keep one call of an open loop."""
        block = self.room()
        at = block.used
        block.intended[at] = intended
        block.started[at] = started
        block.done[at] = done
        block.used = at + 1

    def __len__(self) -> int:
        return sum(block.used for block in self._blocks)

    def column(self, name: str) -> NDArray[np.int64]:
        """All stamps ``started``, ``done`` or, of an open loop, ``intended``."""
        parts = [np.frombuffer(getattr(block, name), dtype=np.int64)[: block.used] for block in self._blocks]
        return np.concatenate(parts)
