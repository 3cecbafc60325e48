"""Calls that one thread starts before it waits for the first of them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .services import Basics, Errors, Streams, Waiting

LONG = 25.0
CHILD = """
import nearcall

@nearcall.service
class Echo:
    def echo(self, data: bytes) -> bytes:
        return data

nearcall.serve(Echo(), "stdio:")
"""


@nearcall.service
class Echo:
    def echo(self, data: bytes) -> bytes: ...


@pytest.fixture
def waiting(url: str) -> Iterator[Any]:
    with nearcall.connect(url, Waiting) as service:
        yield service


def test_they_are_under_way_at_once_and_end_in_any_order(url: str, waiting: Any, key: str) -> None:
    names = [f"{key}-{number}" for number in range(5)]
    started = [nearcall.start(waiting.hold, name) for name in names]
    for name in reversed(names):
        assert waiting.entered(name)
        waiting.release(name)
    assert [each.result() for each in started] == names


def test_a_result_and_an_error_are_those_of_the_call(url: str) -> None:
    with nearcall.connect(url, Basics) as basics, nearcall.connect(url, Errors) as errors:
        sums = [nearcall.start(basics.add, number, b=1) for number in range(100)]
        failing = nearcall.start(errors.status, 5, "nobody", None)
        assert [each.result() for each in sums] == list(range(1, 101))
        with pytest.raises(nearcall.NotFound, match="nobody"):
            failing.result()
        with pytest.raises(nearcall.InvalidArgument, match="'b'"):
            nearcall.start(basics.add, 1, b="two")  # type: ignore[arg-type]
        data = os.urandom(3_000_000)
        long = [nearcall.start(basics.echo, data) for _ in range(3)]
        assert [each.result() for each in long] == [data] * 3


def test_an_outcome_is_kept(url: str) -> None:
    with nearcall.connect(url, Basics) as basics, nearcall.connect(url, Errors) as errors:
        started = nearcall.start(basics.add, 1, 2)
        assert repr(started).startswith("<call of Basics.add at ")
        assert [started.result(), started.result(LONG), started.result(0)] == [3, 3, 3]
        assert started.exception() is None
        assert started.done()
        assert not started.cancel(), "there is nothing left to give up"
        assert not started.cancelled()
        assert "returned" in repr(started)
        failing = nearcall.start(errors.status, 5, "nobody", None)
        error = failing.exception(LONG)
        assert isinstance(error, nearcall.NotFound)
        for _ in range(2):
            with pytest.raises(nearcall.NotFound, match="nobody") as raised:
                failing.result()
            assert raised.value is error
        assert "raised" in repr(failing)


def test_one_may_look_and_wait_for_a_while(waiting: Any, key: str) -> None:
    started = nearcall.start(waiting.hold, key)
    assert waiting.entered(key)
    for seconds in (0, 0.02, -1):
        with pytest.raises(TimeoutError, match=rf"Waiting.hold at .* has not ended within {seconds} s") as raised:
            started.result(seconds)
        assert not isinstance(raised.value, nearcall.RpcError), "it is still under way"
    with pytest.raises(TimeoutError):
        started.exception(timeout=0)
    assert not started.done()
    waiting.release(key)
    while not started.done():
        pass
    assert started.result(0) == key
    with pytest.raises(nearcall.InvalidArgument, match="timeout must be a number of seconds"):
        nearcall.start(waiting.release, key).result(float("nan"))


def test_one_whose_deadline_has_passed_is_done(waiting: Any, key: str) -> None:
    with nearcall.timeout(0.02):
        started = nearcall.start(waiting.hold, key)
    assert list(nearcall.as_completed([started], LONG)) == [started]
    assert started.done()
    assert isinstance(started.exception(), nearcall.DeadlineExceeded)
    waiting.release(key)


def test_several_threads_may_wait_for_one(waiting: Any, key: str) -> None:
    started = nearcall.start(waiting.hold, key)
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(started.result) for _ in range(3)]
        ended = pool.submit(lambda: next(nearcall.as_completed([started])))
        assert waiting.entered(key)
        waiting.release(key)
        assert [result.result(LONG) for result in results] == [key] * 3
        assert ended.result(LONG) is started


def test_the_first_of_several_comes_first(url: str, waiting: Any, key: str) -> None:
    """On one connection and on two, one of which another thread receives on."""
    names = [f"{key}-{number}" for number in range(4)]
    with nearcall.connect(url, Waiting) as other, ThreadPoolExecutor(1) as pool:
        started = [nearcall.start((waiting, other)[number % 2].hold, name) for number, name in enumerate(names)]
        assert all(waiting.entered(name) for name in names)
        ended = nearcall.as_completed(started)
        for turn, place in enumerate((3, 0)):
            waiting.release(names[place])
            assert next(ended) is started[place], turn
        leading = pool.submit(other.hold, f"{key}-leading")
        assert waiting.entered(f"{key}-leading")
        waiting.release(names[1])
        assert next(ended) is started[1]
        with pytest.raises(TimeoutError, match="1 of 2 calls have not ended"):
            list(nearcall.as_completed([started[1], started[2], started[1]], 0.02))
        for name in (names[2], f"{key}-leading"):
            waiting.release(name)
        assert list(ended) == [started[2]]
        assert leading.result(LONG) == f"{key}-leading"
        assert sorted(call.result() for call in started) == names


def freeze(pid: int) -> None:
    """Stops a child. Until all its threads have stopped it may still answer."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.slow
