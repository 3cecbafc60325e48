"""``nearcall.grpcio.aio.channel``: channels for stubs of ``grpc.aio``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...aio.channel import Channel as Nearcall
from ...client.options import ChannelOptions
from ...errors import Cancelled, DeadlineExceeded, Unavailable
from ...options.checked import check_url
from ...options.names import check_names
from ...service.encoded import EncodedMethod, encoded_class
from ..addresses import url_of
from ..credentials import tls_of_channel
from ..peer import grpc
from ..settings import channel_options, insecure_options
from ..stubs import StubMethods
from .calls import MultiCallable, StreamMultiCallable

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Channel", "channel", "insecure_channel"]

_PAUSE = 0.1
"""Seconds between two attempts to connect while a caller waits for a server, and between two checks of a state."""


class Channel(StubMethods, grpc.aio.Channel):
    """A channel for stubs that protoc has generated; made by :func:`channel` and :func:`insecure_channel`.

    It connects with the first call, and belongs to the event loop that makes it.
    """

    _one_response = MultiCallable
    _many_responses = StreamMultiCallable

    def __init__(self, url: str, options: ChannelOptions) -> None:
        check_url(url)
        self._url, self._options = url, options
        self._connecting = asyncio.Lock()
        self._channel: Nearcall | None = None
        self._closed = False
        self._calls: set[asyncio.Future[Any]] = set()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Whether there is a connection."""
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        if self._channel is not None:
            return grpc.ChannelConnectivity.READY
        if try_to_connect:
            task = asyncio.ensure_future(self._try())
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        return grpc.ChannelConnectivity.IDLE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits until the state is another one."""
        while self.get_state() == last_observed_state:  # noqa: ASYNC110 - closing the channel notifies nobody
            await asyncio.sleep(_PAUSE)

    async def channel_ready(self) -> None:
        """Waits until there is a connection."""
        await self._opened(patient=True)

    async def close(self, grace: float | None = None) -> None:
        """Ends the connection, after ``grace`` seconds for the calls under way."""
        self._closed = True
        if self._calls and grace:
            await asyncio.wait(self._calls, timeout=grace)
        if self._channel is not None:
            self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self._closed else ''}asynchronous channel of nearcall.grpcio to {self._url}>"

    async def _try(self) -> None:
        with suppress(Unavailable, DeadlineExceeded, Cancelled):  # the next call raises it
            await self._opened()

    async def _opened(self, *, patient: bool = False) -> Nearcall:
        """The connection. With ``patient`` it waits for a server.

        Raises:
            nearcall.RpcError: there is no connection.
        """
        async with self._connecting:
            while self._channel is None:
                if self._closed:
                    raise Cancelled(f"this channel to {self._url} was closed")
                channel = Nearcall(self._url, **self._options)
                try:
                    await channel
                except (Unavailable, DeadlineExceeded):
                    if not patient:
                        raise
                    await asyncio.sleep(_PAUSE)
                else:
                    self._channel = channel
            return self._channel

    async def _callable(self, method: EncodedMethod, service: str, patient: bool) -> Callable[..., Any]:
        """The callable of a method that takes and returns encoded messages."""
        channel = await self._opened(patient=patient)
        called: Callable[..., Any] = getattr(channel.client(encoded_class(service, [method])).service, method.name)
        return called


def channel(url: str, **options: Unpack[ChannelOptions]) -> Channel:
    """A channel for stubs of ``grpc.aio`` to any of nearcall's URLs: ``shm://greeter``, ``grpcs://host:443``.

    Args:
        url: Where the server is.
        options: As for :class:`nearcall.aio.Channel`; ``tls`` among them.

    Raises:
        InvalidArgument: the URL is malformed.
        TypeError: there is no such option.
    """
    check_names(options, ChannelOptions.__annotations__)
    return Channel(url, options)


def insecure_channel(
    target: str,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: Any = None,
    interceptors: object = None,
) -> Channel:
    """A channel to one of grpcio's addresses, without encryption: the arguments are those of
    ``grpc.aio.insecure_channel``.

    Args:
        target: ``localhost:50051``, ``dns:///host:50051``, ``unix:/path``.
        options: Pairs of a name and a value; only ``grpc.max_receive_message_length`` has an effect.
        compression: ``grpc.Compression.Gzip`` compresses what is sent, from 1 KiB.
        interceptors: Must be empty.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
    """
    _check_interceptors(interceptors)
    return Channel(url_of(target), insecure_options(options, compression))


def secure_channel(
    target: str,
    credentials: object,
    options: Iterable[tuple[str, Any]] | None = None,
    compression: Any = None,
    interceptors: object = None,
) -> Channel:
    """A channel to one of grpcio's addresses, with encryption: the arguments are those of ``grpc.aio.secure_channel``.

    Args:
        target: ``localhost:50051``, ``dns:///host:50051``.
        credentials: What :func:`nearcall.grpcio.ssl_channel_credentials` has made, or a :class:`nearcall.TLS`.
        options: Pairs of a name and a value: ``grpc.max_receive_message_length`` and ``grpc.ssl_target_name_override``
            have an effect.
        compression: ``grpc.Compression.Gzip`` compresses what is sent, from 1 KiB.
        interceptors: Must be empty.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
        TypeError: the credentials are grpcio's own, which cannot be read.
    """
    _check_interceptors(interceptors)
    pairs = list(options or ())
    made: Any = channel_options(pairs, compression)
    made["tls"] = tls_of_channel(credentials, pairs)
    return Channel(url_of(target, encrypted=True), made)


def _check_interceptors(interceptors: object) -> None:
    if interceptors:
        raise ValueError(
            "interceptors of grpc.aio's clients are not run: give nearcall's to channel(url, interceptors=[...])"
        )
