"""How long a task goes on with items that need no wait, before the other tasks of its event loop have their turn.

Without an end of the turn, a peer that sends faster than the task takes would hold up the whole loop.
"""

from __future__ import annotations

import asyncio
from time import monotonic

__all__ = ["pass_turn_on", "turn_end"]

_LONGEST = 0.001
"""Seconds of a turn. To pass it on costs some microseconds."""


def turn_end() -> float:
    """When a turn that begins now is over, by the monotonic clock."""
    return monotonic() + _LONGEST


async def pass_turn_on() -> float:
    """Lets the other tasks run that can, once. Returns the end of the next turn."""
    await asyncio.sleep(0)
    return turn_end()
