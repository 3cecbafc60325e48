"""Event loops: the server's own, several at once, uvloop's, and what else runs on them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop

import nearcall

from .loop_checks import check_tasks
from .loop_services import Looping
from .process import ServerProcess
from .services import Basics, Lines, Streams, Waiting

SERVICES = "tests.e2e.loop_services:looping"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_on(kind: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    loop = LOOPS[kind]()
    try:
        return loop.run_until_complete(asyncio.wait_for(main(), 40))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        # Each of its threads stops when it next comes by the kernel.
        end = time.monotonic() + 20
        while not all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            for task in Path(f"/proc/{pid}/task").iterdir()
        ):
            assert time.monotonic() < end, "it does not stop"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# The server's loop.


@pytest.mark.parametrize("way", ["block", "block_later"])
def test_a_blocked_loop_holds_up_no_thread(new_url: str, key: str, kind: str, way: str) -> None:
    """Even if the loop is the one that receives, as it is after some calls of coroutine handlers in a row."""
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:  # noqa: SIM117
        with (
            nearcall.connect(server.urls[0], Looping) as one,
            nearcall.connect(server.urls[0], Looping) as two,
            ThreadPoolExecutor(1) as pool,
        ):
            for _ in range(50):
                assert one.echo(b"x") == b"x"  # type: ignore[comparison-overlap]
            blocking = pool.submit(getattr(one, way), key)
            assert two.blocked(key)
            assert [two.threaded(number) for number in range(50)] == list(range(50))
            two.release(key)
            blocking.result(20)
            assert one.echo(b"y") == b"y"  # type: ignore[comparison-overlap]


def test_both_kinds_of_handlers_in_turn(new_url: str, kind: str) -> None:
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:
        with nearcall.connect(server.urls[0]) as client:
            service = client.Looping
            for run in (1, 2, 7, 8, 9, 10, 30):
                for number in range(run):
                    assert service.turns(number, number % 3) == number
                for number in range(run % 5):
                    assert service.threaded(number) == number

        async def main() -> None:
            async with nearcall.aio.connect(server.urls[0]) as one, nearcall.aio.connect(server.urls[0]) as two:
                calls = []
                for number in range(300):
                    calls.append(one.turns(number, number % 4))
                    calls.append(two.threaded(number))
                assert await asyncio.gather(*calls) == [number // 2 for number in range(600)]

        run_on(kind, main)


def test_the_loop_that_a_server_runs_on(new_url: str, kind: str) -> None:
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:  # noqa: SIM117
        with nearcall.connect(server.urls[0]) as client:
            assert client.Looping.loop().split(".")[0] == kind
            for size in (0, 1000, 3_000_000):
                assert len(client.Looping.echo(bytes(size))) == size
            blocks = [bytes(100_000)] * 40
            assert client.Looping.length(blocks) == 4_000_000
            with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(0.05):
                client.Looping.wait_for(30.0)


def test_handlers_have_contexts_of_their_own(new_url: str, kind: str) -> None:
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:
        with nearcall.connect(server.urls[0]) as client:
            assert [client.Looping.note(f"note {number}") for number in range(30)] == [""] * 30
            for number in range(30):
                # One that waits, and so ends in a turn of its own: what comes next is not begun from there.
                assert client.Looping.noted(f"note {number}") == f"note {number}"
                assert client.Looping.note("") == ""

        async def main() -> None:
            async with nearcall.aio.connect(server.urls[0]) as looping:
                texts = [f"note {number}" for number in range(30)]
                assert await asyncio.gather(*map(looping.noted, texts)) == texts
                assert await looping.note("last") == ""

        run_on(kind, main)


def test_blocks_around_the_start_of_a_server_are_not_around_its_handlers(new_url: str, kind: str) -> None:
    server = nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind])
    with ExitStack() as stack:
        with nearcall.timeout(0.001):
            stack.enter_context(server)
        client = stack.enter_context(nearcall.connect(server.urls[0]))
        assert [client.Looping.call_another(server.urls[0]) for _ in range(3)] == [1] * 3


def test_handlers_have_tasks_of_their_own(new_url: str, key: str, kind: str) -> None:
    """Also in their first step, which comes before the loop's next turn."""
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:  # noqa: SIM117
        with nearcall.connect(server.urls[0]) as client:
            looping = client.Looping
            check_tasks(looping, key)
            assert looping.moved_on(0.01)
            assert looping.moved_on(0.0)
            assert looping.group(5) == 10
            assert looping.own_task()


