"""The closed loop: a slot calls again as soon as it has its reply.

Between two readings of the clock there is the call and nothing else. The reply is verified after the second reading.
The two functions differ in one word, ``await``; a layer that hid it would cost more than what is measured.

Every step in the innermost loop was weighed: `floor.harness_overhead` says what it adds to a call. Calls are made in
runs of about a quarter of a millisecond, between which the loop checks whether the end has been reached.
"""

from __future__ import annotations

from collections.abc import Callable

from nearcall_lab.load.slot import Slot, WrongReply

_RUN_NS = 250_000


def closed(slot: Slot, now: Callable[[], int], end_ns: int, at_most: int) -> None:
    """Call once, and again until `end_ns` has passed or `at_most` calls are recorded, whatever comes first.

    A call that raises is counted as an error. Raises `WrongReply` at the first wrong reply.
    """
    unit, check, values = slot.unit, slot.check, slot.values
    run, finished = 1, -1
    while (left := at_most - len(slot.recorder)) > 0 and finished < end_ns:
        block = slot.recorder.room()
        started, done = block.started, block.done
        first = at = block.used
        last = min(block.room, first + left, first + run)
        begun_run = finished
        ask = not slot.replies_are_bytes
        reply = None
        try:
            for at, value in zip(range(first, last), values, strict=False):  # `values` never ends
                begun = now()
                reply = unit(value)
                finished = now()
                if (ask or reply != value) and not check(value, reply):
                    raise slot.wrong(value, reply)
                started[at] = begun
                done[at] = finished
            block.used = last
        except WrongReply:
            raise
        except Exception as error:
            block.used = at
            finished = now()
            if slot.failed(error):
                return
        else:
            slot.replies_are_bytes = type(reply) is bytes
            run = run * 2 if finished - begun_run < _RUN_NS else max(1, run // 2)


async def closed_async(slot: Slot, now: Callable[[], int], end_ns: int, at_most: int) -> None:
    """`closed` for a unit that is a coroutine function."""
    unit, check, values = slot.unit, slot.check, slot.values
    run, finished = 1, -1
    while (left := at_most - len(slot.recorder)) > 0 and finished < end_ns:
        block = slot.recorder.room()
        started, done = block.started, block.done
        first = at = block.used
        last = min(block.room, first + left, first + run)
        begun_run = finished
        ask = not slot.replies_are_bytes
        reply = None
        try:
            for at, value in zip(range(first, last), values, strict=False):
                begun = now()
                reply = await unit(value)
                finished = now()
                if (ask or reply != value) and not check(value, reply):
                    raise slot.wrong(value, reply)
                started[at] = begun
                done[at] = finished
            block.used = last
        except WrongReply:
            raise
        except Exception as error:
            block.used = at
            finished = now()
            if slot.failed(error):
                return
        else:
            slot.replies_are_bytes = type(reply) is bytes
            run = run * 2 if finished - begun_run < _RUN_NS else max(1, run // 2)
