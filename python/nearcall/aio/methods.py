"""The callables of each kind of method, for event loops."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from math import inf
from typing import Any, cast

from .. import _core
from ..call.deadline import timeout
from ..errors import RpcError, Unavailable
from ..references.target import Calls
from ..service.outward import dressed
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from .room import RoomQueue
from .streams import AsyncReplies, call_client_stream

__all__ = ["Caller", "within"]


class Caller:
    """Makes the callables of methods. A subclass provides the connection, and renews it."""

    _room: RoomQueue

    @abstractmethod
    def _opened(self) -> Calls:
        """The connection, or the object, that calls go to."""

    @abstractmethod
    def _waits_for_room(self) -> bool:
        """Whether a one-way call waits when there is no room to send it."""

    @abstractmethod
    def _running(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @abstractmethod
    async def _renew(self, hopeful: bool = False, left: float | None = None) -> None:
        """Makes sure that there is a connection."""

    def _open_stream(self, method: _core.Method, arguments: Any) -> _core.Stream:
        connection = self._opened()
        connection.check_loop()
        return connection.open(method, arguments, for_loop=True)

    def _open_at_once(self, method: _core.Method, arguments: Any) -> _core.Stream | None:
        """The same, unless there is no connection, or it turns out to be lost before anything of the call was sent."""
        connection = self._opened()
        if not connection.connected:
            return None
        try:
            return self._open_stream(method, arguments)
        except Unavailable:
            if self._opened().connected or connection.closed:
                raise
            return None

    def _replies(
        self,
        method: _core.Method,
        arguments: Any,
        items: AsyncIterable[Any] | Iterable[Any] | None = None,
    ) -> AsyncReplies:
        """The replies of a call that begins now, or, without a connection, when the first reply is awaited."""
        connection = self._opened()
        connection.check_loop()
        if (stream := self._open_at_once(method, arguments)) is not None:
            return AsyncReplies(stream, items)
        left = connection.time_left()
        until, context = None if left is None else self._running().time() + left, copy_context()

        def begin(left: float | None) -> _core.Stream:
            with within(inf if left is None else max(left, 0.0)):
                return self._open_stream(method, arguments)

        async def connect() -> _core.Stream:
            await self._renew(left=None if until is None else until - self._running().time())
            # In the context of the call, for the blocks that surrounded it.
            return context.run(begin, None if until is None else until - self._running().time())

        return AsyncReplies(connect, items)

    def _callable(self, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        if plan.kind == ONEWAY:
            return self._oneway(plan, method)
        if plan.kind == SERVER_STREAM:
            return self._server_stream(plan, method)
        if plan.kind == CLIENT_STREAM:
            return self._client_stream(plan, method)
        if plan.kind == BIDI_STREAM:
            return self._bidi_stream(plan, method)
        return self._opened().async_unary(method)

    def _oneway(self, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        connection = self._opened()
        send = connection.oneway(method, for_loop=True)

        def ready() -> Coroutine[Any, Any, None] | None:
            return None if connection.connected else self._renew(left=send.time_allowed())

        async def send_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._waits_for_room():
                await self._room.send(send, args, kwargs, ready)
            else:
                if (connecting := ready()) is not None:
                    await connecting
                send(*args, **kwargs)

        async def oneway(*args: Any, **kwargs: Any) -> None:
            connection.check_loop()
            with within(None if connection.connected else send.time_allowed()):
                try:
                    await send_once(args, kwargs)
                except RpcError:
                    if connection.connected or connection.closed:
                        raise
                    # The connection turned out to be lost: nothing was sent.
                    await send_once(args, kwargs)
            connection.sent()

        return dressed(oneway, plan, for_loop=True)

    def _server_stream(self, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        bind = plan.arguments.bind

        def server_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
            return self._replies(method, bind(args, kwargs))

        return dressed(server_stream, plan, for_loop=True)

    def _client_stream(self, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        connection = self._opened()

        async def client_stream(*args: Any, **kwargs: Any) -> Any:
            arguments, items = plan.split(args, kwargs)
            connection.check_loop()
            stream = self._open_at_once(method, arguments)
            if stream is None:
                left = connection.time_left()
                with within(left):
                    await self._renew(left=left)
                    stream = self._open_stream(method, arguments)
            return await call_client_stream(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

        return dressed(client_stream, plan, for_loop=True)

    def _bidi_stream(self, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        def bidi_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
            arguments, items = plan.split(args, kwargs)
            return self._replies(method, arguments, cast("AsyncIterable[Any] | Iterable[Any]", items))

        return dressed(bidi_stream, plan, for_loop=True)


def within(left: float | None) -> AbstractContextManager[object]:
    """A deadline for a call that had to connect first, so that it keeps the deadline that it began with."""
    return nullcontext() if left is None else timeout(left)
