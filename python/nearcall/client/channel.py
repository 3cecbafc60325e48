"""``nearcall.Channel``: one connection for the clients of several services. ``nearcall.connect`` makes a channel with
one client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

from .. import _core
from ..call.interceptors import ClientInterceptor, intercept_client
from ..call.proxy import Around
from ..call.variables import current_deadline
from ..errors import Cancelled, DeadlineExceeded, FailedPrecondition, InvalidArgument, Unavailable
from ..options.checked import check_url
from ..options.schemes import is_named, speaks_grpc
from ..service.encoded import EncodedMethod, encoded_class
from ..service.for_loops import Interface, only_for_loops
from ..service.plan import MethodPlan
from ..service.service import plan_of
from ..types.shown import shown
from .agreements import Agreement, Agreements
from .callables import make_callable
from .callbacks import callback_server
from .client import Client, OnlyAny, OnlyForEventLoops
from .connected import Connected, ForThreads
from .greenlets import look_for_greenlets, need_threads
from .hedge import hedged
from .options import ChannelOptions, check_options
from .references import Passages

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..directory.resolver import Resolver

__all__ = ["Channel", "ChannelBase", "Explain", "check_service", "connect"]

T = TypeVar("T")
_NEARLY_ALL = 0.9
"""The part of the time for connecting that is over when an attempt is the last one."""
Explain: TypeAlias = "Callable[[str, bool], str | None]"
"""Takes the reason why there is no server, and whether that is because the channel was closed. Returns what users read
in its place, in :class:`~nearcall.Unavailable`; ``None``: the reason itself.
"""


class ChannelBase(Connected):
    """The base of channels for threads and for event loops."""

    _kind = "channel"
    _for_threads = "with nearcall.Channel(...)"
    _for_loops = "async with nearcall.aio.Channel(...)"
    _around: Around | None = None
    """Wraps the methods, so that they can be awaited in another event loop than the channel's own."""
    _explain: Explain | None = None

    _shown = ""
    """How messages name the server; by its URL, if nothing better is known before."""

    _by_item = False
    """Whether a stream's timeout counts until its next item, and not for the whole stream."""

    def __init__(self, url: str, sync: str | None, options: ChannelOptions, *, for_loop: bool) -> None:
        self._url = url
        self._shown = self._shown or url
        self._settings = check_options(url, sync, **options)
        self._agreements = Agreements(self._shown, self._settings.max_values, self._settings.codec, for_loop=for_loop)
        self._passages = self._make_passages()
        self._for_loop = for_loop
        self._resolver = self._make_resolver() if is_named(url) else None

    def _make_connection(self) -> _core.Connection:
        """A connection that does not connect yet."""
        return _core.Connection(
            self._url,
            on_change=self._agreements.renew,
            make_passage=self._passages,
            resolve=self._resolver,
            explain=self._explain,
            shown=None if self._shown == self._url else self._shown,
            by_item=self._by_item,
            **self._settings.of_connection,
        )

    def _make_resolver(self) -> Resolver:
        from ..directory.address import read_address  # few have a directory
        from ..directory.resolver import Resolver, source_of
        from ..directory.service import Directory

        address, options = read_address(self._url), self._settings.of_directory
        source = source_of(address.place, lambda: connect(address.place, Directory, **options))
        return Resolver(self._url, address, source)

    def _resolve_no_more(self) -> None:
        if self._resolver is not None:
            self._resolver.close()

    @contextmanager
    def _waiting(self) -> Generator[None, None, None]:
        """A block that connects for the first time: if it has waited for a server in vain, the error names the option
        that bounds the wait.
        """
        began, options = monotonic(), self._settings.of_connection
        try:
            yield
        except (Unavailable, DeadlineExceeded) as error:
            most: float = options["handshake_timeout"]
            deadline = current_deadline.get()
            in_vain = monotonic() - began > most * _NEARLY_ALL and (deadline is None or deadline > began + most)
            if not (options["wait_for_ready"] and in_vain):
                raise
            raise type(error)(
                f"{error.message}; wait_for_ready waits no longer than handshake_timeout={most:g} s for a server to "
                "connect to: start it within that time, or give a longer one"
            ) from None

    def _why_closed(self) -> str | None:
        """What calls under way are told when this is closed, if that is because the server has ended."""
        return None

    def _check_open(self) -> None:
        if self.closed:
            raise Cancelled(f"this channel to {self._shown} was closed")

    def _agree(self, cls: type | None) -> Agreement:
        """Makes the agreement of a new client of the class with the server."""
        self._check_open()
        agreement = self._compare(cls)
        if agreement.gives:
            self._be_called()
        return agreement

    def _compare(self, cls: type | None) -> Agreement:
        try:
            return self._agreements.add(cls, self._opened().description)
        except FailedPrecondition:
            # The description is up to date while the connection lives, so another try would fail alike.
            if self._opened().connected:
                raise
        self._reconnect()
        return self._agreements.add(cls, self._opened().description)

    def _be_called(self) -> None:
        """From now on the server may call objects that clients of this channel pass to it. Harmless when repeated."""
        need_threads("what a client passes")
        self._opened().serve_with(callback_server, self._settings.max_references)

    def _make_method(self, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        policies = self._settings.policies
        policy = policies.of(plan)
        calls = self._opened().calls(
            timeout=policy.timeout,
            wait_for_ready=policy.wait_for_ready,
            retry=None if policy.retry is None else policy.retry._plain(),
            budget=policies.budget,
        )
        called = self._callable(calls, plan, method)
        called = hedged(called, plan, policy.hedge, policies.budget, for_loop=self._for_loop)
        return intercept_client(self._settings.interceptors, plan, called, for_loop=self._for_loop)

    def _with_path(self, path: str) -> tuple[type, str]:
        """A class that has the method of gRPC with this path, and the method's name there."""
        if not speaks_grpc(self._url):
            raise ValueError(f"methods are called by their paths at grpc:// URLs, and not at {self._shown}")
        service, _, name = path.removeprefix("/").partition("/")
        if not (path.startswith("/") and service and name):
            raise InvalidArgument(
                f"{shown(repr(path), 200)} is no path of a method: write one such as /shop.v1.Shop/Find"
            )
        try:
            # All kinds of methods look alike to gRPC.
            return encoded_class(service, [EncodedMethod(name, streams_in=True, streams_out=True)]), name
        except ValueError as error:
            raise InvalidArgument(f"{path}: {error}") from None

    @abstractmethod
    def _callable(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        """The callable of a method, without interceptors."""

    @abstractmethod
    def _make_passages(self) -> Passages:
        """Makes the passages of connections; it must not refer to the channel."""

    @abstractmethod
    def _reconnect(self) -> None:
        """Connects anew.

        Raises:
            Unavailable: there is no server now.
        """

    @abstractmethod
    def close(self) -> Awaitable[None] | None:
        """Ends the connection; calls of all clients that are under way fail with :class:`~nearcall.Cancelled`, and so
        do all further calls. Harmless when repeated.
        """

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._url

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._opened().closed


class Channel(ChannelBase, ForThreads):
    """One connection to a server, for the clients of any number of its services.

    Use it in a ``with`` statement, or call :meth:`close`. Any number of threads may use it at once::

        with nearcall.Channel("shm://shop") as channel:
            basket = channel.client(Basket).service
            prices = channel.client(Prices).service
            basket.add("pen", prices.of("pen"))

    A connection that is lost is renewed by the next call, for all clients. A call that was under way when it was lost
    fails with :class:`~nearcall.Unavailable`, unless its method is marked :func:`~nearcall.idempotent`: then it is
    repeated. If the new server describes itself differently, each client's class is compared with it again; calls of
    methods that no longer fit fail one by one.

    Args:
        url: ``shm://name``, ``unix:///path``, ``tcp://host:port``, ``tls://host:port``, ``grpc://host:port``,
            ``http://host:port`` (Connect), ``inproc://name``, ``fd://N`` or ``stdio:``. Several hosts have
            commas between them: ``tcp://one:7000,two:7000``. A name in a directory of services is
            ``directory+tcp://host:port/name?key=value``, or ``directory+file:///path/name``.
        options: The options below, by name. They count for all clients of the channel.
        timeout: Seconds each call may take unless a surrounding ``nearcall.timeout`` is nearer; ``None``: for ever.
        spin: How long to spin for a reply before sleeping: ``"auto"`` measures and adapts, ``0`` sleeps at once,
            seconds set a fixed bound.
        max_message_size: Longest message received, bytes; 64 MiB.
        max_values: Values that a received message may hold, those in lists, dicts and objects included; not elements of
            arrays; 2,000,000.
        max_references: Objects that the server may hold references to at once, of those that this side passes; to pass
            one more fails with :class:`~nearcall.ResourceExhausted`; 10,000.
        ring_size: Size of each ring of a shared memory connection, bytes, a power of two up to 16 MiB; 256 KiB.
        handshake_timeout: Seconds that connecting may take; 5. A surrounding :class:`~nearcall.timeout` may end that
            sooner.
        wait_for_ready: Where there is no server, wait for one: here for at most ``handshake_timeout``, and in a call
            until its deadline. Otherwise both raise :class:`~nearcall.Unavailable` at once.
        balancing: Which servers are called where a URL lists several hosts, or a name has several addresses:
            ``"pick_first"``, the first that can be reached, until its connection is lost; ``"round_robin"``, all of
            them in turn, each over a connection of its own; ``"least_calls"``, the one of them with the fewest calls of
            this channel under way.
        retry: Which failed calls of idempotent methods are sent once more, as a :class:`~nearcall.Retry`; ``None``:
            those whose connection was lost, twice at the most.
        hedge: When a call of an idempotent method is sent once more although the first is still under way, as a
            :class:`~nearcall.Hedge`; ``None``: never.
        service_config: gRPC's service config, as JSON or what that is in Python: its timeouts, policies and balancing
            count as the options that say the same, and what has no counterpart is logged.
        proxy: A proxy to connect through by HTTP's CONNECT, as ``http://host:port``, whatever the host;
            ``"environment"``: as ``grpc_proxy``, ``https_proxy``, ``http_proxy`` and ``no_proxy`` say, and never for
            this machine; ``None``: none.
        oneway: What a one-way call does when the ring or the socket is full: ``"block"`` waits for room, until the
            call's deadline; ``"error"`` raises :class:`~nearcall.ResourceExhausted`; ``"drop"`` drops the call and
            counts it in :attr:`dropped`. The last two never wait.
        interceptors: Functions around every call, each ``f(call, proceed)`` with a :class:`~nearcall.ClientCall`; the
            first is the outermost.
        codec: How messages are written: at ``http://`` in Protobuf (``"protobuf"``) or in JSON (``"json"``); at
            nearcall's own URLs in msgpack (``"msgpack"``), or in JSON or as a :class:`~nearcall.ValueCodec` of yours
            says, if the server offers that. ``None``: Protobuf at ``http://``, and msgpack at nearcall's own.
        use_get: For ``http://``: call methods that are marked :func:`~nearcall.no_side_effects` by GET, so that caches
            may answer. Calls longer than 4 KiB are posted all the same.
        compression: For ``grpc://`` and ``http://``: compress what is sent, from 1 KiB, with ``"gzip"`` or ``"zstd"``.
            A server that cannot read it refuses every call; gRPC's and Connect's read gzip. What a server compresses is
            read whatever this says.
        allow_plaintext: Whether ``tcp://`` may lead to another machine: anybody on the way can read along, and
            pretend to be the server.
        tls: For ``tls://``: whom to trust if not the system's authorities, and the client's own certificate.
        nats: For ``nats://``: who this client is to the NATS server.
        allow_users: Users, by name or id, whose servers at ``unix://`` may be used, besides this process's user and
            root.
        allow_groups: Groups, by name or id, whose members' servers may be used, too.
        directory: For ``directory+`` URLs: the options of the connection to the directory, where they differ from
            these, such as ``{"interceptors": [nearcall.auth.token(...)]}``. Of these it has ``handshake_timeout``,
            ``proxy``, ``allow_plaintext``, ``tls``, ``nats``, ``allow_users`` and ``allow_groups``.

    Raises:
        Unavailable: no server listens there; the message says whether the name was never served or its server died.
        DeadlineExceeded: a server listens there, and has not answered within ``handshake_timeout``, or before the
            deadline of a surrounding :class:`~nearcall.timeout`.
        PermissionDenied: the server does not admit this user, or belongs to another user.
        Unauthenticated: one side refuses the other's certificate; the message says what to change.
        InvalidArgument: the URL or an option is malformed.
        TypeError: there is no such option.
    """

    def __init__(self, url: str, **options: Unpack[ChannelOptions]) -> None:
        super().__init__(url, "this client is for threads", options, for_loop=False)
        look_for_greenlets()
        self._connection = self._make_connection()
        try:
            with self._waiting():
                self._connection.connect()
        except BaseException:
            self._connection.close()
            self._resolve_no_more()
            raise

    def _opened(self) -> _core.Connection:
        return self._connection

    def _reconnect(self) -> None:
        self._connection.renew()

    @overload
    def client(self, service: Callable[..., OnlyAny]) -> Client[Any]: ...
    @overload
    def client(self, service: Callable[..., Interface]) -> OnlyForEventLoops: ...  # type: ignore[overload-overlap]
    @overload
    def client(self, service: Callable[..., T]) -> Client[T]: ...
    @overload
    def client(self, service: None = None) -> Client[Any]: ...
    def client(self, service: Callable[..., Any] | None = None) -> Client[Any] | OnlyForEventLoops:
        """A client of one service, over this connection. It costs no round trip, and no connection of its own.

        To compare what both sides declare takes some milliseconds for a service of many methods: make a client once,
        and not for each request. Closing it leaves the channel open. A client need not be closed: it ends with the
        channel.

        Args:
            service: The service's class or interface. Without one the client is dynamic: its methods come from the
                server's own description, and values are plain data.

        Raises:
            FailedPrecondition: the server's service differs; the message names the method, the parameter and both
                types.
            Unavailable: the connection was lost, and there is no server now.
            Cancelled: the channel is closed.
        """
        return Client(self, check_service(service, for_loop=False), owns_channel=False)

    def method(self, path: str) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
        """A method of gRPC by its path, such as ``/shop.v1.Shop/Find``, for programs that pass messages on as they are.

        Args:
            path: The path; whether the server has the method shows when it is called.

        Returns:
            A function from the messages of a call, one or many, to those of the answer. Other code writes and reads
            them.

        Raises:
            InvalidArgument: that can be the path of no method.
            ValueError: the channel does not speak gRPC.
        """
        cls, name = self._with_path(path)
        found: Callable[[Iterable[bytes]], Iterator[bytes]] = getattr(self.client(cls).service, name)
        return found

    def close(self) -> None:  # noqa: D102 - inherited
        self._connection.close(self._why_closed())
        self._resolve_no_more()

    def __enter__(self) -> Channel:
        self._check_open()
        return self

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}channel to {self._shown}>"

    def _callable(self, calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Callable[..., Any]:
        return cast("Callable[..., Any]", make_callable(calls, plan, method))

    def _make_passages(self) -> Passages:
        return Passages(partial(_object_callable, self._settings.interceptors), self._settings.max_values)


def _object_callable(
    interceptors: tuple[ClientInterceptor, ...],
    target: _core.Calls,
    plan: MethodPlan,
    method: _core.Method,
    for_loop: bool,
) -> Any:
    if for_loop:
        raise FailedPrecondition(
            f"{plan.full_name}(): an 'async def' method of an object that a client for threads has passed gets no "
            "references that it could await: use nearcall.aio, or write 'def'"
        )
    return intercept_client(interceptors, plan, make_callable(target, plan, method), for_loop=False)


# Callable, not type[T]: to type checkers a Protocol or an abstract class is no type[T], and interfaces are just those.
@overload
def connect(url: str, service: Callable[..., OnlyAny], **options: Unpack[ChannelOptions]) -> Client[Any]: ...
@overload
def connect(  # type: ignore[overload-overlap]
    url: str, service: Callable[..., Interface], **options: Unpack[ChannelOptions]
) -> OnlyForEventLoops: ...
@overload
def connect(url: str, service: Callable[..., T], **options: Unpack[ChannelOptions]) -> Client[T]: ...
@overload
def connect(url: str, service: None = None, **options: Unpack[ChannelOptions]) -> Client[Any]: ...
def connect(
    url: str, service: Callable[..., Any] | None = None, **options: Unpack[ChannelOptions]
) -> Client[Any] | OnlyForEventLoops:
    """Connects to a server and makes sure that it serves what the class says. The result is the only client of a
    :class:`Channel`, and closes that channel.

    Args:
        url: ``shm://name``, ``unix:///path``, ``tcp://host:port``, ``tls://host:port``, ``grpc://host:port``,
            ``http://host:port`` (Connect), ``inproc://name``, ``fd://N`` or ``stdio:``.
        service: The service's class or interface. Without one the client is dynamic: its methods come from the
            server's own description, and values are plain data.
        options: ``timeout``, ``spin``, ``max_message_size``, ``max_values``, ``max_references``, ``ring_size``,
            ``handshake_timeout``, ``wait_for_ready``, ``balancing``, ``retry``, ``proxy``, ``oneway``,
            ``interceptors``, ``compression``, ``allow_plaintext``, ``tls``, ``allow_users`` and ``allow_groups``, as
            for :class:`Channel`.

    A connection that is lost is renewed by the next call. A call that was under way when it was lost fails with
    :class:`~nearcall.Unavailable`, unless its method is marked :func:`~nearcall.idempotent`: then it is repeated.

    Raises:
        Unavailable: no server listens there; the message says whether the name was never served or its server died.
        DeadlineExceeded: a server listens there, and has not answered within ``handshake_timeout``, or before the
            deadline of a surrounding :class:`~nearcall.timeout`.
        FailedPrecondition: the server's service differs; the message names the method, the parameter and both types.
        PermissionDenied: the server does not admit this user, or belongs to another user.
        Unauthenticated: one side refuses the other's certificate; the message says what to change.
        InvalidArgument: the URL or an option is malformed.
        TypeError: the class is no service, or an interface for event loops, or there is no such option.
    """
    check_url(url)
    cls = check_service(service, for_loop=False)
    channel = Channel(url, **options)
    try:
        return Client(channel, cls, owns_channel=True)
    except BaseException:
        channel.close()
        raise


def check_service(service: object, *, for_loop: bool) -> type | None:
    """The class to connect with.

    Args:
        service: The class, or ``None``.
        for_loop: Whether the client is for an event loop.

    Raises:
        TypeError: ``service`` is no service, or an interface for the other kind of clients.
    """
    if service is None:
        return None
    if not isinstance(service, type):
        raise TypeError(f"connect with the service's class, not with {service!r}")
    plan_of(service)
    if not for_loop and only_for_loops(service):
        raise TypeError(
            f"{service.__name__} is an interface for event loops: use nearcall.aio there, and in a thread an interface "
            "without 'async'"
        )
    return service
