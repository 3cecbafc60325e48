"""An event loop's client that connects anew: what was under way on the connection before still has its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import nearcall
from nearcall import aio

from ..e2e.process import ServerProcess
from .conftest import SERVICES
from .services import SMALL, Target

pytestmark = pytest.mark.crash
PATIENCE = 30.0


def test_calls_on_a_lost_connection_end_though_another_call_has_renewed_it(new_url: str) -> None:
    async def run(first: ServerProcess) -> None:
        async with aio.connect(first.url, Target, timeout=PATIENCE, wait_for_ready=True) as target:
            items = target.endless("renewal")
            assert await anext(items) == 0
            waits = [asyncio.create_task(target.nap(PATIENCE)) for _ in range(3)]
            stream = asyncio.create_task(_all(target.doubled(_one_and_then_none())))
            while not await target.has_begun("renewal"):
                pass
            # The loop does not run while the server dies and its successor comes: a call that begins is what finds out.
            first.kill()
            with ServerProcess(first.url, services=SERVICES):
                with suppress(nearcall.Unavailable):
                    assert await _all(target.doubled(iter([1]))) == [2]
                assert await target.echo(SMALL) == SMALL
                outcomes = await asyncio.gather(*waits, stream, _all(items), return_exceptions=True)
                assert [type(outcome) for outcome in outcomes] == [nearcall.Unavailable] * 5, outcomes

    with ServerProcess(new_url, services=SERVICES) as first:
        asyncio.run(run(first))


def test_calls_under_way_at_a_server_that_goes_away_are_answered(new_url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def run(first: nearcall.Server) -> None:
        url = first.urls[0]
        async with aio.connect(url, Target, timeout=PATIENCE, wait_for_ready=True) as target:
            waits = [asyncio.create_task(target.make_later(size, str(gate))) for size in (10, 20_000, 3_000_000)]
            await asyncio.sleep(0)
            assert await target.echo(SMALL) == SMALL
            stopped = asyncio.create_task(asyncio.to_thread(first.stop, grace=PATIENCE))
            later = await _begun_later(target)
            gate.touch()
            assert [len(reply) for reply in await asyncio.gather(*waits)] == [10, 20_000, 3_000_000]
            assert await stopped
            with nearcall.Server(Target(), url):
                assert await later == SMALL

    with nearcall.Server(Target(), new_url) as first:
        asyncio.run(run(first))


async def _begun_later(target: Target) -> asyncio.Task[bytes]:
    """A call that looks for another server: the client has heard that this one goes away."""
    while True:
        call = asyncio.create_task(target.echo(SMALL))
        done, _ = await asyncio.wait([call], timeout=0.1)
        if not done:
            return call
        # Begun before the client heard of it: answered, or refused and then sent again.
        assert await call == SMALL


async def _one_and_then_none() -> AsyncIterator[int]:
    yield 1
    await asyncio.sleep(PATIENCE)


async def _all(items: AsyncIterator[int]) -> list[int]:
    return [item async for item in items]
