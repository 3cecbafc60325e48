"""``nearcall.grpcio.channel``: channels for grpcio's stubs, for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..client.channel import Channel as Nearcall
from ..client.options import ChannelOptions
from ..errors import Cancelled, DeadlineExceeded, Unavailable
from ..errors import RpcError as NearcallError
from ..options.checked import check_url
from ..options.names import check_names
from ..service.encoded import EncodedMethod, encoded_class
from .addresses import url_of
from .calls import MultiCallable, StreamMultiCallable
from .credentials import tls_of_channel
from .peer import grpc
from .settings import channel_options, insecure_options
from .stubs import StubMethods

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Channel", "channel", "insecure_channel", "secure_channel"]

_PAUSE = 0.1
"""Seconds between two attempts to connect while a caller waits for a server."""


class Channel(StubMethods, grpc.Channel):
    """A channel for stubs that protoc has generated; made by :func:`channel` and :func:`insecure_channel`.

    It connects with the first call, as grpcio's does.
    """

    _one_response = MultiCallable
    _many_responses = StreamMultiCallable

    def __init__(self, url: str, options: ChannelOptions) -> None:
        check_url(url)
        self._url, self._options = url, options
        self._lock = threading.Lock()
        self._channel: Nearcall | None = None
        self._closed = False
        self._subscribed: list[Callable[[Any], object]] = []

    def subscribe(self, callback: Callable[[Any], object], try_to_connect: bool | None = False) -> None:
        """Calls ``callback`` with the present state, and again once there is a connection."""
        ready = self._channel is not None
        callback(grpc.ChannelConnectivity.READY if ready else grpc.ChannelConnectivity.IDLE)
        if not ready:
            self._subscribed.append(callback)
            if try_to_connect:
                threading.Thread(target=self._try, name="nearcall-grpcio-connect", daemon=True).start()

    def unsubscribe(self, callback: Callable[[Any], object]) -> None:
        """Does not call it any more."""
        if callback in self._subscribed:
            self._subscribed.remove(callback)

    def close(self) -> None:
        """Ends the connection. Calls under way and later calls end as cancelled."""
        with self._lock:
            self._closed = True
            if self._channel is not None:
                self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self._closed else ''}channel of nearcall.grpcio to {self._url}>"

    def _opened(self, until: float | None = None) -> Nearcall:
        """The connection. With ``until``, a time of ``time.monotonic``, it waits for a server.

        Raises:
            nearcall.RpcError: there is no connection.
        """
        channel = self._channel
        if channel is not None:
            return channel
        with self._lock:
            while self._channel is None:
                if self._closed:
                    raise Cancelled(f"this channel to {self._url} was closed")
                try:
                    self._channel = Nearcall(self._url, **self._options)
                except (Unavailable, DeadlineExceeded):
                    if until is None or time.monotonic() + _PAUSE > until:
                        raise
                    time.sleep(_PAUSE)
            told, self._subscribed = self._subscribed, []
            channel = self._channel
        for callback in told:
            callback(grpc.ChannelConnectivity.READY)
        return channel

    def _try(self) -> None:
        """Connects for the subscribed callbacks."""
        while self._subscribed and not self._closed:
            try:
                self._opened()
            except NearcallError:
                for callback in list(self._subscribed):
                    callback(grpc.ChannelConnectivity.TRANSIENT_FAILURE)
                time.sleep(_PAUSE)

    def _callable(self, method: EncodedMethod, service: str, until: float | None) -> Callable[..., Any]:
        """The callable of a method that takes and returns encoded messages."""
        client = self._opened(until).client(encoded_class(service, [method]))
        called: Callable[..., Any] = getattr(client.service, method.name)
        return called


def channel(url: str, **options: Unpack[ChannelOptions]) -> Channel:
    """A channel for grpcio's stubs to any of nearcall's URLs: ``shm://greeter``, ``grpcs://host:443``.

    Args:
        url: Where the server is.
        options: As for :class:`nearcall.Channel`; ``tls`` among them.

    Raises:
        InvalidArgument: the URL is malformed.
        TypeError: there is no such option.
    """
    check_names(options, ChannelOptions.__annotations__)
    return Channel(url, options)


def insecure_channel(target: str, options: Iterable[tuple[str, Any]] | None = None, compression: Any = None) -> Channel:
    """A channel to one of grpcio's addresses, without encryption: the arguments are those of ``grpc.insecure_channel``.

    Args:
        target: ``localhost:50051``, ``dns:///host:50051``, ``unix:/path``.
        options: Pairs of a name and a value; only ``grpc.max_receive_message_length`` has an effect.
        compression: ``grpc.Compression.Gzip`` compresses what is sent, from 1 KiB.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
    """
    return Channel(url_of(target), insecure_options(options, compression))


def secure_channel(
    target: str,
    credentials: object,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: Any = None,
) -> Channel:
    """A channel to one of grpcio's addresses, with encryption: the arguments are those of ``grpc.secure_channel``.

    Args:
        target: ``localhost:50051``, ``dns:///host:50051``.
        credentials: What :func:`nearcall.grpcio.ssl_channel_credentials` has made, or a :class:`nearcall.TLS`.
        options: Pairs of a name and a value: ``grpc.max_receive_message_length`` and ``grpc.ssl_target_name_override``
            have an effect.
        compression: ``grpc.Compression.Gzip`` compresses what is sent, from 1 KiB.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
        TypeError: the credentials are grpcio's own, which cannot be read.
    """
    pairs = list(options or ())
    made: Any = channel_options(pairs, compression)
    made["tls"] = tls_of_channel(credentials, pairs)
    return Channel(url_of(target, encrypted=True), made)
