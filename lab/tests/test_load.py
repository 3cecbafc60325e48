"""The parts of the load generators one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pytest

from nearcall_lab.contract import Adapter, Mechanism, SimpleSession, Spec
from nearcall_lab.engine import usage
from nearcall_lab.engine.assemble import grows, interval_medians
from nearcall_lab.engine.machine import Watch
from nearcall_lab.load.arrivals import arrivals_of
from nearcall_lab.load.canary import canary_ns
from nearcall_lab.load.client import Load, share
from nearcall_lab.load.clock import SPIN_NS, Clock
from nearcall_lab.load.one_way import HEAD, TIMED, WARM, Messages, Receiver
from nearcall_lab.load.record import BLOCK, Recorder
from nearcall_lab.load.schedule import due_times
from nearcall_lab.load.warmup import settled
from nearcall_lab.modules import load
from nearcall_lab.placement import Placement
from nearcall_lab.registry import discover
from nearcall_lab.results.histogram import HIGHEST_NS, bucket_width, histogram_of, latencies
from nearcall_lab.results.model import Launch
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.workers.protocol import Channel, Timeout
from nearcall_lab.workers.worker import tree
from nearcall_lab.workloads import octets


def test_histogram_is_the_library_s_own_and_exact_to_a_bucket() -> None:
    samples = np.random.default_rng(1).lognormal(11, 2.5, 50_000).astype(np.int64) + 1
    found = latencies(samples)
    assert found is not None
    histogram = histogram_of(found)
    assert histogram.get_total_count() == found.n == 50_000
    assert (found.min, found.max) == (samples.min(), samples.max())
    assert found.mean == pytest.approx(samples.mean())
    ordered = np.sort(samples)
    for percent in (0.01, 1, 50, 90, 99, 99.9, 100):
        want = int(ordered[max(0, int(np.ceil(round(percent / 100 * len(ordered), 6))) - 1)])
        assert abs(int(histogram.get_value_at_percentile(percent)) - want) <= bucket_width(want)


def test_histograms_add_up_and_never_cap_the_tail() -> None:
    assert latencies(np.empty(0, dtype=np.int64)) is None
    parts = [latencies(np.array(values)) for values in ([1, 5], [10**12, 2 * HIGHEST_NS])]
    assert all(parts)
    merged = histogram_of(*[part for part in parts if part])
    assert merged.get_total_count() == 4
    assert merged.get_value_at_percentile(75) == pytest.approx(10**12, rel=1e-3)
    assert parts[1] is not None
    assert parts[1].max == 2 * HIGHEST_NS


def test_recorder_grows_and_keeps_the_order() -> None:
    recorder = Recorder(intended=True)
    count = 2 * BLOCK + 7
    for i in range(count):
        recorder.add(i, 2 * i, 3 * i)
    assert len(recorder) == count
    for name, factor in (("intended", 1), ("started", 2), ("done", 3)):
        assert (recorder.column(name) == factor * np.arange(count)).all()


def test_warm_up_is_told_from_the_times_themselves() -> None:
    assert settled(np.full(100, 1000))
    assert settled(np.where(np.arange(600) % 10 == 0, 50_000, 1000)), "outliers are not a trend"
    assert not settled(np.linspace(2000, 1000, 100).astype(np.int64))
    assert not settled(np.full(11, 1000)), "too few to tell"


def test_growth_needs_a_steady_rise() -> None:
    due = np.arange(1000) * 1_000_000
    end = 1_000_000_000
    steady = np.linspace(0, 0.05 * end, 1000).astype(np.int64) + 1
    assert grows(due, steady, 0, end)
    assert not grows(due, steady // 100, 0, end), "less than one per cent"
    assert not grows(due, steady[::-1], 0, end)
    stall = np.where(due > 0.95 * end, int(0.05 * end), 1000)
    assert not grows(due, stall, 0, end), "one stall at the end is not growth"


def test_interval_medians() -> None:
    stamps, values = np.array([0, 1, 2, 10, 11, 39]), np.array([5, 6, 7, 1, 3, 9])
    assert interval_medians(stamps, values, 0, 40, count=4) == [6, 2, 0, 9]


def test_shares_add_up() -> None:
    for total in range(12):
        assert sum(share(total, part, 5) for part in range(5)) == total


def test_messages_tell_what_became_of_them() -> None:
    receiver = Receiver(iter(range(1000, 2000)).__next__)
    receiver.arm(size=20, capacity=8)
    warm = Messages(1, WARM, 20, lambda: 1, extra_copy=False)
    timed = [Messages(slot, TIMED, 20, lambda: 7, extra_copy=slot == 2) for slot in (1, 2)]
    first = timed[0].at_once()
    a, b, c = next(first), next(first), next(first)
    other = timed[1].due(99, 555)
    for message in (next(warm.at_once()), a, c, b, b, other, b"", a):
        receiver.receive(message)
    assert receiver.seen() == 8
    receiver.receive(a)
    stamps, heads = receiver.collect()
    arrivals = arrivals_of(stamps + heads, len(stamps) // 8, *receiver.refused())
    assert (arrivals.wrong, arrivals.beyond) == (1, 1)
    mine = arrivals.timed()
    assert len(mine) == 6
    assert mine.duplicated() == 2
    assert mine.reordered() == 3
    once = mine.first_of_each()
    assert once.due.tolist() == [7, 7, 7, 555]
    assert once.stamps.tolist() == [1001, 1002, 1003, 1005]
    assert HEAD.unpack(other[:16])[1] == 555
    assert other[16:] == a[16:]


def test_launch_knows_overload() -> None:
    def launch(**more: object) -> Launch:
        return Launch(number=0, position=0, started="", calls=100, wall_s=1.0, **more)  # type: ignore[arg-type]

    assert not launch().overloaded
    assert not launch(due=101).overloaded
    assert launch(due=102).overloaded
    assert launch(due=100, growing=True).overloaded


def test_processor_time_of_another_process_is_seen_to_the_microsecond() -> None:
    program = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        before = usage.snapshot(tree(child.pid))
        child.stdout.readline()
        after = usage.snapshot(tree(child.pid))
        used = usage.side(usage.Snapshot({}, {}, {}), after, {})
        assert 0.2 <= used.cpu_s < 2
        assert used.peak_rss_kb > 1000
        assert used.descriptors >= 3
        assert usage.side(before, after, {child.pid: (11, 12)}).involuntary_switches == 12
        child.communicate(b"\n")
    assert usage.cpu_ns(child.pid) == 0
    assert usage.descriptors(child.pid) == 0


def test_machine_watch() -> None:
    cpus = os.sched_getaffinity(0)
    watch = Watch(cpus)
    assert watch.steal_share() is None
    begin = time.monotonic()
    while time.monotonic() - begin < 0.25:
        assert canary_ns() > 0
    watch.stop()
    stolen, others = watch.steal_share(), watch.others_share(0.0)
    assert stolen is None or 0 <= stolen <= 1
    if others is not None:  # this loop had a CPU, as long as nobody took it away
        assert 0 < others <= 1
        assert watch.others_share(100.0) == 0
    short = Watch(cpus)
    short.stop()
    assert short.others_share(0.0) is None
    unknown = Watch([10_000])
    unknown.stop()
    assert unknown.steal_share() is None


def test_waiting_for_a_cpu_is_seen() -> None:
    """Two that want all of the same CPU have to wait for each other."""
    cpu = min(os.sched_getaffinity(0))
    program = f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"
    with contextlib.ExitStack() as stack:
        hogs = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE))
            for _ in range(2)
        ]
        for hog in hogs:
            stack.callback(hog.kill)
            assert hog.stdout is not None
            hog.stdout.readline()
        pids = [hog.pid for hog in hogs]
        before, after = usage.snapshot(pids), usage.snapshot(pids)
        while usage.side(before, after, {}).waited_s < 0.05:
            after = usage.snapshot(pids)
        used = usage.side(before, after, {})
    launch = Launch(0, 0, "", 1, 1.0, client=used)
    assert 0 < launch.waited_share < 1


def test_further_clients_get_further_cpus() -> None:
    placement = Placement((0,), (1,), "apart", (2, 3))
    assert [placement.client_cpus(i) for i in range(4)] == [(0,), (2,), (3,), (0,)]
    assert Placement((0, 1), (0, 1), "free").client_cpus(5) == (0, 1)


def test_a_time_limit_within_a_blob_loses_nothing() -> None:
    read, write = os.pipe()
    channel = Channel(read, write)
    os.write(write, b'{"blob": 6}\nabc')
    with pytest.raises(Timeout):
        channel.receive(0.01)
    os.write(write, b'def{"next": 1}\n')
    assert channel.receive(1) == ({"blob": 6}, b"abcdef")
    assert channel.receive(1) == ({"next": 1}, b"")
    channel.close()


def test_clock_waits_until_its_time() -> None:
    for spin_ns in (0, 200_000):
        due = time.monotonic_ns() + 2_000_000
        Clock(spin_ns=spin_ns).wait_until(due)
        assert time.monotonic_ns() >= due


def test_the_floor_waits_as_a_client_that_is_alone_on_its_cpu_does(tmp_path: Path) -> None:
    """Or its times in an open loop are those of being woken, and above what they are to be the floor of."""
    cell = Cell("noop", Work(size=15), Mode("open", rate=100))

    def spin_ns(name: str) -> int:
        entrant = next(entrant for entrant in discover() if entrant.mechanism.name == name)
        spec = Spec(entrant.mechanism, str(tmp_path), "token")
        return Load(cell, load(entrant.module), spec)._clock.spin_ns

    assert spin_ns("noop") == SPIN_NS
    assert spin_ns("nearcall-inproc") == 0, "its server's threads need the CPU"


def test_what_is_prepared_slowly_misses_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first schedule imports what makes random numbers: long on a busy machine, and no call's time."""
    now = 0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += round(seconds * 1e9)

    def slowly(*given: Any, **more: Any) -> Any:
        sleep(5.0)
        return due_times(*given, **more)

    class Sends:
        @staticmethod
        def connect(spec: Spec) -> Any:
            return SimpleSession({"send": lambda data: None}, lambda: None, lambda: None)

    monkeypatch.setattr("nearcall_lab.load.client.due_times", slowly)
    mechanism = Mechanism("sends", "sends", "rpc", operations=("send",))
    cell = Cell("sends", Work("send", size=64), Mode("one-way", rate=500.0, seconds=0.1, warmup_s=0.02))
    clock, adapter = Clock(lambda: now, sleep, cpu=lambda: 0), cast(Adapter, Sends)
    tested = Load(cell, adapter, Spec(mechanism, str(tmp_path), "token"), clock=clock)
    tested.open()
    tested.warm_up()
    assert tested.warmup_calls > 0
    tested.timed(now + 20_000_000)
    done = tested.outcome()
    assert len(done.columns["done"]) == done.due > 30
    assert max(done.columns["started"] - done.columns["intended"]) < 1_000


