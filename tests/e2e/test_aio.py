"""Calls from event loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

import nearcall
from nearcall.client import agreements
from nearcall.service.reading import read_of_server

from .process import ServerProcess
from .services import Basics, Errors, Lines, Point, Streams, Waiting

SHORT = 0.05


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a test's coroutine, and is strict about what it leaves behind."""
    problems: list[dict[str, Any]] = []

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with asyncio.timeout(30) if hasattr(asyncio, "timeout") else nothing():
            result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[operator]
        if left:
            # What was cancelled may need a step to end.
            await asyncio.wait(left, timeout=5)
        assert [task for task in left if not task.done()] == []
        return result

    result = asyncio.run(watched())
    gc.collect(1)
    assert problems == []
    return result


class nothing:
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *error: object) -> None: ...


async def numbers(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number
        if number % 500 == 0:
            await asyncio.sleep(0)


async def floats(n: int) -> AsyncIterator[float]:
    async for number in numbers(n):
        yield float(number)


def test_calls(url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Basics) as basics:
            assert await basics.add(1, 2) == 3
            assert await basics.add(b=1, a=3) == 4
            assert await basics.add(1) == 6
            assert await basics.add_in_loop(1) == 6
            assert await basics.call_forms(1, 2, d=3) == [1, 2, 3, 3, 5]
            assert await basics.echo_point(Point(1, "a", b"b")) == Point(1, "a", b"b")
            for size in (0, 100, 100_000, 3_000_000):
                assert await basics.echo(bytes(size)) == bytes(size)
                assert await basics.echo_view(memoryview(bytes(size))) == bytes(size)
            assert np.array_equal(await basics.scale(np.ones(3), 2.0), np.full(3, 2.0))
            assert await basics.nothing() is None

    run(main)


def test_ways_to_connect(url: str) -> None:
    async def main() -> None:
        client = await nearcall.aio.connect(url, Basics)
        assert await client.add(1) == 6
        assert await client.service.add(1) == 6
        assert client.url == url
        assert not client.closed
        assert client.description["services"][0]["name"] == "Basics"
        client.close()
        assert client.closed  # whether it is awaited or not
        await client.close()
        with pytest.raises(nearcall.Cancelled):
            await client.add(1)
        channel = await nearcall.aio.Channel(url)
        closing = channel.close()
        assert channel.closed
        assert await closing is None
        async with AsyncExitStack() as stack:
            stack.push_async_callback((await nearcall.aio.connect(url)).close)
        async with nearcall.aio.connect(url) as anything:
            assert await anything.Basics.add(1) == 6
            point = {"x": 1, "label": "a", "data": b""}
            assert await anything.echo_point(point) == point
        with pytest.raises(RuntimeError, match="not connected yet"):
            nearcall.aio.connect(url).service  # noqa: B018

    run(main)


@nearcall.service
class Wordy:
    def one(self) -> int:
        return 1

    one.__doc__ = "word " * 20_000


def test_a_long_description_is_not_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Once, whoever has it first; and what is wrong with it is told to each client."""
    readers: list[threading.Thread] = []

    def read(text: str) -> Any:
        readers.append(threading.current_thread())
        return read_of_server(text)

    def refuse(text: str) -> Any:
        readers.append(threading.current_thread())
        raise nearcall.FailedPrecondition("so many words")

    async def main(url: str) -> None:
        monkeypatch.setattr(agreements, "read_of_server", read)
        async with nearcall.aio.connect(url, Wordy) as wordy, nearcall.aio.connect(url) as any_of_it:
            assert await wordy.one() == await any_of_it.one() == 1
        monkeypatch.setattr(agreements, "read_of_server", refuse)
        async with nearcall.aio.Channel(url) as channel:
            for _ in range(2):
                with pytest.raises(nearcall.FailedPrecondition, match="so many words"):
                    channel.client(Wordy)

    with nearcall.Server(Wordy(), f"inproc://{key}") as server:
        run(lambda: main(server.urls[0]))
    assert len(readers) == 3
    assert threading.current_thread() not in readers


def test_many_calls_at_once(url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Basics) as basics:
            assert await asyncio.gather(*(basics.add(number, 1) for number in range(1000))) == list(range(1, 1001))
            sizes = [(number * 7919) % 150_000 for number in range(60)]
            blobs = [bytes([number]) * size for number, size in enumerate(sizes)]
            assert await asyncio.gather(*map(basics.echo, blobs)) == blobs
            tasks = [asyncio.create_task(basics.add_in_loop(number, 1)) for number in range(300)]
            assert [await task for task in tasks] == list(range(1, 301))

    run(main)


def test_a_call_waits_while_others_finish(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            held = [asyncio.create_task(getattr(waiting, name)(key)) for name in ("hold", "hold_in_loop")]
            assert await waiting.entered(key)
            for _ in range(100):
                await waiting.entered(key)
            assert not any(task.done() for task in held)
            await waiting.release(key)
            assert [await task for task in held] == [key, key]

    run(main)


@pytest.mark.parametrize("n", [0, 1, 1000, 20_000])
def test_streams(url: str, n: int) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            for method in (streams.count, streams.count_in_loop):
                assert [number async for number in method(n)] == list(range(n))
            for method in (streams.total, streams.total_in_loop):
                assert await method(range(n)) == sum(range(n))
                assert await method(numbers(n), start=2) == sum(range(n)) + 2
            for method in (streams.scaled, streams.scaled_in_loop):
                assert [number async for number in method(floats(n), 2.0)] == [number * 2.0 for number in range(n)]
                assert [number async for number in method(map(float, range(n)), 2.0)] == [x * 2.0 for x in range(n)]

    run(main)


def test_both_ways_with_more_than_fits(url: str) -> None:
    """The sender waits for room and the reader for items, both at once."""

    async def blocks() -> AsyncIterator[bytes]:
        for number in range(100):
            yield bytes([number]) * 50_000

    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            got = [(block[0], len(block)) async for block in streams.all_then_all(blocks())]
            assert got == [(number, 50_000) for number in range(100)]
            assert await streams.lengths(blocks()) == [50_000] * 100
            assert [len(block) async for block in streams.blocks(100, 50_000)] == [50_000] * 100

    run(main)


def test_items_go_back_and_forth(url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            for method in (streams.scaled, streams.scaled_in_loop):
                queue: asyncio.Queue[float | None] = asyncio.Queue()

                async def items(queue: asyncio.Queue[float | None] = queue) -> AsyncIterator[float]:
                    while (item := await queue.get()) is not None:
                        yield item

                value = 1.0
                replies = method(items(), 2.0)
                for _ in range(30):
                    queue.put_nowait(value)
                    value = await anext(replies)
                assert value == 2.0**30
                queue.put_nowait(None)
                assert [item async for item in replies] == []

    run(main)


@pytest.mark.parametrize("method", ["endless", "endless_in_loop", "silent_in_loop"])
@pytest.mark.parametrize("way", ["close", "with", "drop", "cancel"])
def test_giving_up_a_stream(url: str, key: str, method: str, way: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            items = getattr(streams, method)(key)
            await anext(items)
            if way == "close":
                await items.aclose()
                await items.aclose()
                assert [item async for item in items] == []
            elif way == "with":
                async with items:
                    pass
            elif way == "cancel":

                async def read(items: Any) -> None:
                    async for _ in items:
                        pass

                task = asyncio.create_task(read(items))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                del task
            del items
            gc.collect()
            assert await streams.how_it_closed(key) == "closed"

    run(main)


@pytest.mark.parametrize("method", ["endless_echo", "endless_echo_in_loop"])
@pytest.mark.parametrize("way", ["close", "drop"])
def test_giving_up_both_ways(url: str, key: str, method: str, way: str) -> None:
    async def endless() -> AsyncIterator[int]:
        number = 0
        while True:
            yield number
            number += 1
            await asyncio.sleep(0)

    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            replies = getattr(streams, method)(key, endless())
            assert await anext(replies) == 0
            if way == "close":
                await replies.aclose()
            del replies
            gc.collect()
            assert await streams.how_it_closed(key) == "closed"

    run(main)


def test_closing_wakes_a_reader(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            items = streams.silent_in_loop(key)
            await anext(items)

            async def rest() -> list[int]:
                return [item async for item in items]

            task = asyncio.create_task(rest())
            await asyncio.sleep(0)
            await items.aclose()
            assert await task == []

    run(main)


def test_items_that_fail(url: str, key: str) -> None:
    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ZeroDivisionError("mine")

    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            with pytest.raises(ZeroDivisionError, match="mine"):
                await streams.take_until_cancelled(key, failing())
            assert await streams.how_it_closed(key) == "cancelled"
            with pytest.raises(ZeroDivisionError, match="mine"):
                async for _ in streams.endless_echo(key + "b", failing()):
                    pass
            assert await streams.how_it_closed(key + "b") == "closed"
            with pytest.raises(nearcall.InvalidArgument, match="an item of 'numbers' must be int, got str"):
                await streams.total([1, "x"])
            with pytest.raises(nearcall.InvalidArgument, match="an item of 'numbers' must be float, got str"):
                async for _ in streams.scaled([1.0, "x"], 1.0):
                    pass

    run(main)


def test_a_result_before_the_last_item(url: str) -> None:
    async def stalled() -> AsyncIterator[int]:
        for number in range(3):
            yield number
        await asyncio.Event().wait()

    async def main() -> None:
        async with nearcall.aio.connect(url, Streams) as streams:
            assert await streams.first(stalled(), 3) == [0, 1, 2]
            with nearcall.timeout(SHORT), pytest.raises(nearcall.DeadlineExceeded):
                await streams.total(stalled())

    run(main)


def test_errors(url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Errors) as errors, nearcall.aio.connect(url, Basics) as basics:
            with pytest.raises(nearcall.NotFound) as caught:
                await errors.status(5, "no user", {"id": 1})
            assert (caught.value.message, caught.value.details) == ("no user", {"id": 1})
            with pytest.raises(nearcall.Unknown, match="ValueError: a bad value"):
                await errors.raised("value")
            items = errors.raised_in_loop_stream("value")
            assert await anext(items) == 1
            with pytest.raises(nearcall.Unknown, match="a bad value"):
                await anext(items)
            results = await asyncio.gather(basics.add(1), errors.raised("value"), basics.add(2), return_exceptions=True)
            assert [type(result) for result in results] == [int, nearcall.Unknown, int]
            with pytest.raises(nearcall.InvalidArgument, match="argument 'a' must be int, got str"):
                await basics.add("x")
            with pytest.raises(AttributeError, match="did you mean 'add'"):
                basics.ad  # noqa: B018

    run(main)


def test_one_way(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Lines) as lines:
            for number in range(1000):
                assert await lines.log(key, number) is None
            assert await lines.wait_for(key, 1000) == list(range(1000))

    run(main)


@pytest.mark.parametrize("method", ["hold", "hold_in_loop"])
def test_timeouts(url: str, key: str, method: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            begun = time.monotonic()
            with nearcall.timeout(SHORT), pytest.raises(nearcall.DeadlineExceeded, match=f"Waiting.{method}"):
                await getattr(waiting, method)(key)
            assert time.monotonic() - begun >= SHORT
            with pytest.raises((TimeoutError, asyncio.TimeoutError)):
                await asyncio.wait_for(getattr(waiting, method)(key), SHORT)
            async with nearcall.aio.connect(url, Waiting, timeout=SHORT) as hasty:
                with pytest.raises(nearcall.DeadlineExceeded):
                    await getattr(hasty, method)(key)
            await waiting.release(key)
            assert await getattr(waiting, method)(key) == key

    run(main)


def test_tasks_have_their_own_deadlines(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:

            async def hurry() -> None:
                with nearcall.timeout(SHORT), pytest.raises(nearcall.DeadlineExceeded):
                    await waiting.hold_in_loop(key)

            async def wait() -> None:
                assert await waiting.hold_in_loop(key + "b") == key + "b"

            waiter = asyncio.create_task(wait())
            await asyncio.gather(hurry(), hurry())
            assert not waiter.done()
            await waiting.release(key + "b")
            await waiter

    run(main)


async def idle() -> None:
    """Gives the loop turns enough to begin what was asked of it, and to go to sleep."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_call_that_ends_at_once_leaves_others_awake(url: str, key: str) -> None:
    """Its coroutine never gave the loop a turn, and the loop is to hear of the others all the same."""

    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            for number in range(20):
                held = asyncio.create_task(waiting.hold_in_loop(f"{key}.{number}"))
                await idle()
                await waiting.release(f"{key}.{number}")
                assert await held

    run(main)


def test_an_item_that_is_here_leaves_others_awake(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url) as client:
            for number in range(20):
                held = asyncio.create_task(client.hold_in_loop(f"{key}.{number}"))
                await idle()
                async for _ in client.blocks(2, 1_000_000):
                    await client.release(f"{key}.{number}")
                assert await held

    run(main)


def test_cancelling_a_call_cancels_its_coroutine(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting:
            task = asyncio.create_task(waiting.hold_in_loop(key))
            assert await waiting.entered(key)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await waiting.how_it_ended(key) == "cancelled"

    run(main)


def test_calls_given_up_at_once_leave_nothing(new_url: str, key: str) -> None:
    """The cancellation may come before the handler's first step."""

    async def main() -> None:
        async with nearcall.aio.connect(server.urls[0], Waiting) as waiting:
            for number in range(300):
                task = asyncio.create_task(waiting.hold_in_loop(f"{key}.{number}"))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await waiting.release(key)
            assert await waiting.hold_in_loop(key) == key

    with nearcall.Server(Waiting(), new_url) as server:
        run(main)
        # Nothing is under way any more, so that there is nothing to wait for.
        assert server.stop(grace=20)


def test_closing_ends_what_is_under_way(url: str, key: str) -> None:
    async def main() -> None:
        client = await nearcall.aio.connect(url)
        calls = [asyncio.create_task(client.hold(key)), asyncio.create_task(client.hold_in_loop(key))]

        async def read() -> None:
            async for _ in client.silent_in_loop(key):
                pass

        calls.append(asyncio.create_task(read()))
        async with nearcall.aio.connect(url, Waiting) as waiting:
            await waiting.entered(key)
            client.close()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(result) for result in results] == [nearcall.Cancelled] * 3
            await waiting.release(key)

    run(main)


def test_a_loop_in_each_of_several_threads(url: str) -> None:
    failures: list[BaseException] = []

    def thread(seed: int) -> None:
        async def main() -> None:
            async with nearcall.aio.connect(url, Basics) as basics:
                for round_ in range(10):
                    calls = [basics.add(seed * 1000 + number, round_) for number in range(20)]
                    assert await asyncio.gather(*calls) == [seed * 1000 + number + round_ for number in range(20)]

        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=thread, args=(seed,)) for seed in range(5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []


def test_one_loop_after_another(url: str) -> None:
    for _ in range(3):

        async def main() -> None:
            async with nearcall.aio.connect(url, Basics) as basics:
                assert await basics.add(1) == 6

        run(main)


def test_a_client_that_nobody_closes(url: str) -> None:
    async def main() -> None:
        client = await nearcall.aio.connect(url, Basics)
        assert await client.add(1) == 6

    run(main)


def test_coroutine_handlers_call_others(new_url: str, url: str) -> None:
    """A server's handlers in one loop use clients of that loop."""

    @nearcall.service
    class Front:
        def __init__(self) -> None:
            self._back: Any = None

        async def add(self, a: int, b: int) -> int:
            if self._back is None:
                self._back = await nearcall.aio.connect(url, Basics)
            return int(await self._back.add(a, b))

        async def close(self) -> None:
            self._back.close()

    with nearcall.Server(Front(), new_url) as server, nearcall.connect(server.urls[0], Front) as front:
        for number in range(50):
            assert front.add(number, 1) == number + 1  # type: ignore[comparison-overlap]
        front.close()


def test_the_server_dies(outside_url: str) -> None:
    async def main() -> None:
        with ServerProcess(outside_url) as server:
            client = await nearcall.aio.connect(server.url)
            calls = [asyncio.create_task(client.hold("x")), asyncio.create_task(client.hold_in_loop("x"))]

            async def read() -> None:
                async for _ in client.silent_in_loop("x"):
                    pass

            calls.append(asyncio.create_task(read()))
            assert await client.entered("x")
            server.kill()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(result) for result in results] == [nearcall.Unavailable] * 3
            with pytest.raises(nearcall.Unavailable):
                await client.add(1)
            client.close()

    run(main)
    # What it left behind does not keep the next one from serving, which cleans up.
    with nearcall.Server(Basics(), outside_url):
        pass


def test_nobody_listens(new_url: str, transport: str) -> None:
    async def main() -> None:
        with pytest.raises(nearcall.Unavailable):
            await nearcall.aio.connect("tcp://127.0.0.1:1" if transport == "tcp" else new_url, Basics)

    run(main)


@pytest.fixture(autouse=True)
def no_coroutine_forgotten(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    assert [str(warning.message) for warning in recwarn] == []
