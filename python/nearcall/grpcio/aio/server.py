"""``nearcall.grpcio.aio.server``: the server of ``grpc.aio``, served by nearcall."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...options.tls import TLS
from ..server import ServerBase, server_options
from .handlers import services as made_of
from .handlers import unknown_method

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Server", "server"]


class Server(ServerBase):
    """A server to which servicers are added, like that of ``grpc.aio``; made by :func:`server`.

    Its handlers run in the event loop in which it was started.
    """

    async def start(self) -> None:
        """Serves from now on.

        Raises:
            ValueError: the server has started already, or has no address.
        """
        made, unknown = made_of(self._methods, self._interceptors), unknown_method(self._interceptors)
        self._start(made, unknown, asyncio.get_running_loop())

    async def stop(self, grace: float | None) -> None:
        """Takes no more calls, finishes those under way for ``grace`` seconds, then ends; ``None`` cuts them off."""
        await asyncio.get_running_loop().run_in_executor(None, self._stop, grace)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Waits until the server was stopped, at most ``timeout`` seconds. Returns whether it was."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tell_end(lambda: loop.call_soon_threadsafe(ended.set))
        try:
            await asyncio.wait_for(ended.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop(None)


def server(
    migration_thread_pool: object = None,
    handlers: Iterable[Any] | None = None,
    interceptors: Sequence[Any] | None = None,
    options: Iterable[tuple[str, Any]] | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: Any = None,
    *,
    tls: TLS | None = None,
    services: Sequence[object] = (),
    **besides: Any,
) -> Server:
    """A server for servicers that were written for ``grpc.aio``: the arguments are those of ``grpc.aio.server``.

    Args:
        migration_thread_pool: Without effect: nearcall's own threads run methods that are no coroutine functions.
        handlers: Handlers that ``grpc.method_handlers_generic_handler`` has made.
        interceptors: Objects of ``grpc.aio.ServerInterceptor``; the first is the outermost.
        options: Pairs of a name and a value, as for :func:`nearcall.grpcio.server`.
        maximum_concurrent_rpcs: Calls that may be under way or waiting at once.
        compression: ``grpc.Compression.Gzip`` compresses what is sent, from 1 KiB.
        tls: Certificate and key for :meth:`Server.add_secure_port`.
        services: Services of nearcall to serve as well.
        besides: Further options, as for :class:`nearcall.Server`.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
        TypeError: a handler does not say which methods it has.
    """
    found = server_options(options, maximum_concurrent_rpcs, compression, besides)
    made = Server(interceptors, tls, services, found)
    made.add_generic_rpc_handlers(handlers or ())
    return made
