"""Lets methods of objects that belong to one event loop be called from another one, such as that of the process's
callbacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ..errors import Unavailable
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, SERVER_STREAM, MethodPlan

__all__ = ["HomeLoop"]

_END: Any = object()


class HomeLoop:
    """An event loop in which asynchronous methods run: of objects that a client has passed, or of references."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        """Set at the latest before an object is passed."""

    def around(self, plan: MethodPlan, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a method: when another loop awaits it, it runs in this loop, with the context of the call.

        Once the loop is closed, calls raise :class:`~nearcall.Unavailable`.
        """
        if not plan.handler_is_async:
            return method
        takes = plan.kind in (CLIENT_STREAM, BIDI_STREAM)

        def begin(*args: Any, **kwargs: Any) -> Any:
            if takes:
                there = asyncio.get_running_loop()
                args = tuple(_brought(value, there) for value in args)
                kwargs = {name: _brought(value, there) for name, value in kwargs.items()}
            return method(*args, **kwargs)

        async def once(*args: Any, **kwargs: Any) -> Any:
            return await self._run(begin(*args, **kwargs))

        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            items = begin(*args, **kwargs)
            try:
                while (item := await self._run(_next(items))) is not _END:
                    yield item
            finally:
                await self._run(_closed(items))

        return stream if plan.kind in (SERVER_STREAM, BIDI_STREAM) else once

    async def _run(self, work: Awaitable[Any]) -> Any:
        if self.loop is None or self.loop.is_closed():
            raise Unavailable("the event loop that the object belongs to is closed")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(work), self.loop))


def _brought(value: Any, there: asyncio.AbstractEventLoop) -> Any:
    return _items_of(value, there) if hasattr(value, "__anext__") else value


async def _items_of(items: Any, there: asyncio.AbstractEventLoop) -> AsyncIterator[Any]:
    """The items of an iterator that belongs to another loop."""
    while True:
        item = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_next(items), there))
        if item is _END:
            return
        yield item


async def _next(items: Any) -> Any:
    try:
        return await items.__anext__()
    except StopAsyncIteration:
        return _END


async def _closed(items: Any) -> None:
    if hasattr(items, "aclose"):
        await items.aclose()


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work
