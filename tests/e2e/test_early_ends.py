"""A handler is told at once when nobody waits for its call any more: ``nearcall.context().on_cancel``."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .deadlines import longer_and_longer

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""


@nearcall.service
class Patient:
    """Each handler waits until it is told, and says what it was told and where."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.told: queue.Queue[tuple[str, str]] = queue.Queue()

    def _wait(self, method: str) -> None:
        told = threading.Event()
        context = nearcall.context()

        def tell() -> None:
            self.told.put((method, threading.current_thread().name))
            told.set()

        context.on_cancel(tell)
        self.began.release()
        told.wait(PATIENCE)

    def single(self) -> None:
        self._wait("single")

    def items(self) -> Iterator[int]:
        yield 1
        self._wait("items")

    def total(self, xs: Iterator[int]) -> int:
        self._wait("total")
        return 0

    async def in_loop(self) -> None:
        told = asyncio.Event()

        def tell() -> None:
            told.set()
            self.told.put(("in_loop", threading.current_thread().name))

        nearcall.context().on_cancel(tell)
        self.loop = threading.current_thread().name
        self.began.release()
        await told.wait()

    async def items_in_loop(self) -> AsyncIterator[int]:
        yield 1
        await self.in_loop()

    def quick(self) -> str:
        nearcall.context().on_cancel(lambda: self.told.put(("quick", "")))
        return "done"


METHODS = ["single", "items", "total", "in_loop", "items_in_loop"]


@pytest.fixture
def served(new_url: str) -> Iterator[tuple[Patient, str]]:
    patient = Patient()
    with nearcall.Server(patient, new_url) as server:
        yield patient, server.urls[0]


def told_of(patient: Patient) -> str:
    method, where = patient.told.get(timeout=PATIENCE)
    in_loop = method == "in_loop"
    assert where == (patient.loop if in_loop else "nearcall-early-ends"), "it hurts nobody else"
    return method


async def begin(client: Any, method: str) -> asyncio.Task[Any]:
    async def call() -> Any:
        called = getattr(client, method)
        if method.startswith("items"):
            return [item async for item in called()]
        return await (called(iter(())) if method == "total" else called())

    return asyncio.ensure_future(call())


@pytest.mark.parametrize("method", METHODS)
def test_who_gives_a_call_up(served: tuple[Patient, str], method: str) -> None:
    patient, url = served

    async def main() -> None:
        async with nearcall.aio.connect(url, Patient) as client:
            call = await begin(client, method)
            assert await asyncio.to_thread(patient.began.acquire, timeout=PATIENCE)
            call.cancel()
            await asyncio.wait([call])
            assert await asyncio.to_thread(told_of, patient) == method.replace("items_in", "in")

    asyncio.run(main())


@pytest.mark.parametrize("method", METHODS)
def test_a_client_that_is_gone(served: tuple[Patient, str], method: str) -> None:
    patient, url = served

    async def main() -> None:
        async with nearcall.aio.connect(url, Patient) as client:
            call = await begin(client, method)
            assert await asyncio.to_thread(patient.began.acquire, timeout=PATIENCE)
        await asyncio.wait([call])

    asyncio.run(main())
    assert told_of(patient) == method.replace("items_in", "in")


@pytest.mark.parametrize("method", METHODS)
def test_a_deadline(served: tuple[Patient, str], method: str) -> None:
    patient, url = served

    async def main() -> None:
        async with nearcall.aio.connect(url, Patient) as client:
            for seconds in longer_and_longer():
                with nearcall.timeout(seconds):
                    call = await begin(client, method)
                    # Unless the handler, which is told, is quicker.
                    with contextlib.suppress(nearcall.DeadlineExceeded):
                        await call
                if patient.began.acquire(blocking=False):
                    break

    asyncio.run(main())
    assert told_of(patient) == method.replace("items_in", "in")
    assert patient.told.empty(), "once"


