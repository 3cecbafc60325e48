"""The open loop: calls are due at times that were fixed in advance, whether or not earlier ones are done. A burst is
the same with all of them due at once.

Each call has three stamps: when it was due, when a slot was free to start it, when it was done. With every slot busy a
call that is due waits, and the wait is part of its response time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nearcall_lab.load.clock import Clock
from nearcall_lab.load.schedule import Schedule
from nearcall_lab.load.slot import Slot, WrongReply


def paced(slot: Slot, schedule: Schedule, clock: Clock) -> None:
    """Take due calls until none is left or the schedule closes. Raises `WrongReply` at the first wrong reply."""
    unit, check, now = slot.unit, slot.check, clock.now
    while (at := schedule.take()) >= 0:
        due = schedule.due[at]
        value = slot.value_due(at, due)
        slot.waiting_ns += clock.wait_until(due)
        begun = now()
        if begun > schedule.closes_ns:
            return
        try:
            reply = unit(value)
            finished = now()
            if not check(value, reply):
                raise slot.wrong(value, reply)
        except WrongReply:
            raise
        except Exception as error:
            if slot.failed(error):
                return
        else:
            slot.recorder.add(due, begun, finished)


@dataclass
class Turn:
    """What the slots of an event loop share: only one free slot at a time waits for its due time, since a thousand
    timers, or a thousand slots that spin, would be a load of their own."""

    waiting: asyncio.Lock = field(default_factory=asyncio.Lock)
    under_way: int = 0
    """Calls that have begun and not ended. While there are any, the event loop works for the mechanism, and which part
    of its CPU time is waiting cannot be known.
    """


async def paced_async(slot: Slot, schedule: Schedule, clock: Clock, turn: Turn) -> None:
    """`paced` for a unit that is a coroutine function. All slots share `turn`."""
    unit, check, now = slot.unit, slot.check, clock.now
    while True:
        async with turn.waiting:
            at = schedule.take()
            if at < 0:
                return
            due = schedule.due[at]
            value = slot.value_due(at, due)
            await clock.doze_until(due)
            alone = not turn.under_way
            waited = await clock.pause_until(due)
            slot.waiting_ns += waited if alone else 0
        begun = now()
        if begun > schedule.closes_ns:
            return
        turn.under_way += 1
        try:
            reply = await unit(value)
            finished = now()
            if not check(value, reply):
                raise slot.wrong(value, reply)
        except WrongReply:
            raise
        except Exception as error:
            if slot.failed(error):
                return
        else:
            slot.recorder.add(due, begun, finished)
        finally:
            turn.under_way -= 1
