"""A server and a client of it in one line, for tests."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from ..client.channel import connect
from ..client.client import Client
from ..options.names import checks_names
from ..server.instances import look_at
from ..server.server import Server
from .proxy import FaultyProxy

if TYPE_CHECKING:
    from ..aio import AsyncClient, Interface

__all__ = ["Faulty", "Serving", "faulty", "serving"]

T = TypeVar("T")
S = TypeVar("S", bound="Interface")

_numbers = itertools.count(1)


class Serving(Generic[T]):
    """The result of :func:`serving`. Use a new one for each block."""

    def __init__(
        self,
        service: object,
        interface: Callable[..., T] | None,
        url: str | None,
        server: Mapping[str, Any] | None,
        client: Mapping[str, Any] | None,
    ) -> None:
        self._cls = look_at(service).cls if interface is None else cast("type", interface)
        self._client_options = dict(client or {})
        self.server = Server(service, url or f"inproc://testing-{next(_numbers)}", **dict(server or {}))
        """The server; it runs inside the block."""
        self._stack = ExitStack()
        self._async_stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """Where it is served; inside the block."""
        return self.server.urls[0]

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"serving(...) is no client, and has no '{name}': write 'with serving(...) as service'"
            )

    def connect(self, url: str | None = None) -> Client[T]:
        """Another client; close it, or use it in a ``with`` statement."""
        return cast("Client[T]", connect(url or self.url, self._cls, **self._client_options))

    @overload
    def connect_async(self: Serving[S], url: str | None = None) -> AsyncClient[S]: ...
    @overload
    def connect_async(self, url: str | None = None) -> AsyncClient[Any]: ...
    def connect_async(self, url: str | None = None) -> AsyncClient[Any]:
        """Another client for coroutines: use it with ``async with``, or ``await`` it."""
        from .. import aio

        return aio.connect(url or self.url, self._cls, **self._client_options)

    def __enter__(self) -> T:
        with ExitStack() as stack:
            stack.enter_context(self.server)
            service = stack.enter_context(self.connect())
            self._stack = stack.pop_all()
        return service

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @overload
    async def __aenter__(self: Serving[S]) -> S: ...
    @overload
    async def __aenter__(self) -> Any: ...
    async def __aenter__(self) -> Any:
        async with AsyncExitStack() as stack:
            self.server.start()
            stack.push_async_callback(_away, self.server.stop)
            service = await stack.enter_async_context(self.connect_async())
            self._async_stack = stack.pop_all()
        return service

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._async_stack.aclose()


@overload
def serving(
    service: object,
    *,
    interface: Callable[..., T],
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
) -> Serving[T]: ...
@overload
def serving(
    service: Callable[[], T],
    *,
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
) -> Serving[T]: ...
@overload
def serving(
    service: T,
    *,
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
) -> Serving[T]: ...
@checks_names
def serving(
    service: Any,
    *,
    interface: Callable[..., Any] | None = None,
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
) -> Serving[Any]:
    """Serves an object and connects to it, for the length of a ``with`` or ``async with`` block::

        with serving(Calculator()) as calc:
            assert calc.add(1, 2) == 3

        async with serving(Calculator()) as calc:
            assert await calc.add(1, 2) == 3

    Calls are real: arguments are checked and encoded, handlers run in the server's threads, deadlines and errors are as
    between processes.

    Args:
        service: The object. Type checkers give the client its type. For a service with ``instance="session"`` give what
            :class:`nearcall.Server` takes: the class, a ``functools.partial`` of it, or a function.
        interface: The class that the client is made with in place of the object's, and its type for type checkers: one
            without ``async``, for tests in threads of a class with ``async def`` handlers.
        url: Where to serve; by default an ``inproc://`` name that nobody else uses.
        server: Options of :class:`nearcall.Server`, by name.
        client: Options of :func:`nearcall.connect`, by name.
    """
    return Serving(service, interface, url, server, client)


class Faulty(Generic[T]):
    """The result of :func:`faulty`. Use a new one for each block."""

    def __init__(
        self,
        service: object,
        interface: Callable[..., T] | None,
        url: str | None,
        server: Mapping[str, Any] | None,
        client: Mapping[str, Any] | None,
        seed: int,
    ) -> None:
        self._service = service
        self._interface = interface
        self._url = url
        self._options = (server, client)
        self._seed = seed
        self._stack = ExitStack()
        self._async_stack = AsyncExitStack()

    def _prepare(self, stack: ExitStack | AsyncExitStack) -> Serving[T]:
        url = self._url
        if url is None:
            # A path in this folder is short enough for a socket, unlike those in pytest's folders.
            folder = Path(tempfile.mkdtemp(prefix="nearcall-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            url = f"unix://{folder}/served"
        return Serving(self._service, self._interface, url, *self._options)

    def __enter__(self) -> tuple[T, FaultyProxy]:
        with ExitStack() as stack:
            served = self._prepare(stack)
            stack.enter_context(served.server)
            proxy = stack.enter_context(FaultyProxy(served.url, seed=self._seed))
            service = stack.enter_context(served.connect(proxy.url))
            self._stack = stack.pop_all()
        return service, proxy

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @overload
    async def __aenter__(self: Faulty[S]) -> tuple[S, FaultyProxy]: ...
    @overload
    async def __aenter__(self) -> tuple[Any, FaultyProxy]: ...
    async def __aenter__(self) -> tuple[Any, FaultyProxy]:
        async with AsyncExitStack() as stack:
            served = self._prepare(stack)
            stack.push_async_callback(_away, served.server.start().stop)
            proxy = FaultyProxy(served.url, seed=self._seed)
            stack.push_async_callback(_away, proxy.close)
            service = await stack.enter_async_context(served.connect_async(proxy.url))
            self._async_stack = stack.pop_all()
        return service, proxy

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._async_stack.aclose()


@overload
def faulty(
    service: object,
    *,
    interface: Callable[..., T],
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Faulty[T]: ...
@overload
def faulty(
    service: Callable[[], T],
    *,
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Faulty[T]: ...
@overload
def faulty(
    service: T,
    *,
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Faulty[T]: ...
@checks_names
def faulty(
    service: Any,
    *,
    interface: Callable[..., Any] | None = None,
    url: str | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Faulty[Any]:
    """Serves an object and connects to it through a :class:`FaultyProxy`; a block gets client and proxy::

        with faulty(Calculator()) as (calc, proxy):
            proxy.cut()

    Args:
        service: The object, or for a service with ``instance="session"`` its class, as for :func:`serving`.
        interface: As for :func:`serving`.
        url: Where to serve, such as ``tcp://127.0.0.1:0``; by default a ``unix://`` path in a folder of its own.
        server: Options of :class:`nearcall.Server`, by name.
        client: Options of :func:`nearcall.connect`, by name.
        seed: The seed of the proxy's random numbers.
    """
    return Faulty(service, interface, url, server, client, seed)


async def _away(stop: Any) -> None:
    """Calls ``stop`` in a thread, so that the event loop goes on."""
    import asyncio

    await asyncio.get_running_loop().run_in_executor(None, stop)
