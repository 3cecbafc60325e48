"""Programs whose tasks begin at once, which Python can do since 3.12."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

import nearcall

from .loop_checks import check_tasks
from .loop_services import Looping
from .services import Basics, Lines, Streams, Waiting

if sys.version_info < (3, 12):
    pytest.skip("tasks can begin at once since Python 3.12", allow_module_level=True)

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def begin_at_once(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """As asyncio.eager_task_factory, which before Python 3.13.3 does not take all that uvloop gives it."""
    return asyncio.Task(coroutine, loop=loop, **{**options, "eager_start": True})


@pytest.fixture(params=LOOPS)
def eager(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes loops whose tasks all begin at once."""

    def make() -> asyncio.AbstractEventLoop:
        loop = LOOPS[request.param]()
        loop.set_task_factory(begin_at_once)
        return loop

    return make


def run_on(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None]) -> None:
    try:
        loop.run_until_complete(asyncio.wait_for(main, 40))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def numbers(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


def test_clients(url: str, key: str, eager: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with (
            nearcall.aio.connect(url, Basics) as basics,
            nearcall.aio.connect(url, Streams) as streams,
            nearcall.aio.connect(url, Waiting) as waiting,
            nearcall.aio.connect(url, Lines) as lines,
        ):
            many = await asyncio.gather(*[basics.add_in_loop(number, 1) for number in range(300)])
            assert many == [number + 1 for number in range(300)]
            assert [number async for number in streams.count(2000)] == list(range(2000))
            # Both the end of what is sent and the reply may come in the sender's first step.
            for n in (0, 1, 2000):
                assert await streams.total(numbers(n)) == await streams.total(iter(range(n))) == sum(range(n))
                assert [value async for value in streams.scaled(numbers(n), 2.0)] == [2.0 * value for value in range(n)]
            for number in range(100):
                await lines.log(key, number)
            assert await lines.wait_for(key, 100) == list(range(100))

            held = asyncio.create_task(waiting.hold_in_loop(key))
            assert await waiting.entered(key)
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
            assert await waiting.how_it_ended(key) == "cancelled"
            with pytest.raises(ZeroDivisionError):
                await streams.total(failing())
            assert await basics.add(1) == 6

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ZeroDivisionError

    run_on(eager(), main())


def test_handlers(new_url: str, key: str, eager: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with nearcall.Server(Looping(), new_url, loop_factory=eager) as server, nearcall.connect(server.urls[0]) as client:
        looping = client.Looping
        assert [looping.note(f"note {number}") for number in range(30)] == [""] * 30
        check_tasks(looping, key)
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(0.05):
            looping.wait_for(30.0)
        assert looping.length([bytes(100_000)] * 40) == 4_000_000
        assert looping.echo(b"x") == b"x"
