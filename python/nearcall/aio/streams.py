"""Calls with streams, from an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from ..call.wrong_with import stream_in_thread
from ..loops.turns import pass_turn_on, turn_end

__all__ = ["AsyncReplies", "call_client_stream"]

_NOTHING_YET: Any = object()


class _Bell:
    """Wakes the tasks that wait for news of a call: an item, room to send, the end, or its deadline.

    There may be two such tasks, one that sends and one that reads. The core uses this object as a future.
    """

    def __init__(self, stream: _core.Stream) -> None:
        self._stream = stream
        self._waiting: set[asyncio.Future[None]] = set()

    def done(self) -> bool:
        return False

    def set_result(self, result: None) -> None:
        for future in self._waiting:
            _wake(future)

    async def wait(self, *, sender: bool = False) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        left, waited = self._stream.time_left(), False

        def end() -> None:
            nonlocal waited
            waited = True
            _wake(future)

        timer = None if left is None else loop.call_later(left, end)
        self._waiting.add(future)
        try:
            self._stream.notify(self, sender=sender)
            await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()
        self._stream.check_deadline(waited)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncReplies:
    """The replies of a call; iterate with ``async for``. Closing it, or leaving ``async with``, gives the call up."""

    def __init__(
        self,
        stream: _core.Stream | Callable[[], Awaitable[_core.Stream]],
        items: AsyncIterable[Any] | Iterable[Any] | None = None,
    ) -> None:
        """Without a connection, ``stream`` connects and begins the call, when the first reply is awaited."""
        self._loop = asyncio.get_running_loop()
        self._items = items
        self._stream: _core.Stream | None = None
        self._sender: asyncio.Task[None] | None = None
        self._connect: Callable[[], Awaitable[_core.Stream]] | None = None
        if isinstance(stream, _core.Stream):
            self._begin(stream)
        else:
            self._connect = stream

    def _begin(self, stream: _core.Stream) -> _core.Stream:
        self._stream = stream
        self._bell = _Bell(stream)
        self._turn_end = turn_end()
        if self._items is not None:
            # The task must not refer to this object: when its user drops it, `__del__` gives the call up.
            self._sender = self._loop.create_task(_send_or_cancel(stream, self._bell, self._items))
            self._items = None
        return stream

    def __del__(self) -> None:
        # The garbage collector may run this in any thread.
        if self._stream is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
                self._loop.call_soon_threadsafe(_give_up, self._stream, self._sender)

    def __aiter__(self) -> AsyncReplies:
        return self

    if not TYPE_CHECKING:  # a type checker refuses them by itself

        def __await__(self) -> Any:
            raise TypeError("a stream is not awaited: write 'async for item in ...'")

        def __getitem__(self, _index: object) -> Any:
            raise TypeError("a stream has no index: take its items in order, with 'async for item in ...'")

    async def __anext__(self) -> Any:
        stream = self._stream
        if stream is None:
            connect, self._connect = self._connect, None
            if connect is None:
                raise StopAsyncIteration
            stream = self._begin(await connect())
        try:
            if monotonic() > self._turn_end:
                self._turn_end = await pass_turn_on()
            while (item := stream.try_next(_NOTHING_YET)) is _NOTHING_YET:
                await self._bell.wait()
                self._turn_end = turn_end()
        except StopIteration:
            self._stop_sending()
            raise StopAsyncIteration from None
        except asyncio.CancelledError:
            await self.aclose()
            raise
        except Exception:  # an RpcError, or an exception of the application
            self._stop_sending()
            raise
        return item

    def _stop_sending(self) -> None:
        """Ends the sender; raises whatever the caller's iterator of items raised."""
        sender = self._sender
        if sender is None:
            return
        if sender.done() and not sender.cancelled():
            failure = sender.exception()
            if failure is not None:
                raise failure from None
        sender.cancel()

    async def aclose(self) -> None:
        """Gives the call up; the server stops. Harmless when it has ended."""
        self._connect = None
        if self._stream is not None:
            _give_up(self._stream, self._sender)

    async def __aenter__(self) -> AsyncReplies:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    if not TYPE_CHECKING:  # a type checker refuses them by itself
        __enter__ = __exit__ = __iter__ = stream_in_thread


def _give_up(stream: _core.Stream, sender: asyncio.Task[None] | None) -> None:
    if sender is not None:
        sender.cancel()
    stream.cancel()


async def call_client_stream(stream: _core.Stream, items: AsyncIterable[Any] | Iterable[Any]) -> Any:
    """Sends the items, and waits for the result, which may come before the last item."""
    bell = _Bell(stream)
    sender = asyncio.get_running_loop().create_task(_send_all(stream, bell, items))
    sender.add_done_callback(lambda _: bell.set_result(None))
    try:
        while True:
            if sender.done():
                sender.result()  # raises whatever the caller's iterator raised
            result = stream.try_result(_NOTHING_YET)
            if result is not _NOTHING_YET:
                return result
            await bell.wait()
    except StopIteration:
        raise asyncio.CancelledError from None
    except BaseException:
        stream.cancel()
        raise
    finally:
        if not sender.done():
            sender.cancel()
            await asyncio.wait([sender])


async def _send_or_cancel(stream: _core.Stream, bell: _Bell, items: AsyncIterable[Any] | Iterable[Any]) -> None:
    try:
        await _send_all(stream, bell, items)
    except BaseException:
        stream.cancel()
        raise


async def _send_all(stream: _core.Stream, bell: _Bell, items: AsyncIterable[Any] | Iterable[Any]) -> None:
    end = turn_end()
    async for item in _each(items):
        if monotonic() > end:
            end = await pass_turn_on()
        while (sent := stream.try_send(item)) is None:
            await bell.wait(sender=True)
            end = turn_end()
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
