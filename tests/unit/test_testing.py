"""nearcall.testing itself: services in memory, the proxy's rules and counters, pytest's fixtures."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

import nearcall
from nearcall.testing import FaultyProxy, Frame, faulty, serving

from ..e2e.deadlines import longer_and_longer

pytest_plugins = ["pytester"]


@nearcall.service
class Letters:
    @nearcall.idempotent  # so that a call that meets a cut connection is made again
    def upper(self, text: str) -> str:
        return text.upper()

    def each(self, text: str) -> Iterator[str]:
        yield from text

    def fail(self) -> None:
        raise ValueError("no")


def proxies() -> list[str]:
    """The threads of proxies that run."""
    return [thread.name for thread in threading.enumerate() if "proxy" in thread.name]


def test_serving() -> None:
    served = serving(Letters())
    with served as letters:
        assert letters.upper("a") == "A"
        assert served.url.startswith("inproc://")
        with served.connect() as another:
            assert list(another.each("xyz")) == ["x", "y", "z"]
    with pytest.raises(RuntimeError, match="make a new one"), served:
        pass
    with pytest.raises(nearcall.Unavailable):
        nearcall.connect(served.url, Letters)


@nearcall.service
class Waiting:
    async def upper(self, text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()


@nearcall.service(name="Waiting")
class WaitingForThreads(Protocol):
    def upper(self, text: str) -> str: ...


def test_a_client_by_another_interface_than_the_class() -> None:
    served = serving(Waiting(), interface=WaitingForThreads)
    with served as waiting, served.connect() as another:
        assert waiting.upper("a") + another.upper("b") == "AB"
    with faulty(Waiting(), interface=WaitingForThreads) as (waiting, proxy):
        assert waiting.upper("a") == "A"
        assert proxy.connections == 1
    with pytest.raises(nearcall.FailedPrecondition), serving(Waiting(), interface=Letters):
        pass


def test_two_do_not_meet() -> None:
    first, second = serving(Letters()), serving(Letters())
    with first as a, second as b:
        assert first.url != second.url
        assert a.upper("x") == b.upper("x") == "X"


def test_serving_with_options() -> None:
    seen: list[str] = []

    def note(call: nearcall.ClientCall, proceed: Any) -> Any:
        seen.append(call.method)
        return proceed(call)

    with serving(Letters(), url="tcp://127.0.0.1:0", server={"tracebacks": True}, client={"interceptors": [note]}) as a:
        with pytest.raises(nearcall.Unknown) as caught:
            a.fail()
        assert "ValueError" in str(caught.value.remote_traceback)
    assert seen == ["Letters.fail"]
    with pytest.raises(TypeError, match="write Letters"):
        serving(cast(Any, Letters))


def test_serving_and_faults_in_a_loop() -> None:
    async def main() -> None:
        async with serving(Letters()) as letters:
            assert await letters.upper("a") == "A"
        async with faulty(Letters()) as (letters, proxy):
            for seconds in longer_and_longer():
                lost = proxy.drop("reply")
                with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
                    await letters.upper("a")
                if lost.count:
                    break
                lost.remove()
            assert [item async for item in letters.each("ab")] == ["a", "b"]
            assert proxy.dropped == 1

    asyncio.run(main())
    assert proxies() == []


def test_nothing_is_left_behind() -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def use(url: str | None) -> None:
        with faulty(Letters(), url=url) as (letters, proxy):
            assert letters.upper("a") == "A"
            place = proxy.url.removeprefix("unix://")
            proxy.cut()
        assert not Path(place).exists()

    use(None)
    before = descriptors()
    for url in (None, "tcp://127.0.0.1:0", "inproc://left", f"shm://left-{os.getpid()}"):
        use(url)
    assert proxies() == []
    assert descriptors() == before
    proxy = FaultyProxy("tcp://127.0.0.1:1")
    proxy.close()
    proxy.close()


def test_which_messages_are_struck() -> None:
    with faulty(Letters()) as (letters, proxy):
        seen = proxy.watch()
        second = proxy.corrupt("reply", method="Letters.upper", skip=1, change=lambda wire: wire[:-1] + b"?")
        third = proxy.corrupt("item", where=lambda frame: frame.payload == b"\xa1b", at=-1)
        assert [letters.upper("a") for _ in range(3)] == ["A", "?", "A"]
        with pytest.raises(nearcall.Internal):
            list(letters.each("abc"))
        assert (second.count, third.count, proxy.corrupted) == (1, 1, 2)
        assert [frame.kind for frame in seen.frames[:8]] == ["call", "reply"] * 3 + ["call", "item"]
        assert {frame.method for frame in seen.frames[:6]} == {"Letters.upper"}
        assert {frame.method for frame in seen.frames[6:8]} == {"Letters.each"}
        assert [frame.to for frame in seen.frames[:2]] == ["server", "client"]
        seen.remove()
        count = seen.count
        letters.upper("a")
        assert seen.count == count


def test_chance_is_the_same_each_time() -> None:
    def outcomes(seed: int) -> list[str]:
        with faulty(Letters(), seed=seed) as (letters, proxy):
            proxy.corrupt("reply", times=None, probability=0.5, change=lambda wire: wire[:-1] + b"?")
            return [letters.upper("a") for _ in range(64)]

    first = outcomes(1)
    assert first == outcomes(1)
    assert first != outcomes(2)
    assert {*first} == {"A", "?"}


def test_rules_that_make_no_sense() -> None:
    with faulty(Letters()) as (_, proxy):
        for make, message in [
            (lambda: proxy.drop(cast(Any, "replies")), "no frames of kind 'replies'; there are hello, "),
            (lambda: proxy.drop(to=cast(Any, "me")), "'client' or 'server', not 'me'"),
            (lambda: proxy.drop(times=0), "times must be a whole number from 1"),
            (lambda: proxy.drop(skip=-1), "skip must be a whole number from 0"),
            (lambda: proxy.drop(probability=2), "probability must be from 0 to 1"),
            (lambda: proxy.delay(-1, "reply"), "seconds must be a number of seconds"),
            (lambda: proxy.corrupt(at=1, change=bytes), "not both"),
        ]:
            with pytest.raises(nearcall.InvalidArgument, match=message):
                make()
    with pytest.raises(nearcall.InvalidArgument, match="give the URL of a server"):
        FaultyProxy("calc")


def test_what_cannot_be_seen_cannot_be_struck() -> None:
    for url, sees in (("inproc://dark", "only the handshake"), ("tls://127.0.0.1:9", "nothing of what is said")):
        with FaultyProxy(url) as proxy:
            for make in (proxy.drop, lambda proxy=proxy: proxy.truncate("reply")):
                with pytest.raises(nearcall.InvalidArgument, match=f"sees {sees}: serve the object at a unix://"):
                    make()
    with faulty(Letters(), url="inproc://dark") as (letters, proxy):
        proxy.truncate("hello", times=3)  # as often as a client dials
        assert proxy.cut() == 1
        with pytest.raises(nearcall.Unavailable):
            nearcall.connect(proxy.url, Letters)
        assert letters.upper("a") == "A"
        assert (proxy.truncated, proxy.cuts, proxy.connections) == (3, 4, 5)


def test_waiting_says_what_came_instead() -> None:
    with faulty(Letters()) as (letters, proxy):
        fault = proxy.drop("item", method="each", to="client")
        letters.upper("a")
        with pytest.raises(TimeoutError, match=r"0 of 1: <drop item of each to the client>; .*1 call, 1 reply"):
            fault.wait(timeout=0.01)


def test_what_a_users_function_raises_is_not_lost() -> None:
    def wrong(frame: Frame) -> bool:
        raise ZeroDivisionError(frame.kind)

    def use() -> None:
        with faulty(Letters()) as (letters, proxy):
            fault = proxy.drop("call", where=wrong)
            with pytest.raises(nearcall.Unavailable):
                letters.upper("a")
            with pytest.raises(ZeroDivisionError):
                fault.wait()

    with pytest.raises(ZeroDivisionError, match="call"):
        use()


@nearcall.service(instance="session")
class Counter:
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def add(self, by: int) -> int:
        self.n += by
        return self.n


def test_services_with_an_object_for_each_client() -> None:
    served = serving(Counter)
    with served as one, served.connect() as other:
        assert (one.add(1), one.add(1), other.add(5)) == (1, 2, 5)
    with serving(functools.partial(Counter, 10)) as counter:
        assert counter.add(1) == 11
    with faulty(functools.partial(Counter, 10)) as (counter, _):
        assert counter.add(1) == 11
    with faulty(Counter) as (counter, _):
        assert counter.add(1) == 1

    async def main() -> None:
        async with serving(Counter) as counter:
            assert await counter.add(1) == 1

    asyncio.run(main())


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import logging
        import nearcall
        import pytest

        @nearcall.service
        class Counter:
            def __init__(self):
                self.n = 0

            def add(self, by: int) -> int:
                self.n += by
                return self.n

        clients = []

        def test_in_memory(nearcall_serving):
            first, second = nearcall_serving(Counter()), nearcall_serving(Counter(), url="tcp://127.0.0.1:0")
            assert (first.add(1), first.add(1), second.add(5)) == (1, 2, 5)
            clients.append(first)

        def test_it_has_ended():
            with pytest.raises(nearcall.Cancelled):
                clients[0].add(1)

        def test_faults(nearcall_faults, caplog):
            counter, proxy = nearcall_faults(Counter(), client={"timeout": 0.2})
            proxy.drop("reply")
            with pytest.raises(nearcall.DeadlineExceeded):
                counter.add(1)
            assert (proxy.dropped, counter.add(1)) == (1, 2)

        def test_that_fails(nearcall_serving):
            assert nearcall_serving(Counter()).add(1) == 2
        """
    )
    result = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, failed=1)
    fixtures = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    fixtures.stdout.fnmatch_lines(["nearcall_serving*", "*Serves objects in memory*", "nearcall_faults*"])
