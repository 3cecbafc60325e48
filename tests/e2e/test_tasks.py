"""Tasks that await calls: the loop runs them as it runs all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

import nearcall

from .services import Basics, Waiting
from .turns import Turns

_number: ContextVar[int] = ContextVar("number")


def _in_python() -> asyncio.AbstractEventLoop:
    """A loop whose tasks are asyncio's own in Python, not those in C."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        return asyncio.tasks._PyTask(coroutine, loop=loop, **options)  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    loop.set_task_factory(make)
    return loop


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "in Python": _in_python,
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = LOOPS[request.param]()
    problems: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    try:
        yield loop
        loop.run_until_complete(loop.shutdown_asyncgens())
        assert problems == []
    finally:
        loop.close()


def run(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None]) -> None:
    loop.run_until_complete(asyncio.wait_for(main, 40))


@pytest.mark.slow
def test_quick_calls_leave_the_loop_its_turns(url: str, loop: asyncio.AbstractEventLoop) -> None:
    """A reply that comes at once does not let the loop run: but it must not be so for ever."""

    async def main() -> None:
        async with Turns() as turns, nearcall.aio.connect(url, Basics, spin=0.1) as basics:
            for number in range(3000):
                assert await basics.add(number, 1) == number + 1
        assert turns.count >= 20

    run(loop, main())


def test_tasks_are_themselves_after_each_call(url: str, loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Basics) as basics:

            async def work(number: int) -> None:
                _number.set(number)
                me = asyncio.current_task()
                for done in range(30):
                    assert await (basics.add_in_loop if done % 7 == 3 else basics.add)(number, done) == number + done
                    assert (_number.get(), asyncio.current_task()) == (number, me)
                    if done % 10 == 9:
                        await asyncio.sleep(0)

            await asyncio.gather(*map(work, range(40)))

    run(loop, main())


@nearcall.service
class Shapes:
    """What `return` treats specially, if it is not taken care."""

    def pair(self, first: int) -> tuple[int, int]:
        return first, 2

    def nothing(self) -> None: ...


def test_results_are_what_they_are(new_url: str, loop: asyncio.AbstractEventLoop) -> None:
    async def main(url: str) -> None:
        async with nearcall.aio.connect(url, Shapes) as shapes:
            assert await shapes.pair(1) == (1, 2)
            assert await asyncio.gather(*map(shapes.pair, range(10))) == [(number, 2) for number in range(10)]
            assert await asyncio.gather(*(shapes.nothing() for _ in range(10))) == [None] * 10
            driven = shapes.pair(3)

            async def drive() -> None:
                while True:
                    driven.send(None)
                    await asyncio.sleep(0.001)

            with pytest.raises(RuntimeError) as stopped:
                await drive()
            assert isinstance(stopped.value.__cause__, StopIteration)
            assert stopped.value.__cause__.value == (3, 2)

    with nearcall.Server(Shapes(), new_url) as server:
        run(loop, main(server.urls[0]))


def test_one_task_cancels_others_whose_replies_have_come(url: str, loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Basics) as basics:
            for _ in range(20):
                tasks: list[asyncio.Task[int]] = []

                async def work(number: int, tasks: list[asyncio.Task[int]] = tasks) -> int:
                    result = await basics.add(number, 1)
                    for other in tasks:
                        if other is not asyncio.current_task():
                            other.cancel("the first one is enough")
                    return int(result)

                tasks += [asyncio.ensure_future(work(number)) for number in range(12)]  # type: ignore[arg-type]
                results = await asyncio.gather(*tasks, return_exceptions=True)
                done = [result for result in results if not isinstance(result, asyncio.CancelledError)]
                assert len(done) == 1, "a task that was cancelled before it ran on has ended so"
                assert await basics.add(1, 1) == 2

    run(loop, main())


def test_a_cancelled_call_is_given_up_with_its_message(url: str, key: str, loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            task = asyncio.ensure_future(waiting.hold_in_loop(key))
            assert await waiting.entered(key)
            assert task.cancel("enough")
            assert task.cancel("more than enough")
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await waiting.how_it_ended(key) == "cancelled"

    run(loop, main())


def test_a_task_that_ends_the_loop(url: str, loop: asyncio.AbstractEventLoop) -> None:
    """The others, whose replies have come with its own, go on when the loop runs again."""

    client = nearcall.aio.connect(url, Basics)
    tasks: list[asyncio.Task[int]] = []

    async def begin() -> None:
        basics = await client

        async def work(number: int) -> int:
            result = int(await basics.add(number, 1))
            if number == 3:
                raise SystemExit(3)
            return result

        tasks.extend(asyncio.ensure_future(work(number)) for number in range(12))  # type: ignore[arg-type]
        await asyncio.wait(tasks)

    with pytest.raises(SystemExit):
        loop.run_until_complete(begin())
    left = [task for number, task in enumerate(tasks) if number != 3]
    results = loop.run_until_complete(asyncio.wait_for(gathered(left), 20))
    assert results == [number + 1 for number in range(12) if number != 3]
    assert isinstance(tasks[3].exception(), SystemExit)

    async def close() -> None:
        client.close()

    loop.run_until_complete(close())


async def gathered(tasks: list[asyncio.Task[int]]) -> list[int]:
    return await asyncio.gather(*tasks)