@pytest.mark.parametrize("style", ["threads", "asyncio"])
def test_callers_use_their_connections_in_turn(style: Literal["threads", "asyncio"], tmp_path: Path) -> None:
    """Two callers, five connections, each opened, used and closed by the thread that opened it."""
    used: list[list[int]] = []
    closed: list[int] = []

    def connection() -> tuple[Callable[[bytes], bytes], Callable[[], None]]:
        calls: list[int] = []
        used.append(calls)

        def echo(data: bytes) -> bytes:
            calls.append(threading.get_ident())
            return data

        return echo, lambda: closed.append(threading.get_ident())

    class OnALoop:
        def __init__(self) -> None:
            self._echo, self._close = connection()

        async def open(self) -> None: ...

        def call(self, operation: str) -> Callable[[bytes], Awaitable[bytes]]:
            async def echo(data: bytes) -> bytes:
                await asyncio.sleep(0)
                return self._echo(data)

            return echo

        async def close(self) -> None:
            self._close()

    class Holds:
        @staticmethod
        def connect(spec: Spec) -> Any:
            if style == "asyncio":
                return OnALoop()
            echo, close = connection()
            return SimpleSession({"echo": echo}, close)

    mechanism = Mechanism("holds", "holds", "rpc", style=style, concurrent_calls=True)
    cell = Cell("holds", Work(size=15), Mode(connections=5, callers=2, calls=40, warmup_s=0.0), placement="free")
    tested = Load(cell, cast(Adapter, Holds), Spec(mechanism, str(tmp_path), "token"))
    tested.open()
    assert len(tested.slots) == 2
    assert min(map(len, used)) == 1, "each connection was used once at least"
    before = sum(map(len, used))
    tested.timed(tested._clock.now())
    assert len(tested.outcome().columns["done"]) == 40 == sum(map(len, used)) - before
    assert {len(calls) for calls in used} <= {7, 8, 9, 10, 11, 12}, "a caller's connections take turns"
    assert all(len(set(calls)) == 1 for calls in used), "by one thread only"
    tested.close()
    assert len(closed) == 5
    assert set(closed) == {calls[0] for calls in used}


def test_long_payloads_are_quickly_made_and_all_different() -> None:
    first, second = octets(30_000_000)
    assert len(first) == len(second) == 30_000_000
    assert first[:1_000_000] != second[:1_000_000]
    assert first[:1_000_000] != first[1_000_000:2_000_000]
    assert set(first[:100_000]) <= set(range(128))


def test_ten_thousand_slots_that_have_not_called_yet_take_little_room() -> None:
    tracemalloc.start()
    try:
        kept = [Recorder(intended=True) for _ in range(1_000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 1_000
    assert taken < 5_000_000
