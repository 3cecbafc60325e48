"""``nearcall.aio.connect``: the same clients for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, copy_context
from copy import copy
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from .. import _core
from ..call import timeout
from ..checked import check_url, check_whole
from ..client import (
    DEFAULT_MAX_MESSAGE_SIZE,
    DEFAULT_MAX_VALUES,
    DEFAULT_RING_SIZE,
    check_options,
    check_service,
    check_trust,
    error_maker,
)
from ..dropping import OnewayPolicy, check_oneway, drop_reporter
from ..errors import DeadlineExceeded, RpcError, Unavailable
from ..interceptors import ClientInterceptor, check_interceptors, intercept_client
from ..plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from ..proxy import Agreement, make_proxy
from ..tls import TLS
from .room import RoomQueue
from .streams import AsyncReplies, call_client_stream

__all__ = ["AsyncClient", "connect"]

_MOST_ATTEMPTS = 3
_SLICE = 0.1
"""Seconds for which a thread goes on connecting before a task has to want that still."""
_COMEBACK = 1.0
"""Seconds for which a call that may be repeated waits for a server to come back."""
_attempts: ContextVar[int] = ContextVar("nearcall.attempts", default=0)


class AsyncClient:
    """A connection for one event loop, made by :func:`connect`; use it with ``async with``, or ``await`` it.

    Methods without a reply stream return awaitables, methods with one return asynchronous iterators. Streams to send
    may be asynchronous or ordinary iterables. Any number of tasks may call at once.
    """

    def __init__(
        self,
        url: str,
        cls: type | None,
        options: dict[str, Any],
        interceptors: tuple[ClientInterceptor, ...] = (),
        max_values: int = DEFAULT_MAX_VALUES,
    ) -> None:
        self._url = url
        self._options = options
        self._interceptors = interceptors
        self._agreement = Agreement(url, cls, error_maker(cls), max_values)
        self._connection: _core.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Any = None
        self._watched: list[_core.Watched] = []
        self._connecting: dict[bool, asyncio.Future[bool]] = {}
        self._room = RoomQueue()

    async def _open(self) -> AsyncClient:
        if self._connection is not None:
            self._connection.check_loop()
            return self
        self._loop = asyncio.get_running_loop()
        connection = _core.Connection(self._url, on_change=self._agreement.renew, **self._options)
        try:
            # Without patience one attempt is all there is, and ends by itself.
            soon = self._loop.time() + self._options["handshake_timeout"] if self._options["wait_for_ready"] else None
            await self._connect(connection, soon, until=soon)
            self._service = make_proxy(connection, self._agreement, self._make_method)
            self._connection = connection
            connection.use_loop(self._loop, self._loop.call_soon, connection.on_idle, self._call_again)
            self._follow()
        except BaseException:
            self._connecting.clear()
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

    async def _connect(self, connection: _core.Connection, patient_until: float | None, until: float | None) -> None:
        """Makes sure that there is a connection; any number of tasks may wait for one. Both times are the loop's.

        Threads do it, a slice at a time: so every task gives up when its own time is over.
        """
        loop = self._running()
        while not connection.connected:
            now = loop.time()
            if until is not None and now >= until:
                # The last attempt may have failed, which says more.
                if not connection.try_connect(False, 0.0):
                    raise DeadlineExceeded(
                        f"there was no connection to {self._url} before the deadline: the server does not answer"
                    )
                return
            patient = patient_until is not None and now < patient_until
            step = self._connecting.get(patient)
            if step is None or step.done():
                step = loop.run_in_executor(None, connection.try_connect, patient, _SLICE)
                # Nobody may wait for it any more when it fails.
                step.add_done_callback(lambda step: step.cancelled() or step.exception())
                self._connecting[patient] = step
            await asyncio.wait([step], timeout=None if until is None else until - now)
            if step.done() and (failure := step.exception()) is not None:
                # Of several tasks each gets one of its own, with its own traceback.
                raise copy(failure)

    async def _renew(self, hopeful: bool = False, left: float | None = None) -> None:
        """Makes sure that there is a connection, within the seconds that are ``left``. ``hopeful``: a server is to come
        soon.
        """
        now = self._running().time()
        until = None if left is None else now + left
        patient_until = now + _COMEBACK if hopeful else None
        if self._options["wait_for_ready"]:
            patient_until = inf if until is None else until
        await self._connect(self._opened(), patient_until, until)
        self._follow()

    async def _call_again(
        self,
        method: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        hopeful: bool,
        left: float | None,
    ) -> Any:
        """Calls on a new connection, because the last one was lost before or while the method was called."""
        attempts = _attempts.get() + 1
        if attempts > _MOST_ATTEMPTS:
            raise Unavailable(f"the connection to {self._url} was lost {attempts} times during one call")
        token = _attempts.set(attempts)
        try:
            with _within(left):
                await self._renew(hopeful, left)
                return await method(*args, **kwargs)
        finally:
            _attempts.reset(token)

    def _open_stream(self, method: _core.Method, arguments: Any) -> _core.Stream:
        connection = self._opened()
        connection.check_loop()
        return connection.open(method, arguments, for_loop=True)

    def _replies(
        self,
        method: _core.Method,
        arguments: Any,
        items: AsyncIterable[Any] | Iterable[Any] | None = None,
    ) -> AsyncReplies:
        """The replies of a call that begins now, or, without a connection, when the first of them is awaited."""
        connection = self._opened()
        connection.check_loop()
        if connection.connected:
            return AsyncReplies(self._open_stream(method, arguments), items)
        left = connection.time_left()
        until, context = None if left is None else self._running().time() + left, copy_context()

        def begin(left: float | None) -> _core.Stream:
            with _within(inf if left is None else max(left, 0.0)):
                return self._open_stream(method, arguments)

        async def connect() -> _core.Stream:
            await self._renew(left=None if until is None else until - self._running().time())
            # In the blocks that surrounded the call.
            return context.run(begin, None if until is None else until - self._running().time())

        return AsyncReplies(connect, items)

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

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __enter__(self) -> Any:
            raise TypeError(
                "this client is for an event loop: write 'async with nearcall.aio.connect(...)', "
                "or 'with nearcall.connect(...)' in a thread"
            )

        __exit__ = __enter__

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
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        return getattr(self.service, name)

    def __repr__(self) -> str:
        return f"<asynchronous client of {self._service or self._url!r}>"

    def _make_method(self, connection: _core.Connection, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        function = self._callable(connection, plan, method)
        return intercept_client(self._interceptors, plan, function, for_loop=True)

    def _callable(self, connection: _core.Connection, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        if plan.kind == ONEWAY:
            send = connection.oneway(method, for_loop=True)

            def ready() -> Coroutine[Any, Any, None] | None:
                return None if connection.connected else self._renew(left=send.time_left())

            async def send_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                if self._options["oneway"] == "block":
                    await self._room.send(send, args, kwargs, ready)
                else:
                    if (connecting := ready()) is not None:
                        await connecting
                    send(*args, **kwargs)

            async def oneway(*args: Any, **kwargs: Any) -> None:
                connection.check_loop()
                with _within(None if connection.connected else send.time_left()):
                    try:
                        await send_once(args, kwargs)
                    except RpcError:
                        if connection.connected or connection.closed:
                            raise
                        # The connection was found lost on the way: nothing was sent.
                        await send_once(args, kwargs)
                connection.sent()

            return _named(oneway, plan)
        if plan.kind == SERVER_STREAM:
            bind = plan.arguments.bind

            def server_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
                return self._replies(method, bind(args, kwargs))

            return server_stream
        if plan.kind == CLIENT_STREAM:

            async def client_stream(*args: Any, **kwargs: Any) -> Any:
                arguments, items = plan.split(args, kwargs)
                connection.check_loop()
                if connection.connected:
                    stream = self._open_stream(method, arguments)
                else:
                    left = connection.time_left()
                    with _within(left):
                        await self._renew(left=left)
                        stream = self._open_stream(method, arguments)
                return await call_client_stream(stream, cast("AsyncIterable[Any] | Iterable[Any]", items))

            return _named(client_stream, plan)
        if plan.kind == BIDI_STREAM:

            def bidi_stream(*args: Any, **kwargs: Any) -> AsyncReplies:
                arguments, items = plan.split(args, kwargs)
                return self._replies(method, arguments, cast("AsyncIterable[Any] | Iterable[Any]", items))

            return bidi_stream
        return connection.async_unary(method)


def _within(left: float | None) -> AbstractContextManager[object]:
    """A call that had to connect first ends with the time it began with."""
    return nullcontext() if left is None else timeout(left)


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
    max_values: int = DEFAULT_MAX_VALUES,
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
    check_url(url)
    options = check_options(timeout, spin, max_message_size, ring_size, handshake_timeout, wait_for_ready)
    options |= check_trust(url, allow_plaintext, tls, allow_users, allow_groups)
    options |= {"oneway": check_oneway(oneway), "on_drop": drop_reporter(url)}
    values = check_whole("max_values", max_values)
    return AsyncClient(url, check_service(service), options, check_interceptors(interceptors, None), values)