def test_the_first_may_be_one_that_fails(url: str, waiting: Any, key: str) -> None:
    """On connections of their own: one is lost while the other waits."""
    child = nearcall.spawn([sys.executable, "-c", CHILD], Echo)
    with child as echo:
        assert echo.echo(b"1") == b"1"
        freeze(child.process.pid)
        started: list[nearcall.StartedCall[Any]] = [
            nearcall.start(waiting.hold, key),
            nearcall.start(echo.echo, b"x"),
        ]
        ended = nearcall.as_completed(started, LONG)
        os.kill(child.process.pid, signal.SIGKILL)
        assert next(ended) is started[1]
        assert isinstance(started[1].exception(), nearcall.Unavailable)
        waiting.release(key)
        assert [call.result() for call in ended] == [key]


def test_nothing_keeps_one_that_has_failed(url: str) -> None:
    """An exception knows the frames that it came through, and these know the call."""
    with nearcall.connect(url, Errors) as errors:

        def fail() -> weakref.ref[Any]:
            started = nearcall.start(errors.status, 5, "nobody", None)
            with pytest.raises(nearcall.NotFound):
                started.result()
            error = started.exception()
            assert error is not None
            error.started = started  # type: ignore[attr-defined]
            return weakref.ref(error)

        left = fail()
        gc.collect()
        assert left() is None


def test_what_is_no_call_cannot_complete() -> None:
    with pytest.raises(TypeError, match=r"as_completed takes what nearcall.start returns, and 3 is something else"):
        nearcall.as_completed([3])  # type: ignore[list-item]
    assert list(nearcall.as_completed([])) == []


def test_the_deadline_is_that_of_its_start(waiting: Any, key: str) -> None:
    with nearcall.timeout(0.05):
        started = nearcall.start(waiting.hold, key)
    with nearcall.timeout(LONG), pytest.raises(nearcall.DeadlineExceeded):
        started.result()
    waiting.release(key)
    again = nearcall.start(waiting.hold, key)
    with nearcall.timeout(0):
        assert again.result() == key


@pytest.mark.parametrize("how", ["cancelled", "forgotten"])
def test_one_that_is_given_up_ends_at_the_server(waiting: Any, key: str, how: str) -> None:
    started = nearcall.start(waiting.hold_in_loop, key)
    assert waiting.entered(key)
    if how == "cancelled":
        assert started.cancel()
        assert started.cancel(), "as it was"
        assert started.cancelled()
        assert started.done()
        for outcome in (started.result, started.exception):
            with pytest.raises(nearcall.Cancelled, match=r"Waiting.hold_in_loop: the call was given up"):
                outcome()
    else:
        del started
        gc.collect()
    assert waiting.how_it_ended(key) == "cancelled"


def test_one_that_another_thread_waits_for_can_be_given_up(waiting: Any, key: str) -> None:
    started = nearcall.start(waiting.hold_in_loop, key)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(started.result)
        assert waiting.entered(key)
        assert started.cancel()
        with pytest.raises(nearcall.Cancelled):
            result.result(LONG)
        assert started.cancelled()
    assert waiting.how_it_ended(key) == "cancelled"


