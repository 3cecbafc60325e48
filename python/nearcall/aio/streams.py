"""Calls with streams, from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import Any

from .. import _core
from ..errors import RpcError

__all__ = ["AsyncReplies", "call_client_stream", "open_bidi_stream"]

_NOTHING_YET: Any = object()


async def _changed(stream: _core.Stream) -> None:
    """Waits until something has come for the call: an item, room to send, the end, or its deadline."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    left = stream.time_left()
    timer = None if left is None else loop.call_later(left, _wake, future)
    stream.notify(future)
    try:
        await future
    finally:
        if timer is not None:
            timer.cancel()
    stream.check_deadline()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncReplies:
    """The replies of a call; iterate with ``async for``. Closing it, or leaving ``async with``, gives the call up."""

    def __init__(self, stream: _core.Stream, sender: asyncio.Task[None] | None = None) -> None:
        self._stream = stream
        self._sender = sender

    def __aiter__(self) -> AsyncReplies:
        return self

    async def __anext__(self) -> Any:
        stream = self._stream
        try:
            while (item := stream.try_next(_NOTHING_YET)) is _NOTHING_YET:
                await _changed(stream)
        except StopIteration:
            self._stop_sender()
            raise StopAsyncIteration from None
        except asyncio.CancelledError:
            await self.aclose()
            raise
        except RpcError:
            sender = self._sender
            if sender is not None and sender.done() and not sender.cancelled():
                failure = sender.exception()
                if failure is not None:
                    raise failure from None
            self._stop_sender()
            raise
        return item

    def _stop_sender(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    async def aclose(self) -> None:
        """Gives the call up; the server stops. Harmless when it has ended."""
        self._stop_sender()
        self._stream.cancel()

    async def __aenter__(self) -> AsyncReplies:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


async def call_client_stream(stream: _core.Stream, items: AsyncIterable[Any] | Iterable[Any]) -> Any:
    """Sends every item, and waits for the result."""
    try:
        await _send_all(stream, items)
        try:
            while (result := stream.try_result(_NOTHING_YET)) is _NOTHING_YET:
                await _changed(stream)
        except StopIteration:
            raise asyncio.CancelledError from None
        return result
    except BaseException:
        stream.cancel()
        raise


def open_bidi_stream(stream: _core.Stream, items: AsyncIterable[Any] | Iterable[Any]) -> AsyncReplies:
    """Sends the items in a task of their own while the replies are read."""
    return AsyncReplies(stream, asyncio.get_running_loop().create_task(_send_or_cancel(stream, items)))


async def _send_or_cancel(stream: _core.Stream, items: AsyncIterable[Any] | Iterable[Any]) -> None:
    try:
        await _send_all(stream, items)
    except BaseException:
        stream.cancel()
        raise


async def _send_all(stream: _core.Stream, items: AsyncIterable[Any] | Iterable[Any]) -> None:
    async for item in _each(items):
        while (sent := stream.try_send(item)) is None:
            await _changed(stream)
        if not sent:
            return
    stream.end()


async def _each(items: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
