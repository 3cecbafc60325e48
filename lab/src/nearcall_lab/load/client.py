"""The load of one client process, from the first connection to the last stamp."""

from __future__ import annotations

import gc
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.contract import Adapter, Spec
from nearcall_lab.failure import few
from nearcall_lab.load.clock import SPIN_ASYNCIO_NS, SPIN_NS, Clock
from nearcall_lab.load.closed import closed, closed_async
from nearcall_lab.load.one_way import SMALLEST, TIMED, WARM, Messages
from nearcall_lab.load.paced import Turn, paced, paced_async
from nearcall_lab.load.runners import runner_for
from nearcall_lab.load.schedule import MOST, Schedule, due_times
from nearcall_lab.load.slot import Slot
from nearcall_lab.load.units import Marks, Unit, connection_of, in_turn, unit_of
from nearcall_lab.load.warmup import ROUNDS, settled
from nearcall_lab.load.work import Job, job_of
from nearcall_lab.scenario.cell import Cell

COUNTED_LIMIT_S = 120.0
"""A cell that ends by a number of calls ends after this many seconds at the latest."""
_NEVER = 1 << 62
MOST_MESSAGES = 4_000_000
"""Most one-way messages in one launch, over all processes: the receiver has room for that many."""


class Unsupported(Exception):
    """The mechanism, as its adapter describes it, cannot do this."""


def share(total: int, part: int, parts: int) -> int:
    """How many of `total` things the part with number `part` gets when they are dealt out in turn."""
    return (total - part + parts - 1) // parts


def drain_s(seconds: float) -> float:
    """How long after the last due time of an open loop calls may still start: late, but not missed."""
    return max(0.2, 0.25 * seconds)


def refuse(cell: Cell, adapter_operations: Sequence[str], concurrent_calls: bool) -> None:
    """Raise `Unsupported` with the reason if the mechanism cannot run the cell."""
    if cell.work.operation not in adapter_operations:
        raise Unsupported(f"has no operation {cell.work.operation!r}")
    if cell.mode.outstanding > 1 and not concurrent_calls:
        raise Unsupported(f"takes one call at a time on a connection, not {cell.mode.outstanding}: give it connections")
    if cell.mode.kind == "one-way" and cell.work.size < SMALLEST:
        raise Unsupported(f"one-way messages carry number and time, {SMALLEST} bytes: {cell.work.size} are too few")
    if cell.mode.connections < 1 or cell.mode.outstanding < 1:
        raise Unsupported("needs at least one connection and one call under way")
    if not 1 <= cell.mode.client_processes <= cell.mode.connections:
        raise Unsupported(f"needs a connection for each of {cell.mode.client_processes} client processes")


@dataclass
class Outcome:
    """The results of the timed part of one client process; see `columns`."""

    columns: dict[str, NDArray[np.int64]]
    """Equally long, one row per call that was right: ``started``, ``done``, for an open loop ``intended``, and the
    unit's marks."""
    errors: Counter[str]
    first_error: str
    due: int
    sent: int
    dropped: int
    bursts: list[int] = field(default_factory=list)
    """Begin and end of each burst in turn."""
    secrets: set[int] = field(default_factory=set)
    """The secrets in typed replies: what they contain beyond what follows from their arguments."""


class CallFailed(Exception):
    """No call succeeded before the beginning of the timed part."""