def test_late_replies_to_many_that_were_given_up_are_nobodys(url: str) -> None:
    with nearcall.connect(url, Basics) as basics:
        for _ in range(3):
            for _ in range(6000):
                nearcall.start(basics.add, 1, 1)
            assert basics.add(20, 22) == 42


def test_a_server_that_reads_nothing_does_not_hold_up_the_start() -> None:
    blocks = [bytes([number]) * 100_000 for number in range(20)]
    client = nearcall.spawn([sys.executable, "-c", CHILD], Echo)
    with client as service:
        assert service.echo(b"1") == b"1"
        freeze(client.process.pid)
        try:
            started = [nearcall.start(service.echo, block) for block in blocks]
        finally:
            os.kill(client.process.pid, signal.SIGCONT)
        assert [each.result() for each in started] == blocks


def test_all_learn_of_the_servers_death() -> None:
    client = nearcall.spawn([sys.executable, "-c", CHILD], Echo)
    with client as service:
        freeze(client.process.pid)
        started = [nearcall.start(service.echo, b"x") for _ in range(3)]
        os.kill(client.process.pid, signal.SIGKILL)
        for each in started:
            with pytest.raises(nearcall.Unavailable):
                each.result()


def test_an_event_loop_starts_calls_without_tasks(url: str, key: str) -> None:
    names = [f"{key}-{number}" for number in range(5)]

    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            started = [waiting.hold.start(name) for name in names]
            for name in names:
                assert await waiting.entered(name)
                await waiting.release(name)
            assert [await each for each in reversed(started)] == names[::-1]
            with pytest.raises(RuntimeError, match="twice"):
                await started[0]
            forgotten = waiting.hold_in_loop.start(key)
            assert await waiting.entered(key)
            del forgotten
            gc.collect()
            assert await waiting.how_it_ended(key) == "cancelled"
            with nearcall.timeout(0.05):
                late = waiting.hold.start(f"{key}-late")
            with pytest.raises(nearcall.DeadlineExceeded):
                await late
            await waiting.release(f"{key}-late")
            hasty = waiting.hold.within(0.05)
            with pytest.raises(nearcall.DeadlineExceeded):
                await hasty(f"{key}-hasty")
            await waiting.release(f"{key}-hasty")
            with pytest.raises(TypeError, match="ensure_future"):
                nearcall.start(waiting.hold, key)

    asyncio.run(main())


def times_slept(pid: int) -> int:
    """How often the threads of a process have gone to sleep."""
    lines = [
        line for task in Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").read_text().splitlines()
    ]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def test_a_call_now_and_then_keeps_no_thread_awake() -> None:
    """The worker that watches looks once after a handler, and not each millisecond for a while."""
    client, calls = nearcall.spawn([sys.executable, "-c", CHILD], Echo), 20
    with client as service:
        for _ in range(100):
            service.echo(b"x")
        before = times_slept(client.process.pid)
        for _ in range(calls):
            time.sleep(0.03)
            service.echo(b"x")
        assert times_slept(client.process.pid) - before < 10 * calls


def test_a_method_has_a_time_limit_of_its_own(waiting: Any, key: str) -> None:
    hasty = waiting.hold.within(0.05)
    with pytest.raises(nearcall.DeadlineExceeded):
        hasty(key)
    with nearcall.timeout(LONG), pytest.raises(nearcall.DeadlineExceeded):
        hasty.start(key).result()
    with nearcall.timeout(0.05), pytest.raises(nearcall.DeadlineExceeded):
        waiting.hold.within(LONG)(key)
    with pytest.raises(nearcall.DeadlineExceeded):
        hasty.within(LONG)(key)
    with pytest.raises(nearcall.InvalidArgument, match="timeout must be a number of seconds"):
        waiting.hold.within(-1.0)
    waiting.release(key)
    assert waiting.hold(key) == key


def test_what_cannot_be_started_says_so(url: str) -> None:
    def nothing(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        return proceed(call)

    with (
        nearcall.connect(url, Streams) as streams,
        pytest.raises(TypeError, match=r"Streams\.count cannot .* without streams"),
    ):
        nearcall.start(streams.count, 3)
    with (
        nearcall.connect(url, Basics, interceptors=[nothing]) as basics,
        pytest.raises(TypeError, match=r"has interceptors \(nothing\), .* ThreadPoolExecutor"),
    ):
        nearcall.start(basics.add, 1)
    with pytest.raises(TypeError, match="cannot be started"):
        nearcall.start(len, "abc")