def test_handlers_that_come_together(new_url: str, key: str, kind: str) -> None:
    """Those that end without waiting may have one task, and none of them can tell."""
    ways = ["cancelled", "named", "watched", "weak", "", "", ""]

    async def main() -> None:
        async with nearcall.aio.connect(server.urls[0], Looping) as looping:
            for number in range(20):
                made = [looping.change_task(f"{key}{number}{how}", how) for how in ways]
                seen = [looping.look_at_task(f"{key}{number}{how}") for how in ways]
                assert await asyncio.gather(*made) == ways
                assert all(found[:2] == (False, False) for found in await asyncio.gather(*seen))
                assert (await looping.look_at_task(f"{key}{number}watched"))[2] == 1
            notes = [looping.note(f"note {number}") for number in range(100)]
            noted = [looping.noted(f"noted {number}") for number in range(100)]
            assert await asyncio.gather(*notes) == [""] * 100
            assert await asyncio.gather(*noted) == [f"noted {number}" for number in range(100)]

    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:
        run_on(kind, main)


def test_a_task_that_a_handler_leaves_knows_its_call(new_url: str, key: str, kind: str) -> None:
    async def leave(looping: Any, number: int) -> None:
        with nearcall.metadata({"key": f"{key}{number}"}):
            await looping.leave_a_task(f"{key}{number}")

    async def main() -> None:
        async with nearcall.aio.connect(server.urls[0], Looping) as looping:
            await asyncio.gather(*(leave(looping, number) for number in range(30)))
            for number in range(30):
                found = await looping.who_called(f"{key}{number}")
                assert tuple(found) == ("Looping.leave_a_task", f"{key}{number}")

    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:
        run_on(kind, main)


def test_what_asks_of_a_handlers_task(new_url: str, key: str, kind: str) -> None:
    """Debuggers, and anyio."""
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:  # noqa: SIM117
        with nearcall.connect(server.urls[0], Looping) as looping:
            shown, state, frames = looping.shown(key)  # type: ignore[misc]
            assert "nearcall handlers" in shown
            assert (state, frames) == ("CORO_SUSPENDED", 1)


def test_a_loop_that_makes_no_tasks(new_url: str, kind: str) -> None:
    """Its factory may be of another version than the loop."""

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if coroutine.__name__ == "handlers":
            raise TypeError("an unexpected keyword argument")
        return asyncio.Task(coroutine, loop=loop)

    def make() -> asyncio.AbstractEventLoop:
        loop = LOOPS[kind]()
        loop.set_task_factory(factory)
        return loop

    with nearcall.Server(Looping(), new_url, loop_factory=make) as server:  # noqa: SIM117
        with nearcall.connect(server.urls[0], Looping, timeout=20) as looping:
            for number in range(3):
                with pytest.raises(nearcall.Unknown, match="unexpected keyword"):
                    looping.turns(number, 0)  # type: ignore[unused-coroutine]
                assert looping.threaded(number) == number


@pytest.mark.slow
def test_an_idle_loop_uses_no_cpu(outside_url: str) -> None:
    with ServerProcess(outside_url, services=SERVICES) as server, nearcall.connect(server.url) as client:
        for _ in range(50):
            client.Looping.echo(b"x")

        def ticks() -> int:
            with open(f"/proc/{server.pid}/stat") as stat:
                return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))

        # Ten ticks are 100 ms: a loop or a watcher that does not sleep uses more in any second.
        for _ in range(10):
            before = ticks()
            time.sleep(0.5)
            if ticks() - before < 10:
                break
        else:
            raise AssertionError("the server does not come to rest")
        assert client.Looping.echo(b"x") == b"x"


# The client's loop.


