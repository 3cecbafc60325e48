"""How the task of a coroutine handler begins, on every version of Python and both kinds of loops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from nearcall.loops.starting import starter

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

note: ContextVar[str] = ContextVar("note", default="")


def in_a_callback(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> Any:
    """Runs a function as the server's loop runs its own: outside of all tasks."""
    result: asyncio.Future[Any] = loop.create_future()

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    loop.call_soon(call)
    return loop.run_until_complete(result)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Any:
    loop = LOOPS[request.param]()
    yield loop
    loop.close()


def test_the_first_step_comes_at_once(loop: asyncio.AbstractEventLoop) -> None:
    steps: list[str] = []

    async def handler() -> None:
        steps.append("first")
        await asyncio.sleep(0)
        steps.append("second")

    async def short() -> None:
        steps.append("only")

    def begin() -> asyncio.Task[None]:
        start = starter(loop)
        loop.call_soon(steps.append, "turn")
        assert start(loop, short()).done()
        assert steps == ["only"]
        task = start(loop, handler())
        assert steps == ["only", "first"]
        assert not task.done()
        return task

    loop.run_until_complete(in_a_callback(loop, begin))
    assert steps == ["only", "first", "turn", "second"]


def test_a_task_of_its_own_from_the_first_step(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[asyncio.Task[Any] | None] = []

    async def handler() -> None:
        seen.append(asyncio.current_task())
        assert asyncio.current_task() in asyncio.all_tasks()
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    def begin() -> asyncio.Task[None]:
        task = starter(loop)(loop, handler())
        assert asyncio.current_task() is None
        return task

    task = in_a_callback(loop, begin)
    loop.run_until_complete(task)
    assert seen == [task, task]


def test_a_context_of_its_own(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[str] = []

    async def handler(text: str) -> None:
        seen.append(note.get())
        note.set(text)
        await asyncio.sleep(0)
        seen.append(note.get())

    def begin() -> asyncio.Future[Any]:
        start = starter(loop)
        tasks = [start(loop, handler("one")), start(loop, handler("two"))]
        assert note.get() == ""
        return asyncio.gather(*tasks)

    loop.run_until_complete(in_a_callback(loop, begin))
    assert sorted(seen) == ["", "", "one", "two"]


def test_it_can_be_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    """By others after its first step, and by itself in it."""
    ended: list[str] = []

    async def handler() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("by others")
            raise

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("by itself")
            raise

    async def both() -> None:
        start = starter(loop)
        tasks = await asyncio.gather(*[run(start, handler) for handler in (handler, cancels_itself)])
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [True, True]

    async def run(start: Any, handler: Any) -> asyncio.Task[None]:
        begun: asyncio.Future[asyncio.Task[None]] = loop.create_future()
        loop.call_soon(lambda: begun.set_result(start(loop, handler())))
        return await begun

    loop.run_until_complete(both())
    assert sorted(ended) == ["by itself", "by others"]


def test_what_other_threads_give_the_loop_keeps_its_turn(loop: asyncio.AbstractEventLoop) -> None:
    """It must not be taken for the new task's first step, whenever it comes."""
    turns: list[int] = []
    given = 0

    def give(*event: object) -> None:
        """At every call and return on the way, as another thread might."""
        nonlocal given
        loop.call_soon_threadsafe(turns.append, given)
        given += 1

    async def handler() -> None:
        pass

    def begin() -> None:
        start = starter(loop)
        sys.setprofile(give)
        try:
            task = start(loop, handler())
        finally:
            sys.setprofile(None)
        assert task.done()
        assert turns == []

    in_a_callback(loop, begin)
    loop.run_until_complete(asyncio.sleep(0))
    assert given > 3
    assert turns == list(range(given))


def test_a_task_factory_has_its_say(loop: asyncio.AbstractEventLoop) -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine.__name__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def handler() -> None:
        await asyncio.sleep(0)

    loop.set_task_factory(factory)
    loop.run_until_complete(in_a_callback(loop, lambda: starter(loop)(loop, handler())))
    assert made == ["handler"]
