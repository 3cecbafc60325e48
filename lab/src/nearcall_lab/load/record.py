"""Raw nanoseconds, stored in lists that are allocated before the first call. Everything else is computed afterwards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 16_384
"""Calls per block at most. If more calls come than were expected, a further block is made between two calls, never
during one.
"""
_FIRST = 64
"""Calls that the first block has room for at least. Not more, since a burst has ten thousand slots with one call
each.
"""
_MOST_RESERVED = 256


class Block:
    """Room for `room` calls, in lists: the clock returns an integer object anyway, and storing it costs 5 ns. An array
    has to convert it, which costs ten times that.
    """

    __slots__ = ("done", "intended", "room", "started", "used")

    def __init__(self, intended: bool, room: int) -> None:
        self.room = room
        self.started = [0] * room
        self.done = [0] * room
        self.intended = [0] * (room if intended else 0)
        self.used = 0


class Recorder:
    """The stamps of one slot, in the order of its calls."""

    def __init__(self, expected: int = 0, intended: bool = False) -> None:
        self._intended = intended
        blocks = min(expected // BLOCK + 1, _MOST_RESERVED)
        room = BLOCK if blocks > 1 else min(BLOCK, max(_FIRST, expected))
        self._spare = [Block(intended, room) for _ in range(blocks)]
        self._blocks = [self._spare.pop()]

    def room(self) -> Block:
        """A block that is not full."""
        last = self._blocks[-1]
        if last.used < last.room:
            return last
        self._blocks.append(self._spare.pop() if self._spare else Block(self._intended, min(BLOCK, 4 * last.room)))
        return self._blocks[-1]

    def add(self, intended: int, started: int, done: int) -> None:
        """Record one call of an open loop."""
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
        return np.concatenate([np.array(getattr(block, name)[: block.used], dtype=np.int64) for block in self._blocks])