def test_clients_on_a_loop(url: str, kind: str) -> None:
    async def count(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    async def main() -> None:
        async with nearcall.aio.connect(url, Basics) as basics, nearcall.aio.connect(url, Streams) as streams:
            assert await basics.add(1) == 6
            assert await asyncio.gather(*(basics.add_in_loop(number, 1) for number in range(300))) == [
                number + 1 for number in range(300)
            ]
            assert len(await basics.echo(bytes(3_000_000))) == 3_000_000
            assert [number async for number in streams.count(2000)] == list(range(2000))
            assert await streams.total_in_loop(count(2000)) == sum(range(2000))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(streams.take_until_cancelled("nobody", endless()), 0.05)
            assert await basics.add(1) == 6

    async def endless() -> AsyncIterator[int]:
        while True:
            yield 1
            await asyncio.sleep(0.001)

    for _ in range(3):
        run_on(kind, main)


def test_loops_in_threads_share_a_server_in_the_same_process(new_url: str) -> None:
    with nearcall.Server(Looping(), new_url, loop_factory=uvloop.new_event_loop) as server:

        def work(seed: int) -> None:
            async def main() -> None:
                async with nearcall.aio.connect(server.urls[0]) as looping:
                    for round_ in range(10):
                        numbers = [seed * 1000 + round_ * 20 + number for number in range(20)]
                        assert await asyncio.gather(*(looping.turns(number, 1) for number in numbers)) == numbers
                        assert await looping.threaded(seed) == seed

            run_on(list(LOOPS)[seed % 2], main)

        with ThreadPoolExecutor(6) as pool:
            for done in [pool.submit(work, seed) for seed in range(6)]:
                done.result(40)


def test_the_wrong_loop(url: str, kind: str) -> None:
    async def connect() -> Any:
        client = await nearcall.aio.connect(url)
        assert await client.Basics.add(1, 2) == 3
        return client

    async def use(client: Any) -> None:
        calls = [
            lambda: client.Basics.add(1, 2),
            lambda: client.Lines.log("nobody", 1),
            lambda: client.Streams.total([1, 2]),
            client.__aenter__,
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                await call()
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            client.Streams.count(3)

    loop = LOOPS[kind]()
    try:
        client = loop.run_until_complete(connect())
        asyncio.run(use(client))
        # It is none the worse for it.
        assert loop.run_until_complete(asyncio.wait_for(client.Basics.add(1, 2), 20)) == 3
        loop.close()
        # Nobody has closed the client before its loop.
        asyncio.run(use(client))
        client.close()
        assert client.closed
    finally:
        loop.close()


def test_no_loop_at_all(url: str) -> None:
    async def connect() -> Any:
        return await nearcall.aio.connect(url, Basics)

    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(connect())
    call = client.add(1, 2)
    with pytest.raises(RuntimeError, match=r"coroutines of asyncio"):
        call.send(None)
    client.close()
    loop.close()


@pytest.mark.parametrize("intercepted", [False, True])
def test_calls_that_are_never_awaited(url: str, key: str, intercepted: bool) -> None:
    def around(call: nearcall.ClientCall, proceed: Any) -> Any:
        return proceed(call)

    async def main() -> None:
        interceptors = [around] if intercepted else []
        async with nearcall.aio.connect(url, interceptors=interceptors) as client:
            for name, call in {
                "Basics.add": lambda: client.Basics.add(1, 2),
                "Lines.log": lambda: client.Lines.log(key, 1),
                "Streams.total": lambda: client.Streams.total([1]),
            }.items():
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    call()
                    gc.collect()
                assert [warning.category for warning in caught] == [RuntimeWarning], name
                if not intercepted:
                    assert f"coroutine '{name}' was never awaited" in str(caught[0].message)
            # Closing one says that it is not wanted, and a call that was made needs no more.
            client.Basics.add(1, 2).close()
            assert await client.Basics.add_in_loop(1, 2) == 3
            await client.Lines.log(key, 2)
            assert await client.Lines.wait_for(key, 1) == [2]

    asyncio.run(main())


# What must not keep a loop waiting.


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(2, 20_000_000), (200, 60_000)])
def test_a_server_that_does_not_read_does_not_keep_the_loop_waiting(
    outside_url: str, kind: str, n: int, size: int
) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(server.url) as looping:
            await looping.echo(b"")
            blob = bytes(size)
            with stopped(server.pid):
                calls = [asyncio.ensure_future(looping.echo(blob)) for _ in range(n)]
                given_up = asyncio.ensure_future(looping.echo(blob))
                stream = asyncio.ensure_future(looping.length([bytes(100_000)] * 20))
                for _ in range(50):
                    await asyncio.sleep(0.001)
                given_up.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await given_up
                assert not any(call.done() for call in calls)
            assert [len(reply) for reply in await asyncio.gather(*calls)] == [size] * n
            assert await stream == 2_000_000
            assert await looping.echo(b"x") == b"x"

    with ServerProcess(outside_url, services=SERVICES) as server:
        run_on(kind, main)


