"""``nearcall.aio.connect``: the same clients for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Generator, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Literal, cast

import msgspec

from .. import _core
from ..client import DEFAULT_MAX_MESSAGE_SIZE, DEFAULT_RING_SIZE
from ..plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from ..proxy import make_proxy
from .streams import AsyncReplies, call_client_stream

__all__ = ["AsyncClient", "connect"]


class AsyncClient:
    """A connection for one event loop, made by :func:`connect`; use it with ``async with``, or ``await`` it.

    Methods without a reply stream return awaitables, methods with one return asynchronous iterators. Streams to send
    may be asynchronous or ordinary iterables. Any number of tasks may call at once.
    """

    def __init__(self, url: str, cls: type | None, options: dict[str, Any]) -> None:
        self._url = url
        self._cls = cls
        self._options = options
        self._connection: _core.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Any = None

    async def _open(self) -> AsyncClient:
        if self._connection is not None:
            return self
        self._loop = asyncio.get_running_loop()
        connection = await self._loop.run_in_executor(None, partial(_core.Connection, self._url, **self._options))
        try:
            self._service = make_proxy(connection, self._cls, _make_method)
            self._connection = connection
            connection.use_loop(self._loop.call_soon, connection.on_idle)
            self._loop.add_reader(connection.fileno(), self._on_readable)
            self._on_readable()
        except BaseException:
            connection.close()
            raise
        return self

    def _on_readable(self) -> None:
        connection, loop = self._opened(), self._loop
        try:
            connection.on_readable()
        finally:
            if connection.closed and loop is not None:
                # A lost connection stays readable for ever.
                loop.remove_reader(connection.fileno())

    def _opened(self) -> _core.Connection:
        if self._connection is None:
            raise RuntimeError("this client is not connected yet: use 'async with', or await it")
        return self._connection

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._open().__await__()

    async def __aenter__(self) -> Any:
        await self._open()
        return self._service

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; calls under way fail with :class:`~nearcall.Cancelled`. Harmless when repeated."""
        if self._connection is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._connection.fileno())
            self._connection.close()

    @property
    def service(self) -> Any:
        """The service; its methods are those of the class that the client was made with."""
        self._opened()
        return self._service

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._url

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or lost."""
        return self._opened().closed

    @property
    def description(self) -> dict[str, Any]:
        """What the server serves, as it describes itself."""
        return cast("dict[str, Any]", msgspec.json.decode(self._opened().description))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.service, name)

    def __repr__(self) -> str:
        return f"<asynchronous client of {self._service or self._url!r}>"


def connect(
    url: str,
    service: type | None = None,
    *,
    timeout: float | None = None,
    spin: float | Literal["auto"] = "auto",
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    ring_size: int = DEFAULT_RING_SIZE,
    handshake_timeout: float = 5.0,
) -> AsyncClient:
    """Connects to a server from an event loop. Arguments and errors as for :func:`nearcall.connect`::

    async with nearcall.aio.connect("shm://calc", Calculator) as calc:
        await calc.add(1, 2)

    The service inside the block is typed ``Any``: a class whose methods are ordinary functions cannot tell a type
    checker that its remote twins are awaited.
    """
    options = {
        "spin": spin,
        "ring_size": ring_size,
        "max_message_size": max_message_size,
        "handshake_timeout": handshake_timeout,
        "timeout": timeout,
    }
    return AsyncClient(url, service, options)


def _make_method(connection: _core.Connection, plan: MethodPlan, number: int) -> Callable[..., Any]:
    method = _core.Method(plan)
    if plan.kind == ONEWAY:
        send = connection.oneway(method, number)

        async def oneway(*args: Any, **kwargs: Any) -> None:
            send(*args, **kwargs)

        return oneway
    if plan.kind == SERVER_STREAM:
        bind = plan.arguments.bind

        def server_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
            return AsyncReplies(connection.open(method, number, bind(args, kwargs), for_loop=True))

        return server_stream
    if plan.kind == CLIENT_STREAM:

        async def client_stream(*args: Any, **kwargs: Any) -> Any:
            arguments, items = plan.split(args, kwargs)
            stream = connection.open(method, number, arguments, for_loop=True)
            return await call_client_stream(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

        return client_stream
    if plan.kind == BIDI_STREAM:

        def bidi_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
            arguments, items = plan.split(args, kwargs)
            stream = connection.open(method, number, arguments, for_loop=True)
            return AsyncReplies(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

        return bidi_stream
    return connection.async_unary(method, number)
