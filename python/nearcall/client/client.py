"""A service in another process, called as if it were here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, final

from .. import _core
from ..call.proxy import HasService, Proxy, no_such_attribute, with_own_text
from ..errors import Cancelled
from .connected import Connected, ForThreads
from .proxy import make_proxy

if TYPE_CHECKING:
    from .agreements import Agreement
    from .channel import Channel, ChannelBase

__all__ = ["Client", "ClientBase", "OnlyAny", "OnlyForEventLoops"]

T = TypeVar("T")


class ClientBase(Connected, HasService):
    """The base of clients for threads and for event loops."""

    _kind = "client"
    _for_threads = "with nearcall.connect(...)"
    _for_loops = "async with nearcall.aio.connect(...)"

    def __init__(self, channel: ChannelBase, cls: type | None, *, owns_channel: bool) -> None:
        self._channel = channel
        self._cls = cls
        self._owns_channel = owns_channel
        self._agreement: Agreement | None = None
        self._closed = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        with_own_text(ClientBase._text)(cls)

    def _text(self) -> str | None:
        """The docstring of this client: what it calls."""
        proxy = self._proxy()
        return type(self).__doc__ if proxy is None else proxy.__doc__

    def _begin(self) -> Proxy:
        """Makes sure that the server serves what the class says, and returns the service's proxy."""
        channel = self._channel
        agreement = channel._agree(self._cls)
        service = make_proxy(channel._shown, agreement, channel._make_method, channel._around)
        self._agreement = agreement
        return service

    @abstractmethod
    def _proxy(self) -> Proxy | None:
        """The service's proxy, if there is one yet."""

    def _opened(self) -> _core.Connection:
        return self._channel._opened()

    def _end(self) -> None:
        self._closed = True
        if self._owns_channel:
            self._channel.close()
        elif self._agreement is not None:
            self._channel._agreements.end(self._agreement)

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._channel.url

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the channel closed."""
        return self._closed or self._channel.closed

    def __dir__(self) -> Iterable[str]:
        own = (name for name in dir(type(self)) if not name.startswith("_"))
        proxy = self._proxy()
        return sorted({*own, "service", *(() if proxy is None else dir(proxy))})

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name != "service" and name not in dir(self):
            proxy = self._proxy()
            shown = type(self).__name__ if proxy is None else proxy._nearcall_name
            raise no_such_attribute(shown, self._channel._shown, name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "service":  # not set yet: the client is still being made
            raise AttributeError(name)
        if name.startswith("_"):
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        return getattr(self.service, name)


class Client(ClientBase, ForThreads, Generic[T]):
    """A service at the other end of a connection, made by :func:`connect` or :meth:`Channel.client`.

    In a ``with`` statement it gives the typed service and closes at the end. It can also be kept: ``client.service`` is
    the typed service, and the methods can be called on the client itself, untyped. Any number of threads may call at
    once.
    """

    service: T
    """The service; its methods are those of the class that the client was made with."""

    def __init__(self, channel: Channel, cls: type | None, *, owns_channel: bool) -> None:
        super().__init__(channel, cls, owns_channel=owns_channel)
        self.service = cast("T", self._begin())

    def _proxy(self) -> Proxy | None:
        return cast("Proxy | None", self.__dict__.get("service"))

    def __enter__(self) -> T:
        if self.closed:
            raise Cancelled(f"this client of {self._channel._shown} was closed")
        return self.service

    def close(self) -> None:
        """Ends the client: later calls fail with :class:`~nearcall.Cancelled`. Harmless when repeated.

        The client of :func:`connect` ends its connection, too, and with it the calls under way, which fail in the same
        way. One of several clients of a :class:`Channel` leaves the connection to the others, and its calls under way
        go on to their end.
        """
        self._end()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}client of {self.service!r}>"


class OnlyForEventLoops:
    """What type checkers see in the place of a client for threads that is made with an interface for event loops, a
    :class:`nearcall.aio.Interface`: it can do nothing, so they refuse whatever is done with it. Threads get values, and
    the interface says that there is something to await. Use ``nearcall.aio``, or the interface that ``nearcall stub``
    writes without ``--async``.
    """


@final
class OnlyAny:
    """Nobody makes an object of this, so that of all types only ``Any`` fits it: an overload with it comes first, or
    type checkers would take a class of which they know nothing for the kind that the next overload is about.
    """
