"""``nearcall.grpcio.server``: grpcio's server, served by nearcall."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import AlreadyExists, InvalidArgument
from ..options.names import check_names, option_names
from ..options.schemes import speaks_protobuf
from ..options.tls import TLS
from ..server.fallback import Fallback
from ..server.latch import Latch
from ..server.listening import make_listeners
from ..server.server import Server as Nearcall
from .addresses import url_of
from .credentials import tls_of_server
from .handlers import Methods, collect, services, unknown_method
from .peer import grpc
from .settings import compression_of, options_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import ThreadPoolExecutor

    from typing_extensions import Self

__all__ = ["Server", "ServerBase", "server", "server_options"]


class ServerBase:
    """The base of servers for threads and for event loops: what they serve, and where."""

    def __init__(
        self, interceptors: Sequence[Any] | None, tls: TLS | None, besides: Sequence[object], options: dict[str, Any]
    ) -> None:
        self._interceptors = list(interceptors or ())
        self._tls = tls
        self._besides = list(besides)
        self._options = options
        self._methods: Methods = {}
        self._listeners: _core.Listeners | None = None
        self._urls: list[str] = []
        self._server: Nearcall | None = None
        self._over = Latch()
        self._event = threading.Event()
        """Set with it, for those who know grpcio's."""
        self._ending = threading.Lock()
        self._told: list[Callable[[], object]] = []

    @property
    def urls(self) -> list[str]:
        """Where the server listens, as nearcall's URLs."""
        return list(self._urls)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        """Serves the methods of some handlers that ``grpc.method_handlers_generic_handler`` has made.

        Raises:
            TypeError: a handler does not say which methods it has.
        """
        for generic in generic_rpc_handlers:
            for service, method, handler in collect(generic):
                self._add(service, {method: handler})

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Serves the methods of one service."""
        self._add(service_name, method_handlers)

    def _add(self, service: str, handlers: Mapping[str, Any]) -> None:
        if self._server is not None:
            raise ValueError(f"{service} cannot be added: the server has started")
        self._methods.setdefault(service, {}).update(handlers)

    def add_insecure_port(self, address: str) -> int:
        """Listens at one of grpcio's addresses, ``"[::]:50051"``, without encryption.

        Returns:
            The port; for an address without one, 1.

        Raises:
            RuntimeError: the server cannot listen there; the message says why.
        """
        return self._listen(url_of(address))

    def add_secure_port(self, address: str, server_credentials: object = None) -> int:
        """Listens with encryption.

        Args:
            address: ``"[::]:50051"``.
            server_credentials: What :func:`nearcall.grpcio.ssl_server_credentials` has made, or a
                :class:`nearcall.TLS`; ``None``: the ``tls`` that the server was made with. A server has one.

        Raises:
            TypeError: the credentials are grpcio's own, which cannot be read, or there are none.
            ValueError: the server has other ones, or listens without encryption already.
            RuntimeError: the server cannot listen there; the message says why.
        """
        if server_credentials is not None or self._tls is None:
            tls = tls_of_server(server_credentials)
            if self._tls is None and self._listeners is not None:
                raise ValueError("call add_secure_port() before the other ports are added, or give tls= to server()")
            if self._tls not in (None, tls):
                raise ValueError("a server has one certificate: give the same credentials to each add_secure_port()")
            self._tls = tls
        return self._listen(url_of(address, encrypted=True))

    def add_url(self, url: str) -> str:
        """Listens at one of nearcall's URLs as well, such as ``shm://greeter``.

        Returns:
            The URL, with the port that the system chose.

        Raises:
            RuntimeError: the server cannot listen there; the message says why.
        """
        self._listen(url)
        return self._urls[-1]

    def _listen(self, url: str) -> int:
        if self._server is not None:
            raise ValueError(f"nothing can be added at {url}: the server has started")
        try:
            if self._listeners is None:
                # add_insecure_port() asks for plaintext.
                self._listeners = make_listeners(["grpcs://"], allow_plaintext=True, tls=self._tls)
            try:
                bound = self._listeners.bind(url)
            except OSError:
                if "//[::]:" not in url:
                    raise
                bound = self._listeners.bind(url.replace("[::]", "0.0.0.0"))  # no IPv6 here
        except (AlreadyExists, InvalidArgument, OSError) as error:
            raise RuntimeError(f"cannot listen at {url}: {error}") from error
        self._urls.append(bound)
        port = bound.rpartition(":")[2]
        return int(port) if port.isdigit() else 1

    def _start(self, made: Sequence[object], unknown: Fallback, loop: AbstractEventLoop | None = None) -> None:
        """Serves from now on. Interceptors see calls of unknown methods as well, and may have a handler for them."""
        if self._server is not None:
            raise ValueError("the server has started already")
        if self._listeners is None:
            raise ValueError("there is nowhere to serve: call add_insecure_port() first")
        options: dict[str, Any] = {**self._options}
        if self._tls is not None:
            options["tls"] = self._tls
        if self._interceptors and any(map(speaks_protobuf, self._urls)):
            options.setdefault("fallback", unknown)
        self._server = Nearcall(*made, *self._besides, *self._urls, allow_plaintext=True, **options)
        self._server._host_loop = loop
        self._server.serve_at(self._listeners, self._urls)

    def _stop(self, grace: float | None) -> None:
        if self._server is not None:
            self._server.stop(0.0 if grace is None else grace)
        elif self._listeners is not None:
            self._listeners.close()
        with self._ending:
            self._over.set()
            self._event.set()
            told, self._told = self._told, []
        for each in told:
            each()

    def _tell_end(self, each: Callable[[], object]) -> None:
        """Calls a function when the server was stopped."""
        with self._ending:
            if not self._over.is_set():
                self._told.append(each)
                return
        each()


class Server(ServerBase, grpc.Server):
    """A server to which servicers are added, like that of ``grpc.server``; made by :func:`server`."""

    def start(self) -> None:
        """Serves from now on.

        Raises:
            TypeError: a servicer's method is a coroutine function.
            ValueError: the server has started already, or has no address.
        """
        self._start(services(self._methods, self._interceptors), unknown_method(self._interceptors))

    def stop(self, grace: float | None) -> threading.Event:
        """Takes no more calls, and finishes those under way for ``grace`` seconds; ``None`` cuts them off.

        Returns:
            An event that is set when that is over.
        """
        threading.Thread(target=self._stop, args=(grace,), name="nearcall-grpcio-stop", daemon=True).start()
        return self._event

    def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Waits until the server was stopped, at most ``timeout`` seconds. Returns whether the time was over first."""
        return not self._over.wait(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop(None)


def server(  # noqa: PLR0913 - the arguments are grpcio's
    thread_pool: ThreadPoolExecutor | None = None,
    handlers: Iterable[Any] | None = None,
    interceptors: Sequence[Any] | None = None,
    options: Iterable[tuple[str, Any]] | None = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: Any = None,
    xds: bool = False,
    *,
    tls: TLS | None = None,
    services: Sequence[object] = (),
    **besides: Any,
) -> Server:
    """A server for servicers that were written for grpcio: the arguments are those of ``grpc.server``.

    ::

        server = nearcall.grpcio.server(futures.ThreadPoolExecutor(max_workers=10))
        helloworld_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
        server.add_insecure_port("[::]:50051")
        server.add_url("shm://greeter")
        server.start()
        server.wait_for_termination()

    Args:
        thread_pool: Its size says how many servicers may run at once; nearcall's own threads run them. Without it, the
            default of :class:`nearcall.Server` counts.
        handlers: Handlers that ``grpc.method_handlers_generic_handler`` has made.
        interceptors: Objects of ``grpc.ServerInterceptor``; the first is the outermost.
        options: Pairs of a name and a value. ``grpc.max_receive_message_length`` has an effect; options without a
            counterpart are ignored, with a line in the log the first time.
        maximum_concurrent_rpcs: Calls that may be under way or waiting at once; further ones fail with
            ``RESOURCE_EXHAUSTED``.
        compression: ``grpc.Compression.Gzip`` compresses what is sent, from 1 KiB.
        xds: Must be ``False``.
        tls: Certificate and key for :meth:`Server.add_secure_port`.
        services: Services of nearcall to serve as well.
        besides: Further options, as for :class:`nearcall.Server`.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
        TypeError: a handler does not say which methods it has.
    """
    if xds:
        raise ValueError("xds=True: nearcall knows no xDS")
    found = server_options(options, maximum_concurrent_rpcs, compression, besides)
    made = Server(interceptors, tls, services, found)
    workers = getattr(thread_pool, "_max_workers", None)  # there is no public name for it
    if isinstance(workers, int):
        made._options.setdefault("max_concurrency", workers)
    made.add_generic_rpc_handlers(handlers or ())
    return made


def server_options(
    pairs: Iterable[tuple[str, Any]] | None, most: int | None, compression: Any, besides: dict[str, Any]
) -> dict[str, Any]:
    """The options of :class:`nearcall.Server` for those of grpcio.

    Raises:
        TypeError: there is no such option of nearcall's.
        ValueError: an option has no counterpart; the message says which.
    """
    check_names(besides, option_names(Nearcall.__init__))
    found = options_of(pairs)
    if most is not None:
        found["max_pending"] = most
    if (written := compression_of(compression)) is not None:
        found["compression"] = written
    return {**found, **besides}