def test_a_call_that_ends_by_itself_is_not_told(served: tuple[Patient, str]) -> None:
    patient, url = served
    with nearcall.connect(url, Patient) as client:
        assert client.quick() == "done"
        waits = nearcall.start(client.single)
        assert patient.began.acquire(timeout=PATIENCE)
        waits.cancel()
        assert told_of(patient) == "single", "what came before would have been told before"
    assert patient.told.empty()


@nearcall.service
class Late:
    """What a handler asks for when its call is over, or when nobody waits any more."""

    def __init__(self) -> None:
        self.context: Any = None
        self.told: queue.Queue[str] = queue.Queue()
        self.asked = threading.Event()

    def remember(self) -> None:
        self.context = nearcall.context()

    def ask_late(self) -> None:
        context = nearcall.context()
        self.asked.set()
        while not context.cancelled:
            threading.Event().wait(0.002)
        context.on_cancel(self.fail)
        context.on_cancel(sys.exit)
        context.on_cancel(lambda: self.told.put("first"))
        context.on_cancel(lambda: self.told.put("second"))

    def fail(self) -> None:
        raise RuntimeError("a callback of the test's")


def test_who_asks_late(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    late = Late()
    with nearcall.Server(late, new_url) as server, nearcall.connect(server.urls[0], Late) as client:
        client.remember()
        late.context.on_cancel(lambda: late.told.put("never"))
        asks = nearcall.start(client.ask_late)
        assert late.asked.wait(PATIENCE)
        asks.cancel()
        assert [late.told.get(timeout=PATIENCE) for _ in range(2)] == ["first", "second"]
    assert "raised RuntimeError" in caplog.text
    assert "raised SystemExit" in caplog.text
    assert late.told.empty()


@nearcall.service
class Slow:
    """What it is asked for takes longer than a call."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.asked: set[int] = set()
        self.told: list[int] = []

    def _ask(self, number: int) -> None:
        def tell() -> None:
            self.may_go_on.wait(PATIENCE)
            self.told.append(number)

        nearcall.context().on_cancel(tell)
        self.asked.add(number)

    def give_up(self, number: int) -> None:
        context = nearcall.context()
        self._ask(number)
        while not context.cancelled:
            threading.Event().wait(0.001)

    def add(self, a: int, b: int) -> int:
        return a + b


MOST = 20
"""Calls that the server of slow callbacks may have under way."""


def test_callbacks_that_wait_count_as_calls_under_way(new_url: str) -> None:
    """However many calls a client opens and gives up: else it would make its server keep as many as it likes."""
    slow = Slow()
    with nearcall.Server(slow, new_url, max_pending=MOST) as server:
        url = server.urls[0]
        with nearcall.connect(url, Slow) as greedy, nearcall.connect(url, Slow) as other:
            for number in range(6 * MOST):
                begun = nearcall.start(greedy.give_up, number)
                while number not in slow.asked and not begun.done():  # refused
                    threading.Event().wait(0.001)
                begun.cancel()
            with pytest.raises(nearcall.ResourceExhausted, match=f"{MOST} calls under way"):
                greedy.add(1, 2)
            assert len(slow.asked) <= MOST
            assert [other.add(number, 2) for number in range(20)] == list(range(2, 22))
            slow.may_go_on.set()
            while len(slow.told) < len(slow.asked):
                threading.Event().wait(0.001)
            while True:
                with contextlib.suppress(nearcall.ResourceExhausted):
                    assert greedy.add(1, 2) == 3
                    break
    assert sorted(slow.told) == sorted(slow.asked), "each once"


def test_a_server_that_stops_waits_for_callbacks(new_url: str) -> None:
    slow = Slow()
    with nearcall.Server(slow, new_url) as server, nearcall.connect(server.urls[0], Slow) as client:
        begun = nearcall.start(client.give_up, 1)
        while not slow.asked:
            threading.Event().wait(0.001)
        begun.cancel()
        threading.Timer(0.2, slow.may_go_on.set).start()
    assert slow.told == [1]
