"""``async def`` interceptors of servers whose handlers are of both sorts."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

import nearcall

from .deadlines import longer_and_longer
from .test_interceptors import ALL, Sums, call_all

LONG = 25.0
user: ContextVar[str] = ContextVar("user", default="nobody")


@nearcall.service
class Item:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name


@nearcall.service
class Both:
    """Handlers of both sorts, which tell what they have met."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.closed = threading.Event()
        self.topic: nearcall.Topic[int] = nearcall.Topic(keep_last=True)

    def who(self) -> tuple[str, str, str]:
        return user.get(), threading.current_thread().name, nearcall.context().method

    async def who_in_loop(self) -> tuple[str, str, str]:
        return user.get(), threading.current_thread().name, nearcall.context().method

    def users(self, n: int) -> Iterator[str]:
        try:
            for _ in range(n):
                yield user.get()
        finally:
            self.closed.set()

    def fail(self, what: str) -> None:
        if what == "exit":
            raise SystemExit(3)
        raise nearcall.NotFound(what)

    def hold(self) -> None:
        self.entered.set()
        assert self.release.wait(LONG)

    def item(self, name: str) -> Item:
        return Item(name)

    def news(self) -> Iterator[int]:
        return self.topic.subscribe()

    def nothing(self) -> int:
        return 1


async def passing(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    await asyncio.sleep(0)
    assert nearcall.context().method == call.method
    user.set("ada")
    return await proceed(call)


def test_every_call_passes_them(new_url: str) -> None:
    seen: list[tuple[str, str]] = []

    async def noting(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        await asyncio.sleep(0)
        assert threading.current_thread().name == "nearcall-loop"
        assert nearcall.context().method == call.method == call.context.method
        seen.append((call.method, call.kind))
        return await proceed(call)

    with (
        nearcall.Server(Sums(), new_url, interceptors=[noting]) as serving,
        nearcall.connect(serving.urls[0], Sums) as sums,
    ):
        call_all(sums)
        assert nearcall.connect(serving.urls[0]).service.add(a=1, b=2) == 3
    assert sorted(seen) == sorted([(f"Sums.{name}", kind) for name, kind in ALL] + [("Sums.add", "unary")])


def test_over_grpc_too() -> None:
    with (
        nearcall.Server(Item("pen"), "grpc://127.0.0.1:0", interceptors=[passing]) as server,
        nearcall.connect(server.urls[0], Item) as item,
    ):
        assert item.name() == "pen"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Both, str]]:
    both = Both()
    with nearcall.Server(both, "inproc://async-interceptors", interceptors=[passing]) as server:
        yield both, server.urls[0]


def test_what_they_set_the_handler_sees_in_its_thread(served: tuple[Both, str]) -> None:
    with nearcall.connect(served[1], Both) as both:
        name, thread, method = both.who()
        assert (name, method) == ("ada", "Both.who")
        assert thread.startswith("nearcall-worker")
        service: Any = both
        assert service.who_in_loop() == ("ada", "nearcall-loop", "Both.who_in_loop")
        assert list(both.users(3)) == ["ada"] * 3
        assert user.get() == "nobody"


def test_a_stream_that_is_left_ends_the_handler(served: tuple[Both, str]) -> None:
    with nearcall.connect(served[1], Both) as both:
        for _ in both.users(1_000_000):
            break
        assert served[0].closed.wait(LONG)


def test_errors_and_topics_pass(served: tuple[Both, str]) -> None:
    with nearcall.connect(served[1], Both) as both:
        with pytest.raises(nearcall.NotFound, match="the lamp"):
            both.fail("the lamp")
        with pytest.raises(nearcall.Unknown, match="SystemExit"):
            both.fail("exit")
        served[0].topic.publish(7)
        assert next(iter(both.news())) == 7


