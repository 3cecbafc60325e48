"""``nearcall.aio.connect``: the same clients for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Literal, cast

import msgspec

from .. import _core
from ..client import DEFAULT_MAX_MESSAGE_SIZE, DEFAULT_RING_SIZE, check_options, check_service, check_trust, error_maker
from ..dropping import OnewayPolicy, check_oneway, drop_reporter
from ..errors import Unavailable
from ..interceptors import ClientInterceptor, check_interceptors, intercept_client
from ..plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from ..proxy import Agreement, make_proxy
from ..tls import TLS
from .room import RoomQueue
from .streams import AsyncReplies, call_client_stream

__all__ = ["AsyncClient", "connect"]

_MOST_ATTEMPTS = 3
_attempts: ContextVar[int] = ContextVar("nearcall.attempts", default=0)


class AsyncClient:
    """A connection for one event loop, made by :func:`connect`; use it with ``async with``, or ``await`` it.

    Methods without a reply stream return awaitables, methods with one return asynchronous iterators. Streams to send
    may be asynchronous or ordinary iterables. Any number of tasks may call at once.
    """

    def __init__(
        self, url: str, cls: type | None, options: dict[str, Any], interceptors: tuple[ClientInterceptor, ...] = ()
    ) -> None:
        self._url = url
        self._options = options
        self._interceptors = interceptors
        self._agreement = Agreement(url, cls, error_maker(cls))
        self._connection: _core.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Any = None
        self._watched: list[_core.Watched] = []
        self._renewing = asyncio.Lock()
        self._room = RoomQueue()

    async def _open(self) -> AsyncClient:
        if self._connection is not None:
            self._connection.check_loop()
            return self
        self._loop = asyncio.get_running_loop()
        make = partial(_core.Connection, self._url, on_change=self._agreement.renew, **self._options)
        connection = await self._loop.run_in_executor(None, make)
        try:
            self._service = make_proxy(connection, self._agreement, self._make_method)
            self._connection = connection
            connection.use_loop(self._loop, self._loop.call_soon, connection.on_idle, self._call_again)
            self._follow()
        except BaseException:
            connection.close()
            raise
        return self

    def _follow(self) -> None:
        """Lets the loop watch the connection of the moment, and no longer those before it on which nothing happens."""
        watched = self._opened().watch()
        if watched is not None:
            for other in [other for other in self._watched if not other.goes_on]:
                # Its calls that are not over yet learn of their end.
                self._on_readable(other)
            self._watched.append(watched)
            self._running().add_reader(watched.fileno(), self._on_readable, watched)
            self._on_readable(watched)

    def _unwatch(self, watched: _core.Watched) -> None:
        self._watched.remove(watched)
        watched.unwatch()
        self._running().remove_reader(watched.fileno())

    def _on_readable(self, watched: _core.Watched) -> None:
        try:
            watched.on_readable()
            self._room.look()
        finally:
            if not watched.goes_on:
                self._unwatch(watched)

    async def _renew(self, hopeful: bool = False) -> None:
        """Makes sure that there is a connection; many calls may ask at once. ``hopeful``: a server is to come soon."""
        async with self._renewing:
            connection = self._opened()
            if not connection.connected:
                await self._running().run_in_executor(None, connection.renew, hopeful)
            self._follow()

    async def _call_again(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], hopeful: bool
    ) -> Any:
        """Calls on a new connection, because the last one was lost before or while the method was called."""
        attempts = _attempts.get() + 1
        if attempts > _MOST_ATTEMPTS:
            raise Unavailable(f"the connection to {self._url} was lost {attempts} times during one call")
        token = _attempts.set(attempts)
        try:
            await self._renew(hopeful)
            return await method(*args, **kwargs)
        finally:
            _attempts.reset(token)

    def _open_stream(self, method: _core.Method, arguments: Any) -> _core.Stream:
        connection = self._opened()
        connection.check_loop()
        try:
            return connection.open(method, arguments, for_loop=True)
        finally:
            # It may have renewed a connection that was lost, even if it failed in the end.
            if connection.connected:
                self._follow()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("this client is not connected yet: use 'async with', or await it")
        return self._loop

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
            if not self._running().is_closed():
                for watched in self._watched:
                    self._running().remove_reader(watched.fileno())
            self._watched.clear()
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
        """Whether :meth:`close` was called."""
        return self._opened().closed

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, as far as is known. A lost one is renewed by the next call."""
        return self._opened().connected

    @property
    def dropped(self) -> dict[str, int]:
        """Numbers of one-way calls that were dropped, by ``"Service.method"``; see :attr:`nearcall.Client.dropped`."""
        return self._opened().dropped

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

    def _make_method(self, connection: _core.Connection, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        function = self._callable(connection, plan, method)
        return intercept_client(self._interceptors, plan, function, for_loop=True)

    def _callable(self, connection: _core.Connection, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        if plan.kind == ONEWAY:
            send = connection.oneway(method)

            def ready() -> Coroutine[Any, Any, None] | None:
                return None if connection.connected else self._renew()

            async def oneway(*args: Any, **kwargs: Any) -> None:
                connection.check_loop()
                try:
                    if self._options["oneway"] == "block":
                        await self._room.send(send, args, kwargs, ready)
                    else:
                        if (connecting := ready()) is not None:
                            await connecting
                        send(*args, **kwargs)
                finally:
                    # As in `_open_stream`.
                    if connection.connected:
                        self._follow()
                connection.sent()

            return _named(oneway, plan)
        if plan.kind == SERVER_STREAM:
            bind = plan.arguments.bind

            def server_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
                return AsyncReplies(self._open_stream(method, bind(args, kwargs)))

            return server_stream
        if plan.kind == CLIENT_STREAM:

            async def client_stream(*args: Any, **kwargs: Any) -> Any:
                arguments, items = plan.split(args, kwargs)
                connection.check_loop()
                if not connection.connected:
                    await self._renew()
                stream = self._open_stream(method, arguments)
                return await call_client_stream(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

            return _named(client_stream, plan)
        if plan.kind == BIDI_STREAM:

            def bidi_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
                arguments, items = plan.split(args, kwargs)
                stream = self._open_stream(method, arguments)
                return AsyncReplies(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

            return bidi_stream
        return connection.async_unary(method)


def _named(function: Callable[..., Any], plan: MethodPlan) -> Callable[..., Any]:
    """Lets the warning about a coroutine that was never awaited name the method."""
    function.__name__, function.__qualname__ = plan.name, plan.full_name
    return function


def connect(  # noqa: PLR0913 - options have names
    url: str,
    service: type | None = None,
    *,
    timeout: float | None = None,
    spin: float | Literal["auto"] = "auto",
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    ring_size: int = DEFAULT_RING_SIZE,
    handshake_timeout: float = 5.0,
    wait_for_ready: bool = False,
    oneway: OnewayPolicy = "block",
    interceptors: Sequence[ClientInterceptor] = (),
    allow_plaintext: bool = False,
    tls: TLS | None = None,
    allow_users: Sequence[str | int] = (),
    allow_groups: Sequence[str | int] = (),
) -> AsyncClient:
    """Connects to a server from an event loop. Arguments and errors as for :func:`nearcall.connect`::

    async with nearcall.aio.connect("shm://calc", Calculator) as calc:
        await calc.add(1, 2)

    The service inside the block is typed ``Any``: a class whose methods are ordinary functions cannot tell a type
    checker that its remote twins are awaited.

    Interceptors may be ``async def``; what ``proceed`` returns is awaited, or for a stream iterated with ``async for``.
    """
    options = check_options(timeout, spin, max_message_size, ring_size, handshake_timeout, wait_for_ready)
    options |= check_trust(url, allow_plaintext, tls, allow_users, allow_groups)
    options |= {"oneway": check_oneway(oneway), "on_drop": drop_reporter(url)}
    return AsyncClient(url, check_service(service), options, check_interceptors(interceptors, None))