def test_closing_a_client_whose_server_does_not_read(outside_url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(server.url) as looping:
            await looping.echo(b"")
            with stopped(server.pid):
                calls = [asyncio.ensure_future(looping.echo(bytes(5_000_000))) for _ in range(4)]
                await asyncio.sleep(0.05)
                for call in calls:
                    call.cancel()
                assert all(isinstance(one, asyncio.CancelledError) for one in await settled(calls))

    async def settled(calls: list[asyncio.Future[Any]]) -> list[Any]:
        return await asyncio.gather(*calls, return_exceptions=True)

    with ServerProcess(outside_url, services=SERVICES) as server:
        run_on("asyncio", main)


def others_are_served(url: str) -> None:
    """By a thread of their own; the one that waits for it may be a loop's."""

    def call() -> None:
        with nearcall.connect(url, Looping) as client:
            for _ in range(100):
                assert client.echo(b"x") == b"x"  # type: ignore[comparison-overlap]

    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result(30)


def test_long_replies_that_nobody_reads_do_not_keep_the_loop_waiting(new_url: str, kind: str) -> None:
    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:
        url = server.urls[0]

        async def main() -> None:
            lazy = await nearcall.aio.connect(url)
            calls = [asyncio.ensure_future(lazy.echo(bytes(4_000_000))) for _ in range(5)]
            # It sends as far as there is room, and then does not look any more: this loop does something else.
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            others_are_served(url)  # blocks this loop, so that `lazy` does not read
            assert [len(reply) for reply in await asyncio.gather(*calls)] == [4_000_000] * 5
            lazy.close()

        run_on("asyncio", main)


def test_credit_for_a_client_that_does_not_read(new_url: str, key: str, kind: str) -> None:
    """The handler's side of a stream grants credit and sends items; the client takes none of either for a while."""
    n = 60

    async def blocks() -> AsyncIterator[bytes]:
        for number in range(n):
            yield bytes([number]) * 100_000

    with nearcall.Server(Looping(), new_url, loop_factory=LOOPS[kind]) as server:
        url = server.urls[0]

        async def main() -> None:
            async with nearcall.aio.connect(url) as looping:
                replies = looping.take(key, blocks())
                assert (await replies.__anext__())[0] == 0
                others_are_served(url)
                assert [block[0] async for block in replies] == list(range(1, n))
                assert await looping.took(key) == n

        run_on("asyncio", main)


# anyio.


def test_anyio_gives_calls_up(url: str, key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Waiting) as waiting, nearcall.aio.connect(url, Streams) as streams:
            for how in ("open", "shielded"):
                held = f"{key} {how}"

                async def when_entered(held: str, scope: anyio.CancelScope) -> None:
                    assert await waiting.entered(held)
                    scope.cancel()

                async with anyio.create_task_group() as group:
                    with anyio.CancelScope(shield=how == "shielded") as scope:
                        group.start_soon(when_entered, held, scope)
                        await waiting.hold_in_loop(held)
                    assert scope.cancelled_caught
                assert await waiting.how_it_ended(held) == "cancelled"
            with anyio.move_on_after(0.05) as scope:
                await waiting.hold_in_loop(key)
            assert scope.cancelled_caught
            with pytest.raises(TimeoutError), anyio.fail_after(0.05):
                await waiting.hold_in_loop(key)
            async with anyio.create_task_group() as group:
                group.start_soon(waiting.hold_in_loop, key + "c")
                assert await waiting.entered(key + "c")
                group.cancel_scope.cancel()
            assert await waiting.how_it_ended(key + "c") == "cancelled"
            with anyio.move_on_after(0.05) as scope:
                async for _ in streams.endless_in_loop(key):
                    pass
            assert scope.cancelled_caught

    anyio.run(main)
    anyio.run(main_of_lines(url, key + "e"), backend_options={"use_uvloop": True})


def main_of_lines(url: str, key: str) -> Callable[[], Coroutine[Any, Any, None]]:
    async def main() -> None:
        async with nearcall.aio.connect(url, Lines) as lines:
            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(lines.log_in_loop, key, number)
            assert sorted(await lines.wait_for(key, 10)) == list(range(10))

    return main
