"""The load generators against a server whose delays are known: they must report the percentiles worked out by hand.

In virtual time, where only the scripted server makes the clock advance, the answer is exact to a bucket of the
histogram. `test_stalls` has the same with real processes.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from nearcall_lab.engine.assemble import grows, little_by_events
from nearcall_lab.load.clock import Clock
from nearcall_lab.load.closed import closed, closed_async
from nearcall_lab.load.paced import Turn, paced, paced_async
from nearcall_lab.load.schedule import Schedule, due_times
from nearcall_lab.load.slot import Slot, WrongReply
from nearcall_lab.results.histogram import bucket_width, histogram_of, latencies

US, MS = 1_000, 1_000_000
FAST, STALL, EVERY = 100 * US, 30 * MS, 100


class _VirtualTime:
    """A clock that stands still except when somebody waits or the server works."""

    def __init__(self) -> None:
        self.ns = 0

    def now(self) -> int:
        return self.ns

    def pass_(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time: instead of sleeping until the next timer it sets the clock to it."""

    def __init__(self, time: _VirtualTime) -> None:
        super().__init__(selectors.SelectSelector())
        self._virtual = time
        self._clock_resolution = 1e-9
        real_select = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            if timeout:
                time.pass_(timeout)
            return real_select(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._virtual.ns / 1e9


class _Scripted:
    """Takes `FAST` for a call, and `STALL` for every `EVERY`-th."""

    def __init__(self, time: _VirtualTime) -> None:
        self.time = time
        self.calls = 0

    def delay_ns(self) -> int:
        self.calls += 1
        return STALL if self.calls % EVERY == 0 else FAST

    def call(self, value: bytes) -> bytes:
        self.time.ns += self.delay_ns()
        return value

    async def call_async(self, value: bytes) -> bytes:
        await asyncio.sleep(self.delay_ns() / 1e9)
        return value


def _slot(unit: Callable[[Any], Any], number: int = 0, intended: bool = False) -> Slot:
    slot = Slot(number, unit, [b"one", b"two"], lambda value, reply: bool(value == reply), lambda v, r: f"{v!r} {r!r}")
    slot.restart(0, intended)
    return slot


def _percentile(samples: np.ndarray, percent: float) -> int:
    found = latencies(samples)
    assert found is not None
    return int(histogram_of(found).get_value_at_percentile(percent))


def _close(got: int, want: int) -> bool:
    return abs(got - want) <= bucket_width(want)


@pytest.mark.parametrize("style", ["threads", "asyncio"])
def test_closed_loop_reports_the_scripted_percentiles(style: str) -> None:
    time = _VirtualTime()
    server = _Scripted(time)
    if style == "threads":
        slot = _slot(server.call)
        closed(slot, time.now, 1 << 60, 10_000)
    else:
        slot = _slot(server.call_async)
        loop = _VirtualLoop(time)
        loop.run_until_complete(closed_async(slot, time.now, 1 << 60, 10_000))
        loop.close()
    times = slot.recorder.column("done") - slot.recorder.column("started")
    assert len(times) == 10_000
    for percent, want in ((50, FAST), (98.9, FAST), (99.1, STALL), (100, STALL)):
        assert _close(_percentile(times, percent), want), percent


def _by_hand(due: list[int], slots: int) -> np.ndarray:
    """Response times of a queue with `slots` servers, first come first served, by its definition."""
    free = [0] * slots
    responses = []
    for number, at in enumerate(due, start=1):
        begin = max(at, min(free))
        end = begin + (STALL if number % EVERY == 0 else FAST)
        free[free.index(min(free))] = end
        responses.append(end - at)
    return np.array(responses)


@pytest.mark.parametrize(("style", "slots"), [("threads", 1), ("asyncio", 1), ("asyncio", 4)])
@pytest.mark.parametrize("arrivals", ["fixed", "poisson"])
def test_open_loop_counts_the_wait_of_those_that_were_due_during_a_stall(style: str, slots: int, arrivals: str) -> None:
    """A closed loop sees one slow call in a hundred. Who calls at 1000 per second meets a stall of 30 ms thirty times
    in a hundred calls; the response time must say so."""
    due = due_times(1000, 10, arrivals, 1).tolist()  # type: ignore[arg-type]
    time = _VirtualTime()
    server = _Scripted(time)
    clock = Clock(time.now, time.pass_)
    if style == "threads":
        crew = [_slot(server.call, intended=True)]
        paced(crew[0], Schedule(due, 1 << 60), clock)
    else:
        crew = [_slot(server.call_async, number, intended=True) for number in range(slots)]
        loop = _VirtualLoop(time)

        async def run() -> None:
            turn, schedule = Turn(), Schedule(due, 1 << 60)
            await asyncio.gather(*(paced_async(slot, schedule, clock, turn) for slot in crew))

        loop.run_until_complete(run())
        loop.close()
    columns = {c: np.concatenate([s.recorder.column(c) for s in crew]) for c in ("intended", "started", "done")}
    response, service = columns["done"] - columns["intended"], columns["done"] - columns["started"]
    expected = _by_hand(due, slots)
    assert len(response) == len(due)
    for percent in (50, 75, 90, 99, 99.9, 100):
        want = int(np.sort(expected)[max(0, int(np.ceil(round(percent / 100 * len(due), 6))) - 1)])
        assert _close(_percentile(response, percent), want), percent
    assert _close(_percentile(service, 98.9), FAST), "service time knows nothing of the queue"
    if slots == 1 and arrivals == "fixed":
        assert _percentile(response, 75) > 10 * FAST, "the very thing a closed loop hides"
        assert np.count_nonzero(response > FAST) == pytest.approx(len(due) / 3, rel=0.02)
    assert (columns["started"] >= columns["intended"]).all()
    assert not grows(columns["intended"], response, 0, 10 * 1000 * MS)
    mean = float(service.mean())
    assert little_by_events(columns["started"], columns["done"], 10.0, mean) == pytest.approx(1, abs=1e-6)


def test_the_lab_s_own_waiting_is_told_from_the_calls() -> None:
    """Here all time is CPU time: what the calls did not take, waiting did."""
    time = _VirtualTime()
    due = due_times(1000, 1, "poisson", 1).tolist()
    slot = _slot(_Scripted(time).call, intended=True)
    paced(slot, Schedule(due, 1 << 60), Clock(time.now, time.pass_, cpu=time.now))
    in_calls = slot.recorder.column("done") - slot.recorder.column("started")
    assert slot.waiting_ns == time.now() - in_calls.sum() > 0


def test_more_than_can_be_done_is_seen_by_its_lag() -> None:
    """1000 calls of 1.1 ms are due in a second; 909 can be done in it."""
    time = _VirtualTime()

    def call(value: bytes) -> bytes:
        time.ns += 1100 * US
        return value

    due = due_times(1000, 1, "fixed", 1).tolist()
    slot = _slot(call, intended=True)
    paced(slot, Schedule(due, 1_000 * MS), Clock(time.now, time.pass_))
    started, intended = slot.recorder.column("started"), slot.recorder.column("intended")
    assert len(started) == 910, "what would start after the close is not started"
    assert int((started - intended).max()) == 909 * 100 * US
    assert grows(intended, slot.recorder.column("done") - intended, 0, 1_000 * MS)


def test_a_call_that_raises_is_counted_and_the_next_one_kept() -> None:
    time = _VirtualTime()
    turns = iter(range(1 << 20))

    def call(value: bytes) -> bytes:
        time.ns += FAST
        if next(turns) % 5 == 0:
            raise TimeoutError("no")
        return value

    slot = _slot(call)
    closed(slot, time.now, 1 << 60, 100)
    assert len(slot.recorder) == 100
    assert slot.errors == {"TimeoutError: no": 25}
    assert set(slot.recorder.column("done") - slot.recorder.column("started")) == {FAST}
    slot = _slot(call, intended=True)
    paced(slot, Schedule([0] * 50, 1 << 60), Clock(time.now, time.pass_))
    assert len(slot.recorder) == 40
    assert slot.errors == {"TimeoutError: no": 10}


def test_a_dead_connection_is_given_up() -> None:
    def call(value: bytes) -> bytes:
        raise ConnectionResetError("gone")

    slot = _slot(call)
    closed(slot, _VirtualTime().now, 1 << 60, 1000)
    assert slot.errors == {"ConnectionResetError: gone": 100}
    assert slot.first_error == "ConnectionResetError: gone"


@pytest.mark.parametrize("load", ["closed", "paced"])
def test_a_wrong_reply_ends_the_load(load: str) -> None:
    time = _VirtualTime()
    slot = _slot(lambda value: b"one", intended=True)
    run = {
        "closed": partial(closed, slot, time.now, 1 << 60, 10),
        "paced": partial(paced, slot, Schedule([0] * 10, 1 << 60), Clock(time.now, time.pass_)),
    }[load]
    with pytest.raises(WrongReply, match="b'two' b'one'"):
        run()