class Load:
    """Opens this process's share of the connections and makes the calls on them. Not thread-safe."""

    def __init__(self, cell: Cell, adapter: Adapter, spec: Spec, process: int = 0, clock: Clock | None = None) -> None:
        refuse(cell, spec.mechanism.operations, spec.mechanism.concurrent_calls)
        mode = cell.mode
        self.cell, self._adapter, self._spec = cell, adapter, spec
        self._process, self._processes = process, mode.client_processes
        self._connections = share(mode.connections, process, self._processes)
        self._outstanding = mode.outstanding
        if mode.kind == "burst":  # further slots would have no calls to make
            self._outstanding = min(mode.outstanding, math.ceil(mode.calls / mode.connections))
        self._asynchronous = spec.mechanism.style == "asyncio"
        self._most = self._slots_of(process)
        count = self._most
        self._runner = runner_for(spec.mechanism, count)
        self._clock = clock or Clock(spin_ns=self._spin(count))
        self._job: Job = job_of(cell)
        self._held: list[list[Any]] = []
        """The open sessions, by the thread, or task, that opened them."""
        self._extra: Any = None
        self._rate = 0.0
        self._dropped_before = 0
        self._own_ns = 0
        self._due = 0
        self._timed_due = self._due_times(mode.seconds, process) if self._is_paced() else np.empty(0, np.int64)
        self._bursts: list[int] = []
        self.slots: list[Slot] = []
        self.warmup_calls = 0
        self.requests = 0
        """Calls that the server must have handled so far."""
        self.failed = 0
        """Failed calls, which the server may have handled as well."""

    def _slots_of(self, process: int) -> int:
        """Most calls that a client process has under way."""
        mode = self.cell.mode
        connections = share(mode.connections, process, self._processes)
        if mode.callers:
            return min(connections, share(mode.callers, process, self._processes))
        return connections * self._outstanding

    def _spin(self, slots: int) -> int:
        """Spin only on a CPU that nothing else in this launch needs: neither the server nor another thread of this
        process.
        """
        if self.cell.placement != "apart" or self._processes > 1:
            return 0
        mechanism = self._spec.mechanism
        served_here = self.cell.same_process or mechanism.same_process or len(os.sched_getaffinity(0)) > 1
        if served_here and not mechanism.in_caller:
            return 0
        if self._asynchronous:
            return SPIN_ASYNCIO_NS
        return SPIN_NS if slots == 1 else 0

    # Connecting and warming up

    def open(self) -> int:
        """Open the sessions and make the very first call on each. Returns the first one's time in nanoseconds."""
        offset = sum(self._slots_of(process) for process in range(self._process))
        if self.cell.mode.kind != "connect":
            self._open_all()
        for at in range(self._most):
            unit, marks = self._unit(at)
            number = offset + at
            self.slots.append(Slot(number, unit, self._job.arguments, self._job.check, self._job.describe, marks=marks))
        first = self._first_calls(self.slots[:1], 1)
        calling = self.slots[: self._connections]
        self._first_calls(calling, -(-self._connections // len(calling)))
        return first

    def _open_all(self) -> None:
        """Open the sessions, each in the thread that will use it; those of one caller one after another."""
        callers = self._most if self.cell.mode.callers else self._connections
        shares = [share(self._connections, at, callers) for at in range(callers)]
        self._held = self._runner.each([self._open_some(number) for number in shares])

    def _unit(self, at: int) -> tuple[Unit, Marks]:
        """The unit of a slot, on its connection; a caller's is made on the next of its connections each time."""
        if self.cell.mode.kind == "connect":
            return connection_of(
                self._adapter, self._spec, self.cell.work.operation, self._clock.now, self._asynchronous
            )
        held = self._held[at % len(self._held)]
        units = [unit_of(self.cell, session, self._clock.now, self._asynchronous) for session in held]
        return units[0] if len(units) == 1 else in_turn([unit for unit, _ in units])

    def _open_some(self, number: int) -> Callable[[], Any]:
        """What opens so many sessions one after another."""
        open_one = self._open_one()

        def open_some() -> list[Any]:
            return [open_one() for _ in range(number)]

        async def open_some_async() -> list[Any]:
            return [await open_one() for _ in range(number)]

        return open_some_async if self._asynchronous else open_some

    def _open_one(self) -> Callable[[], Any]:
        def open_one() -> Any:
            session: Any = self._adapter.connect(self._spec)
            session.open()
            return session

        async def open_one_async() -> Any:
            session: Any = self._adapter.connect(self._spec)
            await session.open()
            return session

        return open_one_async if self._asynchronous else open_one

    def _first_calls(self, slots: list[Slot], each: int) -> int:
        """So many calls of each slot. Returns the time of the very first one in nanoseconds."""
        self._restart(WARM)
        self._closed(slots, _NEVER, each=each)
        self._count()
        for slot in slots:
            if slot.first_error:
                raise CallFailed(slot.first_error)
        return int(slots[0].recorder.column("done")[0] - slots[0].recorder.column("started")[0])

    def warm_up(self) -> bool:
        """Make calls like those of the timed part until the times have settled, in `ROUNDS` rounds at most. They are
        made without pauses, except one-way messages that have a rate.
        """
        length = int(self.cell.mode.warmup_s * 1e9)
        for turn in range(ROUNDS if length > 0 else 0):
            self._restart(WARM, self._expected(self.cell.mode.warmup_s))
            if self.cell.mode.kind == "one-way" and self._is_paced():
                due = self._due_times(self.cell.mode.warmup_s, self._process + (turn + 1) * self._processes)
                begin = self._clock.now()
                # Late as they may be on a busy machine, they warm up.
                self._on_schedule(Schedule((due + begin).tolist(), _NEVER))
            else:
                begin = self._clock.now()
                self._closed(self.slots, begin + length)
            elapsed = self._clock.now() - begin
            self._flush()
            calls = self._count()
            self.warmup_calls += calls
            if not calls:
                raise CallFailed(
                    next((slot.first_error for slot in self.slots if slot.first_error), "no call was done")
                )
            self._rate = calls / len(self.slots) / (elapsed / 1e9)
            if settled(self._durations()):
                return True
        return False

    def tidy(self) -> None:
        """Collect garbage now, so that it is not collected in the timed part. To be done before its beginning is fixed:
        with ten thousand connections it takes a second.
        """
        gc.collect()

    def _durations(self) -> NDArray[np.int64]:
        started, done = (np.concatenate([s.recorder.column(c) for s in self.slots]) for c in ("started", "done"))
        found: NDArray[np.int64] = (done - started)[np.argsort(done, kind="stable")]
        return found

    def _expected(self, seconds: float) -> int:
        return int(self._rate * seconds * 1.5)

    def _restart(self, phase: int, expected: int = 0) -> None:
        mode = self.cell.mode
        intended = mode.kind in ("open", "burst") or (mode.kind == "one-way" and mode.rate > 0)
        for slot in self.slots:
            slot.restart(expected, intended)
            if mode.kind == "one-way":
                messages = Messages(slot.number, phase, self.cell.work.size, self._clock.now, mode.extra_copy)
                slot.values = messages.at_once()
                slot.value_due = messages.due

    def _count(self) -> int:
        """Add the calls just made to `requests` and `failed`. Returns the calls with a right reply."""
        done = sum(len(slot.recorder) for slot in self.slots)
        failed = sum(slot.errors.total() for slot in self.slots)
        per_call = len(self.cell.work.sizes) if self.cell.mode.kind == "mixed" else 1
        self.requests += done * per_call
        self.failed += failed * per_call
        return done

    # The timed part

    def timed(self, begin_ns: int) -> None:
        """Everything between the first stamp and the last; `outcome` returns the results."""
        mode = self.cell.mode
        own = self._clock.cpu()
        self._due, self._bursts = 0, []
        self._dropped_before = self._dropped() if mode.kind == "one-way" else 0
        self._restart(TIMED, self._expected(mode.seconds))
        schedule = self._schedule(begin_ns) if self._is_paced() else None
        self._clock.wait_until(begin_ns)
        self._own_ns = self._clock.cpu() - own
        if mode.kind == "burst":
            self._burst_after_burst(begin_ns)
        elif schedule is not None:
            self._on_schedule(schedule)
        elif mode.calls:
            self._closed(self.slots, begin_ns + int(COUNTED_LIMIT_S * 1e9), together=mode.calls)
        else:
            self._closed(self.slots, begin_ns + int(mode.seconds * 1e9))
        self._flush()
        self._count()

    def waiting_ns(self) -> int:
        """CPU time that the timed part spent before its beginning, and on waiting for due times, nanoseconds."""
        return self._own_ns + sum(slot.waiting_ns for slot in self.slots)

    def _flush(self) -> None:
        """The mechanism may have accepted messages faster than it sends them: those still queued must not disturb what
        follows.
        """
        if self.cell.mode.kind == "one-way":
            self._runner.each([held[0].flush for held in self._held])

    def _closed(self, slots: list[Slot], end_ns: int, each: int = 0, together: int = 0) -> None:
        """At most `each` calls per slot, or `together` over all slots of all processes; 0 is as many as there is time
        for.
        """
        loop = closed_async if self._asynchronous else closed
        everybody = sum(self._slots_of(process) for process in range(self._processes))
        most = MOST_MESSAGES // everybody if self.cell.mode.kind == "one-way" else MOST
        limits = [share(together, slot.number, everybody) if together else each or most for slot in slots]
        now = self._clock.now
        self._runner.each([partial(loop, slot, now, end_ns, most) for slot, most in zip(slots, limits, strict=True)])

    def _is_paced(self) -> bool:
        return self.cell.mode.rate > 0 and self.cell.mode.kind != "burst"

    def _due_times(self, seconds: float, part: int) -> NDArray[np.int64]:
        """When calls are due, in nanoseconds from the beginning.

        To be asked for before that is fixed: it takes time, and the first calls would be late by it, or all missed.
        """
        mode, parts = self.cell.mode, self._processes
        seconds = self._scheduled_s(seconds)
        due = due_times(mode.rate, seconds, mode.arrivals, self.cell.seed, part % parts, parts, stream=part)
        return due[: share(mode.calls, self._process, parts)] if mode.calls else due

    def _scheduled_s(self, seconds: float) -> float:
        mode = self.cell.mode
        # Where the number of calls decides, the schedule is cut off after that many.
        return 2 * mode.calls / mode.rate + 1 if mode.calls else seconds

    def _schedule(self, begin_ns: int) -> Schedule:
        """The schedule of the timed part."""
        mode, due = self.cell.mode, self._timed_due
        seconds = self._scheduled_s(mode.seconds)
        last = int(due[-1]) if len(due) else 0
        closes = begin_ns + max(last, int(seconds * 1e9) if not mode.calls else 0) + int(drain_s(seconds) * 1e9)
        self._due = len(due)
        return Schedule((due + begin_ns).tolist(), closes)

    def _burst_after_burst(self, begin_ns: int) -> None:
        """At least one burst, and further ones while there is time, unless that would need synchronization with other
        client processes.
        """
        mode = self.cell.mode
        calls = share(mode.calls, self._process, self._processes)
        begin = begin_ns
        while True:
            self._on_schedule(Schedule([begin] * calls, begin + int(COUNTED_LIMIT_S * 1e9)))
            end = self._clock.now()
            self._bursts += [begin, end]
            self._due += calls
            if end >= begin_ns + mode.seconds * 1e9 or self._processes > 1:
                return
            begin = self._clock.now()

    def _on_schedule(self, schedule: Schedule) -> None:
        if self._asynchronous:
            turn = Turn()
            self._runner.each([partial(paced_async, slot, schedule, self._clock, turn) for slot in self.slots])
        else:
            self._runner.each([partial(paced, slot, schedule, self._clock) for slot in self.slots])

    def _dropped(self) -> int:
        return sum(session.dropped() for held in self._held for session in held)

    def outcome(self) -> Outcome:
        """The results of the timed part."""
        slots = self.slots
        names = ["started", "done"]
        if self._due:
            names.append("intended")
        columns = {name: np.concatenate([slot.recorder.column(name) for slot in slots]) for name in names}
        for mark in slots[0].marks:
            columns[mark] = np.concatenate([np.asarray(slot.marks[mark], dtype=np.int64) for slot in slots])
        errors = few(sum((slot.errors for slot in slots), Counter()))
        first_error = next((slot.first_error for slot in slots if slot.first_error), "")
        one_way = self.cell.mode.kind == "one-way"
        dropped = self._dropped() - self._dropped_before if one_way else 0
        sent = len(columns["done"]) if one_way else 0
        return Outcome(columns, errors, first_error, self._due, sent, dropped, self._bursts, self._job.secrets)

    # Beside the timed part

    def idle(self, seconds: float) -> None:
        """Make no call for a while."""
        self._runner.idle(seconds)

    def extra(self, step: Literal["open", "call", "close"]) -> None:
        """One more connection, step by step, so that the lab can look at the server in between."""

        def synchronous() -> Any:
            if step == "open":
                return self._open_one()()
            if step == "call":
                return self._extra.call(self.cell.work.operation)(self._job.arguments[0])
            return self._extra.close()

        async def asynchronous() -> Any:
            if step == "open":
                return await self._open_one()()
            if step == "call":
                return await self._extra.call(self.cell.work.operation)(self._job.arguments[0])
            return await self._extra.close()

        result = self._runner.each([asynchronous if self._asynchronous else synchronous])[0]
        if step == "open":
            self._extra = result
        self.requests += step == "call"

    def close(self) -> None:
        """Close the sessions, each where it was opened."""

        def close_some(held: list[Any]) -> None:
            for session in held:
                session.close()

        async def close_some_async(held: list[Any]) -> None:
            for session in held:
                await session.close()

        close = close_some_async if self._asynchronous else close_some
        self._runner.each([partial(close, held) for held in self._held])
        self._runner.close()
