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
from ..service.outward import dressed
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from .room import RoomQueue
from .streams import AsyncReplies, call_client_stream

__all__ = ["Caller", "within"]


class Caller:
    """Makes the callables of methods. A subclass renews the connection."""

    _room: RoomQueue

    @abstractmethod
    def _waits_for_room(self) -> bool:
        """Whether a one-way call waits when there is no room to send it."""

    @abstractmethod
    def _running(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @abstractmethod
    async def _renew(self, patience: float, left: float | None = None) -> None:
        """Makes sure that there is a connection: waits at most ``patience`` seconds for a server that is not there, and
        no longer than the seconds that are ``left``.
        """

    def _open_at_once(self, calls: _core.Calls, method: _core.Method, arguments: Any) -> _core.Stream | None:
        """A call, unless there is no connection, or it turns out to be lost before anything of the call was sent."""
        if not calls.connected:
            return None
        try:
            return _open_stream(calls, method, arguments)
        except Unavailable:
            if _may_not_connect(calls):
                raise
            return None

    def _replies(
        self,
        calls: _core.Calls,
        method: _core.Method,
        arguments: Any,
        items: AsyncIterable[Any] | Iterable[Any] | None = None,
    ) -> AsyncReplies:
        """The replies of a call that begins now, or, without a connection, when the first reply is awaited."""
        calls.check_loop()
        if (stream := self._open_at_once(calls, method, arguments)) is not None:
            return AsyncReplies(stream, items)
        left = calls.time_left()
        until, context = None if left is None else self._running().time() + left, copy_context()

        def begin(left: float | None) -> _core.Stream:
            with within(inf if left is None else max(left, 0.0)):
                return _open_stream(calls, method, arguments)

        async def connect() -> _core.Stream:
            await self._renew(calls.patience, None if until is None else until - self._running().time())
            # In the context of the call, for the blocks that surrounded it.
            return context.run(begin, None if until is None else until - self._running().time())

        return AsyncReplies(connect, items)

    def _callable(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        if plan.kind == ONEWAY:
            return self._oneway(calls, plan, method)
        if plan.kind == SERVER_STREAM:
            return self._server_stream(calls, plan, method)
        if plan.kind == CLIENT_STREAM:
            return self._client_stream(calls, plan, method)
        if plan.kind == BIDI_STREAM:
            return self._bidi_stream(calls, plan, method)
        return calls.async_unary(method)

    def _oneway(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        send = calls.oneway(method, for_loop=True)

        def ready() -> Coroutine[Any, Any, None] | None:
            return None if calls.connected else self._renew(calls.patience, send.time_allowed())

        async def send_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._waits_for_room():
                await self._room.send(send, args, kwargs, ready)
            else:
                if (connecting := ready()) is not None:
                    await connecting
                send(*args, **kwargs)

        async def oneway(*args: Any, **kwargs: Any) -> None:
            calls.check_loop()
            with within(None if calls.connected else send.time_allowed()):
                try:
                    await send_once(args, kwargs)
                except RpcError:
                    if calls.connected or calls.closed:
                        raise
                    # The connection turned out to be lost: nothing was sent.
                    await send_once(args, kwargs)
            calls.sent()

        return dressed(oneway, plan, for_loop=True)

    def _server_stream(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        bind = plan.arguments.bind

        def server_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
            return self._replies(calls, method, bind(args, kwargs))

        return dressed(server_stream, plan, for_loop=True)

    def _client_stream(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        async def client_stream(*args: Any, **kwargs: Any) -> Any:
            arguments, items = plan.split(args, kwargs)
            calls.check_loop()
            stream = self._open_at_once(calls, method, arguments)
            if stream is None:
                left = calls.time_left()
                with within(left):
                    await self._renew(calls.patience, left)
                    stream = _open_stream(calls, method, arguments)
            return await call_client_stream(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

        return dressed(client_stream, plan, for_loop=True)

    def _bidi_stream(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        def bidi_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
            arguments, items = plan.split(args, kwargs)
            return self._replies(calls, method, arguments, cast("AsyncIterable[Any] | Iterable[Any]", items))

        return dressed(bidi_stream, plan, for_loop=True)


def _may_not_connect(calls: _core.Calls) -> bool:
    """Whether there is a connection still, or will be none any more."""
    return calls.connected or calls.closed


def _open_stream(calls: _core.Calls, method: _core.Method, arguments: Any) -> _core.Stream:
    calls.check_loop()
    return calls.open(method, arguments, for_loop=True)


def within(left: float | None) -> AbstractContextManager[object]:
    """A deadline for a call that had to connect first, so that it keeps the deadline that it began with."""
    return nullcontext() if left is None else timeout(left)
