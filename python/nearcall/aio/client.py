"""A service in another process, for coroutines."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from ..call.proxy import HasService
from ..client.agreements import Agreement
from ..client.connected import Connected, for_loops
from ..client.proxy import make_proxy
from ..errors import Cancelled

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["AsyncClient"]


class AsyncClient(Connected, HasService):
    """A service at the other end of a connection, for coroutines, made by :func:`connect` or :meth:`Channel.client`.

    Use it with ``async with``, which gives the service, or ``await`` it and take :attr:`service`. That of a channel can
    be used at once. Methods without a reply stream return awaitables, methods with one return asynchronous iterators.
    Streams to send may be asynchronous or ordinary iterables. Any number of tasks may call at once.
    """

    _for_threads = "with nearcall.connect(...)"
    _for_loops = "async with nearcall.aio.connect(...)"

    def __init__(self, channel: Channel, cls: type | None, *, owns_channel: bool) -> None:
        self._channel = channel
        self._cls = cls
        self._owns_channel = owns_channel
        self._agreement: Agreement | None = None
        self._service: Any = None
        self._closed = False

    async def _open(self) -> AsyncClient:
        if self._closed:
            raise Cancelled(f"this client of {self.url} was closed")
        await self._channel
        if self._agreement is None:
            try:
                self._begin()
            except BaseException:
                self._channel.close()
                raise
        return self

    def _begin(self) -> None:
        """Makes sure that the server serves what the class says."""
        agreement = self._channel._agree(self._cls)
        self._service = make_proxy(self.url, agreement, self._channel._make_method, self._channel._home.around)
        self._agreement = agreement

    def _opened(self) -> _core.Connection:
        return self._channel._opened()

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
            raise for_loops("client", self._for_threads, self._for_loops)

        __exit__ = __enter__

    def close(self) -> None:
        """Ends the client: what is called from now on fails with :class:`~nearcall.Cancelled`. Harmless when repeated.

        The client of :func:`connect` ends its connection, too, and with it the calls under way, which fail in the same
        way. One of several clients of a :class:`Channel` leaves the connection to the others, and its calls under way
        go on to their end.
        """
        self._closed = True
        if self._owns_channel:
            self._channel.close()
        elif self._agreement is not None:
            self._channel._agreements.end(self._agreement)

    @property
    def service(self) -> Any:
        """The service; its methods are those of the class that the client was made with."""
        self._opened()
        return self._service

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._channel.url

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the channel closed."""
        return self._channel.closed or self._closed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        return getattr(self.service, name)

    def __repr__(self) -> str:
        return f"<asynchronous client of {self._service or self.url!r}>"