def test_objects_have_them_too() -> None:
    seen: list[str] = []

    async def noting(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        await asyncio.sleep(0)
        seen.append(call.method)
        return await proceed(call)

    with (
        nearcall.Server(Both(), "inproc://async-objects", interceptors=[noting]),
        nearcall.connect("inproc://async-objects", Both) as both,
    ):
        assert both.item("pen").name() == "pen"
    assert seen == ["Both.item", "Item.name"]


def test_both_sorts_of_interceptors_each_see_what_they_expect() -> None:
    order: list[str] = []

    def ordinary(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        result = proceed(call)
        order.append(f"ordinary {result}")
        return result

    async def adding(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        result = await proceed(call) + 1
        order.append(f"adding {result}")
        return result

    chain = [ordinary, adding, ordinary, adding]
    with (
        nearcall.Server(Both(), "inproc://async-mixed", interceptors=chain),
        nearcall.connect("inproc://async-mixed", Both) as both,
    ):
        assert both.nothing() == 3
    assert order == ["adding 2", "ordinary 2", "adding 3", "ordinary 3"]


def test_streams_can_be_replaced_and_left_early(new_url: str) -> None:
    closed = threading.Event()
    both = Both()

    async def doubling(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> AsyncIterator[Any]:
        try:
            async for item in proceed(call):
                yield item
                yield item
        finally:
            closed.set()

    async def per_kind(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        if call.kind == "server_stream":
            return doubling(call, proceed)
        return await proceed(call)

    with (
        nearcall.Server(both, new_url, interceptors=[per_kind, per_kind]) as serving,
        nearcall.connect(serving.urls[0], Both) as service,
    ):
        assert list(service.users(2)) == ["nobody"] * 8
        assert both.closed.wait(LONG)
        assert closed.wait(LONG)
        both.closed.clear()
        closed.clear()
        for _ in service.users(1_000_000):
            break
        assert both.closed.wait(LONG), "the handler ends where it stands"
        assert closed.wait(LONG), "and so does what is around it"


def test_they_may_answer_by_themselves_and_try_again() -> None:
    async def answering(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        if call.method == "Both.fail":
            return None
        return await proceed(call) + await proceed(call)

    with (
        nearcall.Server(Both(), "inproc://async-own", interceptors=[answering]),
        nearcall.connect("inproc://async-own", Both) as both,
    ):
        both.fail("it")
        assert both.nothing() == 2


def test_one_that_forgets_to_return_is_named() -> None:
    async def forgetful(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        await proceed(call)

    with (
        nearcall.Server(Both(), "inproc://async-forgetful", interceptors=[forgetful]),
        nearcall.connect("inproc://async-forgetful", Both) as both,
    ):
        with pytest.raises(nearcall.Internal, match=r"interceptors \(forgetful\), which must return"):
            both.nothing()
        with pytest.raises(nearcall.Internal, match=r"interceptors \(forgetful\), which must return"):
            list(both.users(1))


def test_a_caller_who_leaves_ends_what_an_interceptor_waits_for() -> None:
    waits, ended = threading.Event(), threading.Event()

    async def waiting(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        waits.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with (
        nearcall.Server(Both(), "inproc://async-left", interceptors=[waiting]),
        nearcall.connect("inproc://async-left", Both) as both,
    ):
        started = nearcall.start(both.nothing)
        assert waits.wait(LONG)
        started.cancel()
        assert ended.wait(LONG)
        ended.clear()
        waits.clear()
        for seconds in longer_and_longer():
            with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
                both.nothing()
            if waits.is_set():
                break
        assert ended.wait(LONG)


def test_what_surrounds_a_handler_waits_for_its_end() -> None:
    """A transaction must not end under a handler that still runs in its thread."""
    order: list[str] = []
    told, over = threading.Event(), threading.Event()
    service = Both()

    async def surrounding(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        nearcall.context().on_cancel(told.set)
        try:
            result = await proceed(call)
            order.append("went on")
            return result
        finally:
            order.append("released" if service.release.is_set() else "under the handler")
            over.set()

    with (
        nearcall.Server(service, "inproc://async-around", interceptors=[surrounding]),
        nearcall.connect("inproc://async-around", Both) as both,
    ):
        started = nearcall.start(both.hold)
        assert service.entered.wait(LONG)
        started.cancel()
        assert told.wait(LONG)
        assert both.who()[2] == "Both.who", "the loop and other threads go on"
        order.clear()
        over.clear()
        service.release.set()
        assert over.wait(LONG)
    assert order == ["released"]


def test_the_deadline_counts_for_what_they_call() -> None:
    left: list[float | None] = []

    @nearcall.service
    class Users:
        async def known(self) -> bool:
            left.append(nearcall.context().time_left)
            return True

    async def asking(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        async with nearcall.aio.connect("inproc://async-users", Users) as users:
            assert await users.known()
        return await proceed(call)

    with (
        nearcall.Server(Users(), "inproc://async-users"),
        nearcall.Server(Both(), "inproc://async-asking", interceptors=[asking]),
        nearcall.connect("inproc://async-asking", Both) as both,
    ):
        with nearcall.timeout(60):
            assert both.nothing() == 1
        assert both.nothing() == 1
    assert left[0] is not None
    assert left[0] <= 60
    assert left[1] is None


def test_a_server_that_stops_does_not_wait_for_them_for_ever() -> None:
    waits = threading.Event()

    async def waiting(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        waits.set()
        await asyncio.sleep(3600)

    server = nearcall.Server(Both(), "inproc://async-stop", interceptors=[waiting]).start()
    with nearcall.connect("inproc://async-stop", Both) as both:
        started = nearcall.start(both.nothing)
        assert waits.wait(LONG)
        assert not server.stop(grace=0)
        assert isinstance(started.exception(LONG), nearcall.Unavailable)
    gone = weakref.ref(server)
    del server
    gc.collect()
    assert gone() is None, "nothing keeps a server that was stopped"


def test_a_loop_that_makes_no_tasks_is_an_error() -> None:
    working = threading.Event()
    working.set()

    def loop() -> asyncio.AbstractEventLoop:
        made = asyncio.new_event_loop()

        def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
            if working.is_set():
                raise OSError("no tasks today")
            return asyncio.Task(work, loop=loop, **options)

        made.set_task_factory(factory)
        return made

    with (
        nearcall.Server(Both(), "inproc://async-no-tasks", interceptors=[passing], loop_factory=loop),
        nearcall.connect("inproc://async-no-tasks", Both) as both,
    ):
        with pytest.raises(nearcall.Unknown, match="no tasks today"):
            both.nothing()
        working.clear()
        assert both.nothing() == 1


def test_what_is_left_behind_is_told_that_the_call_is_over() -> None:
    told: list[str] = []
    done = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def leaving(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        async def later() -> None:
            await asyncio.sleep(0.01)
            try:
                await proceed(call)
            except RuntimeError as error:
                told.append(str(error))
            done.set()

        tasks.append(asyncio.get_running_loop().create_task(later()))
        return 5

    with (
        nearcall.Server(Both(), "inproc://async-later", interceptors=[leaving]),
        nearcall.connect("inproc://async-later", Both) as both,
    ):
        assert both.nothing() == 5
        assert done.wait(LONG)
    assert told == ["the call of Both.nothing is over"]


def test_what_failed_is_kept_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a server at rest nobody collects cycles: a call's arguments would stay."""
    monkeypatch.setattr(logging.getLogger("nearcall"), "disabled", True)  # pytest keeps what is logged
    kept: list[weakref.ref[BaseException]] = []

    class Odd(Exception):
        pass

    async def failing(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        error = Odd()
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    with (
        nearcall.Server(Both(), "inproc://async-kept", interceptors=[passing, failing]),
        nearcall.connect("inproc://async-kept", Both) as both,
    ):
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(nearcall.Unknown, match="Odd"):
                both.nothing()
            deadline = time.monotonic() + LONG
            while kept[0]() is not None and time.monotonic() < deadline:
                time.sleep(0.01)  # its thread is about to let go of it
        finally:
            gc.enable()
        assert kept[0]() is None
