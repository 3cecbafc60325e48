"""A program of trio, for ``test_trio.py``: prints what held."""

from __future__ import annotations

import trio
import trio_asyncio  # type: ignore[import-untyped]

import nearcall
from tests.e2e.gates import Gates

URL = "inproc://trio"


async def a_thread_waits_and_is_let_go() -> None:
    async def wait_for(started: nearcall.StartedCall[str]) -> None:
        try:
            await trio.to_thread.run_sync(started.result, abandon_on_cancel=True)
        finally:
            started.cancel()

    with nearcall.connect(URL, Gates, timeout=30) as gates:
        run = trio.to_thread.run_sync
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, gates.wait, "thread")
            await run(gates.open, "thread")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for, nearcall.start(gates.wait, "given up"))
            await run(gates.await_entered, "given up")
            nursery.cancel_scope.cancel()
        await run(gates.await_given_up, "given up")


async def what_is_for_asyncio_says_what_to_do() -> None:
    said = ""
    try:
        await nearcall.aio.connect(URL, Gates)
    except RuntimeError as error:
        said = str(error)
    assert "this is trio" in said, said
    assert "trio.to_thread.run_sync" in said, said
    assert "trio_asyncio.open_loop" in said, said


async def a_loop_of_asyncio_in_trio() -> None:
    async def calls() -> None:
        async with nearcall.aio.connect(URL, Gates, timeout=30) as gates:
            await gates.open("item")
            assert [item async for item in gates.stream(["item"])] == ["item"]
            assert await gates.count(iter(["a", "b"])) == 2
            await gates.wait("in the loop")

    with nearcall.connect(URL, Gates, timeout=30) as gates:
        async with trio_asyncio.open_loop(), trio.open_nursery() as nursery:
            nursery.start_soon(trio_asyncio.aio_as_trio(calls))
            await trio.to_thread.run_sync(gates.await_entered, "in the loop")
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(gates.await_given_up, "in the loop")


with nearcall.Server(Gates(), URL):
    for check in (a_thread_waits_and_is_let_go, what_is_for_asyncio_says_what_to_do, a_loop_of_asyncio_in_trio):
        trio.run(check)
        print(check.__name__, flush=True)
