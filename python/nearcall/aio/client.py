"""A service in another process, for coroutines."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Generic, cast

from ..call.proxy import Proxy
from ..client.client import ClientBase
from ..client.connected import ForLoops
from ..errors import Cancelled
from .closing import Closing

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    from .channel import Channel

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["AsyncClient"]


class AsyncClient(ClientBase, ForLoops, Generic[T]):
    """A service at the other end of a connection, for coroutines, made by :func:`connect` or :meth:`Channel.client`.

    Use it with ``async with``, which gives the service, or ``await`` it and take :attr:`service`. A client made by
    :meth:`Channel.client` can be used at once. Methods without a reply stream return awaitables, methods with one
    return asynchronous iterators. Streams to send may be asynchronous or ordinary iterables. Any number of tasks may
    call at once.

    To type checkers the service is what the client was made with, if that derives from :class:`Interface`, and else
    ``Any``.
    """

    _service: Any = None

    async def _open(self) -> Self:
        if self._closed:
            raise Cancelled(f"this client of {self._channel._shown} was closed")
        await cast("Channel", self._channel)
        if self._agreement is None:
            try:
                self._begin()
            except BaseException:
                self._channel.close()
                raise
        return self

    def _begin(self) -> Proxy:
        self._service = service = super()._begin()
        return service

    def _proxy(self) -> Proxy | None:
        return cast("Proxy | None", self._service)

    async def __aenter__(self) -> T:
        await self._open()
        return cast("T", self._service)

    def close(self) -> Awaitable[None]:
        """Ends the client at once, as :meth:`nearcall.Client.close` does. Harmless when repeated.

        Any function may call it. The result may be awaited: it waits for the end of whatever the client has started,
        such as the process of :func:`spawn`.
        """
        self._end()
        return Closing()

    @property
    def service(self) -> T:
        """The service; its methods are those of the class that the client was made with."""
        self._opened()
        return cast("T", self._service)

    def __repr__(self) -> str:
        made = self._service is not None  # not its truth: the service may answer that itself
        return f"<asynchronous client of {self._service if made else self._channel._shown!r}>"
