"""A service in another process, called as if it were here."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .. import _core
from ..call.proxy import HasService
from ..errors import Cancelled
from ..options.checked import check_seconds
from .connected import Connected, for_threads
from .proxy import make_proxy

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["Client"]

T = TypeVar("T")


class Client(Connected, HasService, Generic[T]):
    """A service at the other end of a connection, made by :func:`connect` or :meth:`Channel.client`.

    In a ``with`` statement it gives the typed service and closes at the end. It can also be kept: ``client.service`` is
    the typed service, and the methods can be called on the client itself, untyped. Any number of threads may call at
    once.
    """

    _for_threads = "with nearcall.connect(...)"
    _for_loops = "async with nearcall.aio.connect(...)"
    service: T
    """The service; its methods are those of the class that the client was made with."""

    def __init__(self, channel: Channel, cls: type | None, *, owns_channel: bool) -> None:
        self._channel = channel
        self._agreement = agreement = channel._agree(cls)
        self._owns_channel = owns_channel
        self._closed = False
        self.service = cast("T", make_proxy(channel.url, agreement, channel._make_method))

    def _opened(self) -> _core.Connection:
        return self._channel._opened()

    def __enter__(self) -> T:
        if self.closed:
            raise Cancelled(f"this client of {self.url} was closed")
        return self.service

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __aenter__(self) -> Any:
            self.close()
            raise for_threads("client", self._for_threads, self._for_loops)

        __aexit__ = __aenter__

    def close(self) -> None:
        """Ends the client: what is called from now on fails with :class:`~nearcall.Cancelled`. Harmless when repeated.

        The client of :func:`connect` ends its connection, too, and with it the calls under way, which fail in the same
        way. One of several clients of a :class:`Channel` leaves the connection to the others, and its calls under way
        go on to their end.
        """
        self._closed = True
        if self._owns_channel:
            self._channel.close()
        else:
            self._channel._agreements.end(self._agreement)

    def ping(self, timeout: float | None = None) -> float:
        """Seconds that a round trip to the server takes without any handler.

        Raises:
            DeadlineExceeded: no answer within ``timeout`` seconds.
            Unavailable: the server is gone.
        """
        return self._opened().ping(None if timeout is None else check_seconds("timeout", timeout, otherwise="None"))

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._channel.url

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the channel closed."""
        return self._closed or self._channel.closed

    def __getattr__(self, name: str) -> Any:
        if name == "service":  # while this is being made
            raise AttributeError(name)
        if name.startswith("_"):
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        return getattr(self.service, name)

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}client of {self.service!r}>"
