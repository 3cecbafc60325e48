"""The closed loop: a slot calls again as soon as it has its reply.

Between two readings of the clock there is the call and nothing else. The reply is verified after the second reading.
The two functions differ in one word, ``await``; a layer that hid it would cost more than what is measured.
"""

from __future__ import annotations

from collections.abc import Callable

from nearcall_lab.load.record import BLOCK
from nearcall_lab.load.slot import Slot, WrongReply


def closed(slot: Slot, now: Callable[[], int], end_ns: int, at_most: int) -> None:
    """Call until `end_ns` has passed or `at_most` calls are recorded, whatever comes first.

    A call that raises is counted as an error. Raises `WrongReply` at the first wrong reply.
    """
    unit, check, values = slot.unit, slot.check, slot.values
    left = at_most - len(slot.recorder)
    while left > 0:
        block = slot.recorder.room()
        started, done = block.started, block.done
        first = at = block.used
        last = min(BLOCK, first + left)
        try:
            for at, value in zip(range(first, last), values, strict=False):  # `values` never ends
                begun = now()
                reply = unit(value)
                finished = now()
                # Bytes are compared here, because a function call would double what the loop costs.
                if (type(reply) is not bytes or reply != value) and not check(value, reply):
                    raise slot.wrong(value, reply)
                started[at] = begun
                done[at] = finished
                if finished >= end_ns:
                    block.used = at + 1
                    return
            block.used = last
        except WrongReply:
            raise
        except Exception as error:
            block.used = at
            if slot.failed(error) or now() >= end_ns:
                return
        left -= block.used - first


async def closed_async(slot: Slot, now: Callable[[], int], end_ns: int, at_most: int) -> None:
    """`closed` for a unit that is a coroutine function."""
    unit, check, values = slot.unit, slot.check, slot.values
    left = at_most - len(slot.recorder)
    while left > 0:
        block = slot.recorder.room()
        started, done = block.started, block.done
        first = at = block.used
        last = min(BLOCK, first + left)
        try:
            for at, value in zip(range(first, last), values, strict=False):
                begun = now()
                reply = await unit(value)
                finished = now()
                if (type(reply) is not bytes or reply != value) and not check(value, reply):
                    raise slot.wrong(value, reply)
                started[at] = begun
                done[at] = finished
                if finished >= end_ns:
                    block.used = at + 1
                    return
            block.used = last
        except WrongReply:
            raise
        except Exception as error:
            block.used = at
            if slot.failed(error) or now() >= end_ns:
                return
        left -= block.used - first
