"""A task that has a whole stream before it lets the other tasks of its event loop run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nearcall

from .turns import Turns

MANY = 20_000
"""Items that are here at once: less than a window, and more than a moment's work."""


async def turns_during(items: AsyncIterator[int]) -> int:
    async with Turns() as turns:
        async for _ in items:
            pass
        return turns.count


@nearcall.service
class Crowd:
    def __init__(self) -> None:
        self.all_sent = asyncio.Event()
        self.all_here = asyncio.Event()

    async def items(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number
        self.all_sent.set()

    async def until_sent(self) -> None:
        await self.all_sent.wait()

    async def turns(self, items: AsyncIterator[int]) -> int:
        await self.all_here.wait()
        return await turns_during(items)

    async def begin(self) -> None:
        self.all_here.set()


def test_a_client_with_many_items_lets_others_run(new_url: str) -> None:
    async def main() -> None:
        with nearcall.Server(Crowd(), new_url) as server:
            async with nearcall.aio.connect(server.urls[0], Crowd) as crowd:
                items = crowd.items(MANY)
                assert await anext(items) == 0
                await crowd.until_sent()
                assert await turns_during(items) > 0

    asyncio.run(main())


def test_a_handler_with_many_items_lets_others_run(new_url: str) -> None:
    async def main() -> None:
        with nearcall.Server(Crowd(), new_url) as server:
            async with nearcall.aio.connect(server.urls[0], Crowd) as crowd:

                async def items() -> AsyncIterator[int]:
                    for number in range(MANY):
                        yield number
                    # What is sent before a call has come before it.
                    await crowd.begin()

                assert await crowd.turns(items()) > 0

    asyncio.run(main())
