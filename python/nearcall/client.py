"""``nearcall.connect``: a service in another process, called as if it were here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

import msgspec

from . import _core
from .checked import check_seconds, check_url, check_whole
from .dropping import OnewayPolicy, check_oneway, drop_reporter
from .errors import InvalidArgument, make_error
from .interceptors import ClientInterceptor, check_interceptors, intercept_client
from .listening import check_users
from .plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from .proxy import Agreement, make_proxy
from .service import plan_of
from .streams import call_bidi_stream, call_client_stream, call_server_stream
from .tls import TLS, client_side

__all__ = ["DEFAULT_MAX_MESSAGE_SIZE", "DEFAULT_RING_SIZE", "Client", "connect"]

T = TypeVar("T")

DEFAULT_MAX_MESSAGE_SIZE = 64 * 1024 * 1024
"""Longest message received, bytes, unless the user says otherwise."""
DEFAULT_MAX_VALUES = 2_000_000
"""Values that a received message may hold, unless the user says otherwise: some 300 MB, if each is an empty dict."""
DEFAULT_RING_SIZE = 256 * 1024
"""Size of each of a shared memory connection's two rings, bytes. Memory counts only once it was touched."""


class Client(Generic[T]):
    """An open connection to a server, made by :func:`connect`.

    In a ``with`` statement it gives the typed service and closes at the end. It can also be kept: ``client.service`` is
    the typed service, and the methods can be called on the client itself, untyped. Any number of threads may call at
    once.
    """

    service: T
    """The service; its methods are those of the class that the client was connected with."""

    def __init__(self, connection: _core.Connection, service: T) -> None:
        self._connection = connection
        self.service = service

    def __enter__(self) -> T:
        return self.service

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __aenter__(self) -> Any:
            self.close()
            raise TypeError(
                "this client is for threads: write 'with nearcall.connect(...)', "
                "or 'async with nearcall.aio.connect(...)' in an event loop"
            )

        __aexit__ = __aenter__

    def close(self) -> None:
        """Ends the connection; calls under way fail with :class:`~nearcall.Cancelled`. Harmless when repeated."""
        self._connection.close()

    def ping(self, timeout: float | None = None) -> float:
        """Seconds that a round trip to the server takes without any handler.

        Raises:
            DeadlineExceeded: no answer within ``timeout`` seconds.
            Unavailable: the server is gone.
        """
        return self._connection.ping(None if timeout is None else check_seconds("timeout", timeout, otherwise="None"))

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._connection.url

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._connection.closed

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, as far as is known. A lost one is renewed by the next call."""
        return self._connection.connected

    @property
    def dropped(self) -> dict[str, int]:
        """Numbers of one-way calls that were dropped because there was no room to send them, by ``"Service.method"``:
        with ``connect(..., oneway="drop")``. A warning in the log names them, every few seconds at most.
        """
        return self._connection.dropped

    @property
    def peer(self) -> dict[str, Any]:
        """Who the server is, as the kernel vouches: ``pid``, ``uid``, ``gid`` on one machine, else ``address``. Over
        ``tls://`` also ``subject`` and ``names``, which its certificate is for. With ``serve(..., workers=)`` the
        process is the one that listens, the workers' parent, and not the worker that answers.
        """
        return self._connection.peer

    @property
    def description(self) -> dict[str, Any]:
        """What the server serves, as it describes itself: services, methods, parameters, types."""
        return cast("dict[str, Any]", msgspec.json.decode(self._connection.description))

    def __getattr__(self, name: str) -> Any:
        if name == "service":  # while this is being made
            raise AttributeError(name)
        if name.startswith("_"):
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        return getattr(self.service, name)

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}client of {self.service!r}>"


# Callable, not type[T]: to type checkers a Protocol or an abstract class is no type[T], and interfaces are just those.
@overload
def connect(
    url: str,
    service: Callable[..., T],
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
) -> Client[T]: ...
@overload
def connect(
    url: str,
    service: None = None,
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
) -> Client[Any]: ...
def connect(  # noqa: PLR0913 - options have names
    url: str,
    service: Callable[..., Any] | None = None,
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
) -> Client[Any]:
    """Connects to a server and makes sure that it serves what the class says.

    Args:
        url: ``shm://name``, ``unix:///path``, ``tcp://host:port``, ``tls://host:port`` or ``inproc://name``.
        service: The service's class or interface. Without one the client is dynamic: its methods come from the
            server's own description, and values are plain data.
        timeout: Seconds each call may take unless a surrounding ``nearcall.timeout`` is nearer; ``None``: for ever.
        spin: How long to spin for a reply before sleeping: ``"auto"`` measures and adapts, ``0`` sleeps at once,
            seconds set a fixed bound.
        max_message_size: Longest message this client receives, bytes.
        max_values: Values that a message this client receives may hold, those in lists, dicts and objects included; not
            elements of arrays.
        ring_size: Size of each ring of a shared memory connection, bytes, a power of two up to 16 MiB.
        handshake_timeout: Seconds that connecting may take.
        wait_for_ready: Where there is no server, wait for one: here for at most ``handshake_timeout``, and in a call
            until its deadline. Otherwise that is :class:`~nearcall.Unavailable` at once.
        oneway: What a one-way call does when the ring or the socket is full: ``"block"`` waits for room, until the
            call's deadline; ``"error"`` raises :class:`~nearcall.ResourceExhausted`; ``"drop"`` drops the call and
            counts it in :attr:`Client.dropped`. The last two never wait.
        interceptors: Functions around every call, each ``f(call, proceed)`` with a :class:`~nearcall.ClientCall`; the
            first is the outermost.
        allow_plaintext: Whether ``tcp://`` may lead to another machine: anybody on the way can read along, and
            pretend to be the server.
        tls: For ``tls://``: whom to trust if not the system's authorities, and the client's own certificate.
        allow_users: Users, by name or id, whose servers at ``unix://`` may be used besides the own user's and root's.
        allow_groups: Groups, by name or id, whose members' servers may be used, too.

    A connection that is lost is renewed by the next call. A call that was under way when it was lost fails with
    :class:`~nearcall.Unavailable`, unless its method is marked :func:`~nearcall.idempotent`: then it is repeated.

    Raises:
        Unavailable: nobody listens there; says whether the name was never served or its server died.
        DeadlineExceeded: somebody does, and has not answered within ``handshake_timeout``.
        FailedPrecondition: the server's service differs; says which method and parameter, and both types.
        PermissionDenied: the server does not want this user, or is another user's.
        Unauthenticated: a certificate does not satisfy the other side; says what mends it.
        InvalidArgument: the URL or an option is malformed.
        TypeError, ValueError: an option does not fit the URL.
    """
    check_url(url)
    cls = check_service(service)
    chain = check_interceptors(interceptors, "this client is for threads")
    agreement = Agreement(url, cls, error_maker(cls), check_whole("max_values", max_values))
    connection = _core.Connection(
        url,
        **check_options(timeout, spin, max_message_size, ring_size, handshake_timeout, wait_for_ready),
        **check_trust(url, allow_plaintext, tls, allow_users, allow_groups),
        oneway=check_oneway(oneway),
        on_drop=drop_reporter(url),
        on_change=agreement.renew,
    )
    try:
        connection.connect()
        proxy: Any = make_proxy(connection, agreement, partial(_make_method, chain))
    except BaseException:
        connection.close()
        raise
    return Client(connection, proxy)


def check_service(service: object) -> type | None:
    """The class to connect with.

    Raises:
        TypeError: it is no service.
    """
    if service is None:
        return None
    if not isinstance(service, type):
        raise TypeError(f"connect with the service's class, not with {service!r}")
    plan_of(service)
    return service


def check_options(
    timeout: float | None,
    spin: float | Literal["auto"],
    max_message_size: int,
    ring_size: int,
    handshake_timeout: float,
    wait_for_ready: bool,
) -> dict[str, Any]:
    """A client's options for the core.

    Raises:
        InvalidArgument: one is malformed; says which, and what it may be.
    """
    return {
        "timeout": None if timeout is None else check_seconds("timeout", timeout, otherwise="None"),
        "spin": check_spin(spin),
        "max_message_size": check_whole("max_message_size", max_message_size, "bytes"),
        "ring_size": _check_ring_size(ring_size),
        "handshake_timeout": check_seconds("handshake_timeout", handshake_timeout),
        "wait_for_ready": bool(wait_for_ready),
    }


def check_trust(
    url: str,
    allow_plaintext: bool,
    tls: TLS | None,
    allow_users: Sequence[str | int],
    allow_groups: Sequence[str | int],
) -> dict[str, Any]:
    """What a client's options say of whom it trusts, for the core.

    Raises:
        InvalidArgument: one is malformed.
        TypeError, ValueError: one does not fit the URL.
    """
    users, groups = check_users([url], allow_users, allow_groups)
    return {
        "allow_plaintext": bool(allow_plaintext),
        "tls": client_side(tls, url),
        "allow_users": users,
        "allow_groups": groups,
    }


def _check_ring_size(size: int) -> int:
    if not isinstance(cast(object, size), bool) and hasattr(size, "__index__"):
        number = size.__index__()
        if 4096 <= number <= 1 << 24 and number & (number - 1) == 0:
            return number
    raise InvalidArgument(f"ring_size must be a power of two from 4096 to 16777216 (bytes), not {size!r}")


def check_spin(spin: float | Literal["auto"]) -> float | Literal["auto"]:
    """The option ``spin``.

    Raises:
        InvalidArgument: it is neither ``"auto"`` nor a number of seconds.
    """
    return spin if spin == "auto" else check_seconds("spin", spin, otherwise='"auto"')


def error_maker(cls: type | None) -> Callable[[int, str, bytes], BaseException] | None:
    """What makes exceptions of failures, for a class that declares some of its own."""
    declared = {} if cls is None else {error.__name__: error for error in plan_of(cls).errors}
    return partial(make_error, declared=declared) if declared else None


def _make_method(
    interceptors: tuple[ClientInterceptor, ...], connection: _core.Connection, plan: MethodPlan, method: _core.Method
) -> Any:
    return intercept_client(interceptors, plan, _callable(connection, plan, method), for_loop=False)


def _callable(connection: _core.Connection, plan: MethodPlan, method: _core.Method) -> Any:
    if plan.kind == ONEWAY:
        return connection.oneway(method, for_loop=False)
    if plan.kind == SERVER_STREAM:
        return call_server_stream(connection, plan, method)
    if plan.kind == CLIENT_STREAM:
        return call_client_stream(connection, plan, method)
    if plan.kind == BIDI_STREAM:
        return call_bidi_stream(connection, plan, method)
    return connection.unary(method)
