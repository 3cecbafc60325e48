"""The compiled core. Nothing here is for users: they see what ``nearcall`` builds on it, and the classes that
``nearcall`` exports.
"""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from inspect import Signature
from types import FrameType
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, final, type_check_only

from typing_extensions import Self, disjoint_base

from .call.compression import compression
from .call.metadata import metadata
from .codec.hashed import HashedKeys
from .codec.protobuf.messages import Message
from .metadata_pairs import MetadataPairs
from .server.entries import PathEntry
from .service.plan import MethodPlan

__all__ = [
    "DEFAULT_MAX_MESSAGE_SIZE",
    "DEFAULT_RING_SIZE",
    "PROFILED",
    "PUSHBACK",
    "ROUTE_SCHEMES",
    "SCHEMES",
    "VERSION",
    "AsyncUnary",
    "Attributes",
    "BoundMethod",
    "Buffer",
    "Call",
    "Calls",
    "Connection",
    "EarlyEnds",
    "EarlyLimits",
    "Elsewhere",
    "FittingEncoder",
    "HandlerTurn",
    "Health",
    "HealthMethod",
    "IntrospectionMethod",
    "LeftToDo",
    "Listeners",
    "Login",
    "LoopRequest",
    "LoopWork",
    "Method",
    "Oneway",
    "PendingCall",
    "ProtobufCodec",
    "ProtobufMessages",
    "References",
    "RequestStream",
    "RetryBudget",
    "RouteCodec",
    "RouteDispatch",
    "RouteEndpoint",
    "RouteInbox",
    "RouteMessage",
    "RouteNode",
    "RoutePending",
    "RoutePushed",
    "RouteWaiter",
    "RouteWork",
    "ServedObject",
    "Server",
    "StartedCall",
    "Stream",
    "Subscription",
    "Tls",
    "Topic",
    "Unary",
    "View",
    "Watch",
    "all_of_kinds",
    "check_keys",
    "confine",
    "current_call",
    "current_references",
    "dev_certs",
    "die_with_starter",
    "end_with",
    "enter_handler_loop",
    "install",
    "is_native",
    "leave_handler_loop",
    "memory_of",
    "named_servers",
    "note_block",
    "on_end",
    "pushback",
    "read_route_table",
    "refuse_in_handler_loop",
    "rest",
    "sandbox_names",
    "set_call_variables",
    "set_watch_of_started",
    "use_greenlets",
    "wait_for_started",
]

_D = TypeVar("_D")
_R = TypeVar("_R")
_M_co = TypeVar("_M_co", covariant=True)

DEFAULT_MAX_MESSAGE_SIZE: Final[int]
DEFAULT_RING_SIZE: Final[int]
SCHEMES: Final[Mapping[str, tuple[str, Literal["nearcall", "grpc", "http"], bool]]]
"""By scheme: the form of its URLs, what is spoken there, and whether it is encrypted."""
ROUTE_SCHEMES: Final[tuple[str, ...]]
"""The schemes of the URLs at which nodes can be."""
PUSHBACK: Final[str]
PROFILED: Final[bool]
"""Whether the compiler knew what usual work runs (``make profiled``). Other builds are slower."""
VERSION: Final[str]
"""Version of the library, which is Cargo's."""

def install(
    errors: Callable[
        [],
        tuple[
            Callable[[int, str, bytes, MetadataPairs | None], BaseException],
            Callable[[BaseException], tuple[int, str, bytes]],
            Callable[[str, object], BaseException],
        ],
    ],
) -> None:
    """Sets the function that gives ``make_error`` and ``describe_error``, which turn a status into an exception, and
    back, and ``explain_no_stream``, which makes the exception for a handler that returned no stream.

    The core calls ``errors`` once, when it first needs one of them. Only the first call of ``install`` counts.
    """

@final
class EarlyLimits:
    """Puts this process into control groups, in a thread, so that :func:`confine` need not wait for that."""

    def __new__(cls, *, memory: int | None, cpu_share: float | None, tasks: int | None) -> Self: ...

def confine(policy: object, early: EarlyLimits | None = None) -> list[tuple[str, str, str]]:
    """Confines this process for ever. Returns name, state and detail of each layer.

    ``early`` is used if it was made with the limits of the policy.

    Raises:
        RuntimeError: the process is not confined as the policy asks; it may be confined in part.
    """

def sandbox_names() -> tuple[list[str], list[str]]:
    """Names of all layers, in the order of their application, and the files of ``/proc`` that a policy may name."""

def set_call_variables(
    deadline: ContextVar[float | None],
    metadata: ContextVar[metadata | None],
    compression: ContextVar[compression | None],
    request: ContextVar[Any],
) -> None:
    """Names the variables that hold the values of the blocks around calls, and the call that a coroutine handler
    serves. Only the first call counts.

    The deadline is in seconds on the clock of ``time.monotonic``.
    """

def enter_handler_loop(running: AbstractEventLoop) -> None:
    """Called in an event loop's thread: a server runs coroutine handlers there from now on, and no call waits there."""

def leave_handler_loop(running: AbstractEventLoop) -> None:
    """Called there when a server runs them no longer."""

def refuse_in_handler_loop(what: str) -> None:
    """Raises in a thread that runs coroutine handlers: ``what`` would wait there.

    Raises:
        RuntimeError: this is such a thread.
    """

def note_block() -> None:
    """Called when a block around calls is entered. Until the first such block, no call reads the variables."""

@final
class Buffer:
    """Memory that peers over shared memory can map: it exports a writable buffer of ``nbytes`` bytes.

    Args:
        nbytes: Bytes.
        call: The call that is being served here, if there is one.

    Raises:
        OSError: the system has no descriptor or memory left, or cannot seal memory.
    """

    def __new__(cls, nbytes: int, call: Call | None) -> Buffer: ...

@final
class Attributes:
    """Attributes of objects of one class, each with the exact types that its values may have."""

    def __new__(cls, expected: Sequence[tuple[str, Sequence[type]]], /) -> Attributes: ...
    def fit(self, value: object, /) -> bool:
        """Whether an object has them all, and each is of such a type."""

    def fit_all(self, values: Iterable[Any], /) -> bool:
        """The same of each item. Raises what iterating over ``values`` raises."""

@final
class FittingEncoder:
    """An encoder that first checks whether attributes have the expected types.

    Args:
        encode: Encodes a value whose attributes have these types.
        otherwise: Encodes any other value.
        expected: The attributes: of the value (``None``), or of the item of a tuple.
    """

    def __new__(
        cls,
        encode: Callable[[Any], Any],
        otherwise: Callable[[Any], Any],
        expected: Sequence[tuple[int | None, Attributes]],
    ) -> FittingEncoder: ...
    def __call__(self, value: Any) -> Any:
        """The value, encoded."""

def is_native(value: Any) -> bool:
    """Whether a value consists of msgpack's own types: plain values, lists and dicts, no subclasses of them."""

def all_of_kinds(values: Iterable[Any], kinds: frozenset[type], /) -> bool:
    """Whether the exact type of each item is one of ``kinds``. Raises what iterating over ``values`` raises."""

def check_keys(body: bytes, hashed: HashedKeys) -> None:
    """Checks a message before it is decoded.

    Raises:
        ValueError: the keys of a dict or a set collide.
        RecursionError: the message is nested too deeply.
        MemoryError: there is no memory for the check.
    """

def memory_of(kind: Literal["number", "list", "set", "dict"], items: int = 0) -> int:
    """Bytes that a value of that kind takes at most: a set or a dict with room for so many items, which are not counted
    themselves.
    """

def current_call() -> Call | None:
    """The call that the calling thread serves."""

def current_references() -> References | None:
    """The references of the connection whose value the calling thread encodes or decodes, if that may hold any."""

def on_end(observer: Callable[[int], object]) -> None:
    """Calls ``observer`` with the status code of the call that this thread serves, once it has ended."""

@final
class Elsewhere:
    """A wait of a greenlet's, for another thread: calling it waits. It takes nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

def use_greenlets(find: Callable[[], Callable[[Elsewhere], object] | None]) -> None:
    """From now on, what waits leaves the other greenlets of its thread running.

    Args:
        find: Returns what calls a function in another thread, and lets the other greenlets of the calling thread run
            until that has returned; ``None`` if the thread can have none.
    """

def pushback(value: str) -> float:
    """After how many seconds a server wants a failed call to be sent again, from the value of the metadata
    ``PUSHBACK``; ``inf`` if it does not want that at all.
    """

def rest(wait: Callable[[float | None], bool], timeout: float | None) -> bool:
    """Calls ``wait(timeout)``, in which the calling thread rests: worker threads may keep the interpreter for some
    microseconds after a call as long as all other threads rest.
    """

def dev_certs(names: Sequence[str], days: int) -> tuple[str, str, str, str, str]:
    """PEM texts to try TLS out: an authority, a server's certificate for the names and its key, a client's and its key.

    They expire ``days`` days from now; a negative number makes expired ones.
    """

def named_servers() -> tuple[str, list[str]]:
    """Where ``shm://`` finds servers of this user, and their names in order, those of dead servers included.

    Raises:
        OSError: the directory cannot be made, read or trusted.
    """

def die_with_starter() -> None:
    """Has the system kill this process when the thread that started it ends, even if this process hangs."""

def end_with(socket: int, patience: float) -> None:
    """Ends this process when the other end of a socket is closed: by ``SIGTERM``, and by force after ``patience``
    seconds.

    The descriptor belongs to this function from now on. If ``patience`` is infinite, no force is used.
    """

@type_check_only
class _Notified(Protocol):
    """The methods of a future that the core uses."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...

@final
class EarlyEnds:
    """Watches calls, and reports those that nobody waits for any more although their handlers still run."""

    def __new__(cls) -> Self: ...
    def watch(self, call: Call, callback: Callable[[Callable[[], None]], object]) -> bool:
        """Watches a call until its handler has ended. ``False`` if it has ended already."""

    def next(self, seconds: float) -> tuple[Callable[[Callable[[], None]], object], LeftToDo] | None:
        """Waits for the next call that ends early.

        Returns its callback, and what keeps the call under way until the callback has run. ``None`` if no call was
        watched for ``seconds`` seconds.
        """

    @property
    def idle(self) -> bool:
        """Whether no call is watched, and no errand is left."""

@final
class LeftToDo:
    """Keeps a call under way although its handler may have ended, until ``done`` is called."""

    def done(self) -> None:
        """To be called when the callback has run."""

@final
class Call:
    """One call, as its handler sees it."""

    @property
    def method(self) -> str:
        """``"Service.method"``."""

    @property
    def peer(self) -> dict[str, Any]:
        """The caller: ``pid``, ``uid`` and ``gid``, or ``address``; with a certificate also ``subject``, ``names``."""

    @property
    def time_left(self) -> float | None:
        """Seconds until the caller stops waiting; ``None`` if it waits for ever."""

    compress: bool | None
    """Whether sent messages are compressed; ``None``: as the server's options say."""

    @property
    def received_compressed(self) -> bool:
        """Whether the message that was taken last came compressed."""

    @property
    def cancelled(self) -> bool:
        """Whether the caller gave the call up, or is gone."""

    @property
    def metadata(self) -> MetadataPairs:
        """The metadata that the caller sent with the arguments."""

    def belongings(self, make: Callable[[dict[str, Any]], _D]) -> _D:
        """The object that belongs to the caller's connection; ``make`` makes it, of the caller's identity, at the first
        call.
        """

    def introspect(self, method: IntrospectionMethod, after: int = 0, limit: int = 100) -> bytes:
        """The answer of that method of the server's own service to the caller, encoded; of connections, those whose
        numbers are greater than ``after``, at most ``limit``.
        """

    def send_initial(self, pairs: Sequence[tuple[str, bytes]]) -> None:
        """Sends metadata ahead of the result or the first item."""

    def add_trailing(self, pairs: Sequence[tuple[str, bytes]]) -> None:
        """Adds metadata that is sent with the end of the call."""

@final
class Health:
    """What a server tells health checks."""

    def __new__(cls, services: Sequence[str]) -> Health:
        """The health of these services, all of which serve at first."""

    def set(self, service: str, serving: bool) -> None:
        """Sets whether a service serves, and tells the clients that watch it."""

    def methods(self) -> list[HealthMethod]:
        """The handlers of ``Check``, ``Watch`` and ``List``."""

@final
class HealthMethod:
    """A method of the health service: a handler that needs no thread of Python, nor the interpreter."""

@final
class IntrospectionMethod:
    """A method of the server's own service: a handler that needs no thread of Python, nor the interpreter."""

    READ: Final[IntrospectionMethod]
    CONNECTIONS: Final[IntrospectionMethod]
    STOP: Final[IntrospectionMethod]

    def __int__(self) -> int: ...

@final
class Method:
    """A method, as the core uses it: everything a call needs, read once from the plan."""

    def __new__(
        cls,
        plan: MethodPlan,
        *,
        max_values: int,
        number: int = 0,
        make_error: Callable[[int, str, bytes, MetadataPairs | None], BaseException] | None = None,
        describe_error: Callable[[BaseException, Call], tuple[int, str, bytes]] | None = None,
        keeps: object = None,
    ) -> Method:
        """``number`` is the method's number in the server's description, for callers and for the methods of a
        :class:`ServedObject`. A server's own methods are numbered by their places.

        A client whose service declares exceptions gives its own ``make_error``; otherwise that of ``install`` is used.
        A server gives its own ``describe_error``, which is called with every exception of a handler. ``keeps`` is kept
        alive by the method: it is the object that gives the method its successors.
        """

    def succeed(self, successor: Method) -> None:
        """Later calls use ``successor``: the same method, as agreed on with the next server."""

    @property
    def name(self) -> str:
        """``"Service.method"``."""

    @property
    def path(self) -> str | None:
        """``"/package.Service/Method"``, if the method is called over gRPC or HTTP."""

@final
class ProtobufMessages:
    """The messages of a service, which refer to each other by their places.

    Args:
        messages: How each is encoded.
        error: Makes the exception for a value or a message that does not fit; takes a text and a path.

    Raises:
        ValueError: the core does not know what describes a message.
    """

    def __new__(cls, messages: Sequence[Message], error: Callable[[str, str], Exception]) -> ProtobufMessages: ...
    def codec(
        self, index: int, *, single: bool = False, format: Literal["binary", "json", "strict json"] = "binary"
    ) -> ProtobufCodec:
        """The codec of the message at a place.

        Args:
            index: The place.
            single: Whether the codec takes and gives a tuple that holds only the message's value.
            format: How the message is written. ``"strict json"`` refuses unknown names, and absent fields that have no
                default in Python.

        Raises:
            IndexError: there is no such message.
            ValueError: there is no such format.
        """

@final
class ProtobufCodec:
    """Encodes and decodes the values of one message. Both raise exceptions made by ``error``."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value."""

    def decode(self, body: bytes, max_values: int) -> Any:
        """The value of some bytes that hold at most ``max_values`` values."""

@disjoint_base
class Calls:
    """Where calls go: to what a server serves, under one policy, or to one object. Makes the callables of methods."""

    @property
    def closed(self) -> bool:
        """Whether no call can be made any more: the connection was closed, or that of the object is
        gone.
        """

    @property
    def connected(self) -> bool:
        """Whether there is a connection now. A lost one is renewed by the next call; ``True`` for an object, whose
        calls fail by themselves.
        """

    @property
    def patience(self) -> float:
        """Seconds that a call waits for a server that is not there, its deadline aside; ``inf`` for ever."""

    def time_left(self) -> float | None:
        """Seconds that a call made now may take; ``None`` for ever."""

    def unary(self, method: Method) -> Unary:
        """A callable for a method without streams."""

    def oneway(self, method: Method, *, for_loop: bool) -> Oneway:
        """A callable for a method that sends no reply. For a loop, the callable never connects."""

    def async_unary(self, method: Method) -> AsyncUnary:
        """A callable for a method without streams that returns an awaitable."""

    def open(self, method: Method, arguments: tuple[Any, ...] | dict[str, Any], *, for_loop: bool) -> Stream:
        """Begins a call with streams; the arguments as the plan's ``split`` returned them."""

    def check_loop(self) -> None:
        """Raises ``RuntimeError`` unless the running event loop is the one that the connection was given to."""

    def sent(self) -> None:
        """The event loop calls it when it has sent a one-way call."""

@final
class Connection(Calls):
    """A connection to a server. Any number of threads, or one event loop, may use it at once."""

    def __new__(
        cls,
        url: str,
        *,
        spin: float | Literal["auto"],
        ring_size: int,
        max_message_size: int,
        handshake_timeout: float,
        codec: Literal["protobuf", "json"],
        use_get: bool,
        compression: Literal["gzip", "zstd"] | None,
        allow_plaintext: bool,
        tls: Tls | None,
        nats: Login | None,
        allow_users: Sequence[int],
        allow_groups: Sequence[int],
        timeout: float | None,
        wait_for_ready: bool,
        balancing: Literal["pick_first", "round_robin", "least_calls"],
        proxy: tuple[str, int, str | None, Sequence[str] | None] | None,
        oneway: Literal["block", "error", "drop"],
        on_drop: Callable[[dict[str, int]], object],
        on_change: Callable[[str], object],
        make_passage: Callable[[References], object],
        resolve: Callable[[], list[str]] | None = None,
        explain: Callable[[str, bool], str | None] | None = None,
        shown: str | None = None,
        by_item: bool = False,
    ) -> Connection:
        """Does not connect yet.

        ``timeout`` is for a call, also for a call with streams; with ``by_item``, a call with streams has it until its
        next item.

        ``proxy`` is the proxy to connect through: host, port, the value of ``proxy-authorization``, and the hosts that
        are reached directly; ``None`` in place of these hosts if the proxy is for all, even for this machine.

        ``on_drop`` is called once in a while with the numbers of one-way calls that were dropped, by method.

        ``on_change`` is called with the description of a later server that describes itself differently; it gives the
        methods their successors, or raises an exception.

        ``make_passage`` makes the object that is ``References.held`` for a connection.

        ``resolve`` returns the URLs of the servers that there are now, for a URL that is only a name. It is called in
        any thread, may take any time, and raises if there is none.
        ``explain`` is called with the reason why there is no server, and whether that is because this was closed; it
        returns the text that users read in its place, or ``None``.
        ``shown`` is how errors name the server, if not by its URL.
        """

    @property
    def description(self) -> str:
        """The server's own description, JSON."""

    @property
    def url(self) -> str:
        """Where the server is."""

    @property
    def peer(self) -> dict[str, Any]:
        """The server: ``pid``, ``uid`` and ``gid``, or ``address``; with a certificate also ``subject``, ``names``."""

    @property
    def peers(self) -> list[dict[str, Any]]:
        """The same for all servers that are connected now."""

    @property
    def dropped(self) -> dict[str, int]:
        """Numbers of one-way calls that were dropped, by method."""

    @property
    def in_flight(self) -> int:
        """Calls under way."""

    def watch(self) -> list[int]:
        """The descriptors that the event loop is to poll for reading, besides those that it polls already: one for each
        present connection.
        """

    def on_readable(self, fileno: int) -> None:
        """To be called when that descriptor is readable."""

    def goes_on(self, fileno: int) -> bool:
        """Whether the loop is to go on polling it: the connection is not lost, and it is a present one or has calls
        under way.
        """

    def unwatch(self, fileno: int) -> None:
        """To be called when the loop has stopped polling it."""

    def on_idle(self) -> None:
        """The event loop calls it when it has run everything that was ready, and a call waits."""

    def use_loop(
        self,
        running: object,
        call_soon: Callable[..., object],
        on_idle: Callable[[], object],
        connect_again: Callable[[float, float, float | None, BaseException | None], Coroutine[Any, Any, None]],
        send_again: Callable[[Stream, float, float, float | None], object],
        follow: Callable[[], object],
    ) -> None:
        """Gives the connection to an event loop.

        ``running`` is the loop, ``call_soon`` is its method, and ``on_idle`` calls the method of that name.
        ``connect_again`` takes the seconds to wait first, those to wait for a server that is not there yet,
        those left for the call, and the exception to raise if there is no server; it returns a coroutine that
        connects. ``send_again`` takes a stream and the first three of these, and begins to send the stream again.
        ``follow`` makes the loop watch the present connections.
        """

    def serve_with(self, callback_server: Callable[[], Server], max_references: int) -> None:
        """From now on the server at the other end may call objects that this client passes to it.

        ``callback_server`` returns a server of this process, which receives on this and every later connection of the
        client, and runs those calls. It is called for each connection. The other end may hold ``max_references``
        objects at once. Never waits. Only the first call counts.
        """

    def connect(self) -> None:
        """Connects for the first time; blocks for at most ``handshake_timeout`` seconds."""

    def renew(self) -> None:
        """Renews a lost connection, as a call does; for threads."""

    def try_connect(self, patient: bool, slice: float) -> bool:
        """Goes on connecting for at most ``slice`` seconds. Returns whether there is a connection.

        Raises if the server cannot be reached; if ``patient``, only if that cannot change. With 0 seconds it never
        waits.
        """

    def check_pause(self) -> None:
        """Raises what a call that does not wait ends with in the pause after a failed attempt to connect.

        Never waits.
        """

    def close(self, why: str | None = None) -> None:
        """Ends the connection; calls under way fail with ``CANCELLED``, or with ``UNAVAILABLE`` and the reason."""

    def ping(self, timeout: float | None = None) -> float:
        """Seconds that a round trip takes which no handler sees."""

    def calls(
        self,
        *,
        timeout: float | None,
        wait_for_ready: bool,
        retry: tuple[int, float, float, float, Sequence[int]] | None,
        budget: RetryBudget | None,
    ) -> Calls:
        """Makes the callables of methods, under one policy.

        ``timeout`` is for each call, in seconds, in place of the client's. ``retry`` says which failed calls are sent
        again, as long as ``budget`` allows it: attempts, first and longest pause in seconds, the factor by which pauses
        grow, and statuses.
        """

@final
class RetryBudget:
    """What bounds the calls that a channel sends again, or more than once, while servers fail. It begins with
    ``max_tokens``; a failure takes one, and a success brings ``token_ratio`` back.
    """

    def __new__(cls, max_tokens: float, token_ratio: float) -> RetryBudget: ...
    def allows(self) -> bool:
        """Whether calls may be sent again: more than half of the tokens are left."""

    def succeeded(self) -> None:
        """A call has succeeded."""

    def failed(self) -> None:
        """A call has failed in a way that its policy covers."""

@disjoint_base
class ServedObject:
    """Runs the calls on objects of one class: each method under its own number.

    A method's handler is called with the object, then every parameter by position.
    """

    def __new__(cls, methods: Sequence[tuple[Method, Callable[..., Any]]]) -> Self: ...

@final
class References:
    """The objects that are passed over one connection by reference, in both directions.

    A new one is made each time it is asked for; those of the same connection are equal.
    """

    def give(self, object: object, served: ServedObject) -> int:
        """Counts one more reference to an object of this side that is about to be sent. Returns the object's number.

        The object is kept until the other side has released it. References given while a value is encoded are taken
        back if the message cannot be sent.
        """

    def take(self, id: int) -> None:
        """Notes that a reference was taken out of the message that is being decoded: the caller must release it.

        References in a message that were not taken when it is decoded are released then.
        """

    def mine(self, id: int) -> object:
        """This side's own object of that number, which came back; raises ``InvalidArgument`` if there is none."""

    def release(self, id: int, count: int) -> None:
        """Tells the other side that ``count`` references to its object were released here. Never waits, and never
        fails.
        """

    @property
    def alive(self) -> bool:
        """Whether the connection still exists."""

    @property
    def url(self) -> str:
        """Where the server is, or who the client is."""

    @property
    def description(self) -> str:
        """The description of the server at the other end, JSON; empty if the other end is a client."""

    @property
    def held(self) -> Any:
        """The object that the connection's owner keeps with it; ``make_passage`` makes it when it is first asked
        for.
        """

    def target(self, id: int, keeps: object) -> Calls:
        """The other side's object of that number, to be called. Its callables and their calls keep ``keeps`` alive."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class BoundMethod:
    """The base of the callables of methods. To ``inspect`` and ``help`` they look like methods."""

    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    @property
    def __signature__(self) -> Signature: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Self: ...
    def within(self, seconds: float) -> Self:
        """The same method, with ``seconds`` for each call in place of the client's timeout."""

    def for_copies(self) -> Self:
        """The same method for the copies of one call: each goes to another server, as long as there is one."""

    def time_allowed(self) -> float | None:
        """Seconds that a call may take which begins now; ``None`` if it may take any time."""

@final
class Unary(BoundMethod):
    """A method without streams, bound to a connection."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def start(self, *args: Any, **kwargs: Any) -> StartedCall[Any]:
        """Sends a call and does not wait for its reply, nor for room to send it."""

@final
class StartedCall(Generic[_R]):
    """A call that was sent, by :func:`nearcall.start`. It is given up if the last reference to this object is dropped
    before the call's end.

    Any number of threads may use it at once, any number of times.
    """

    def result(self, timeout: float | None = None) -> _R:
        """Waits for the outcome: returns the result, or raises what the call raises.

        Args:
            timeout: Seconds to wait for the reply; without, until the call's own deadline. When they are over the call
                goes on.

        Raises:
            TimeoutError: there is no reply yet.
            Cancelled: the call was given up.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the outcome: returns the exception that the call raises, or ``None``.

        Args:
            timeout: As for ``result``.

        Raises:
            TimeoutError: there is no reply yet.
            Cancelled: the call was given up.
        """

    def add_done_callback(self, function: Callable[[StartedCall[_R]], object]) -> None:
        """Calls ``function`` with this call when it has ended, however it has: at once if it has already, and else in a
        thread that waits for that. The call goes on until then, even if nothing else refers to it. What ``function``
        raises is logged.
        """

    def done(self) -> bool:
        """Whether the reply has arrived, the call's deadline has passed, or the call was given up. Never waits.

        If it is done, ``result`` does not wait, unless the call has failed and is sent once more.
        """

    def cancelled(self) -> bool:
        """Whether the call was given up."""

    def cancel(self) -> bool:
        """Gives the call up, also while another thread waits for it. ``False`` if the reply has arrived already, which
        is kept.
        """

def set_watch_of_started(watch: Callable[[StartedCall[Any], Callable[[StartedCall[Any]], object]], object]) -> None:
    """Sets what ``add_done_callback`` of started calls does, given the call and the function."""

def wait_for_started(calls: list[StartedCall[Any]], timeout: float | None = None) -> list[int]:
    """Waits until one of the calls has ended, for at most ``timeout`` seconds.

    Returns:
        The places of the calls that have ended; none if the time is over.
    """

@final
class Oneway(BoundMethod):
    """A method that sends no reply, bound to a connection."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def attempt(self, *args: Any, **kwargs: Any) -> bool:
        """For an event loop: calls if there is room to send. Returns whether there was."""

    def late(self) -> BaseException:
        """For an event loop: the exception for a call that found no room until its deadline."""

@final
class AsyncUnary(BoundMethod):
    """A method without streams, bound to an event loop's connection."""

    def __call__(self, *args: Any, **kwargs: Any) -> PendingCall: ...
    def start(self, *args: Any, **kwargs: Any) -> PendingCall:
        """The same, but the call is sent now. It is given up when the last reference to the result is dropped."""

@final
class PendingCall(Generator[Any, Any, Any]):
    """The coroutine of one call. The call is sent when it is first awaited, and given up when the coroutine is
    closed.
    """

    def __await__(self) -> PendingCall: ...
    def __iter__(self) -> PendingCall: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> None:
        """Gives the call up if it was sent."""

@final
class Stream:
    """A call under way whose arguments, result or both are streams."""

    def __iter__(self) -> Stream: ...
    def __next__(self) -> Any: ...
    def __enter__(self) -> Stream: ...
    def __exit__(self, *_error: object) -> None: ...
    # These two only say what to write instead. What they return is not awaited, so type checkers refuse 'async with'.
    def __aenter__(self) -> None: ...
    def __aexit__(self, *_error: object) -> None: ...
    def try_next(self, default: _D) -> Any | _D:
        """The next item of the server's stream if it has arrived, else ``default``; raises ``StopIteration`` at the
        end.
        """

    def send(self, item: Any) -> bool:
        """Sends an item, waiting for the server to take earlier ones. ``False`` if the call has ended."""

    def try_send(self, item: Any) -> bool | None:
        """Sends an item: ``True``; ``False`` if the call has ended, ``None`` if there is no room now."""

    def end(self) -> None:
        """Ends the client's stream: it is complete."""

    def result(self) -> Any:
        """Waits for the result of a call of which only the arguments are a stream."""

    def try_result(self, default: _D) -> Any | _D:
        """That result if it has arrived, else ``default``; raises ``StopIteration`` if the call was given up."""

    def notify(self, future: _Notified, *, sender: bool) -> None:
        """Sets the future's result when there is news of this call; for a sender, items that arrive do not count."""

    def time_left(self) -> float | None:
        """Seconds that a wait which begins now may take; ``None`` if there is no limit."""

    def check_deadline(self, waited: bool) -> None:
        """Gives the call up and raises if its deadline has passed, or if a wait took as long as it may."""

    def close(self) -> None:
        """The same as ``cancel``, as iterators call it."""

    def cancel(self) -> None:
        """Gives the call up. Harmless when it has ended."""

    def send_again(self) -> bool:
        """For an event loop that has connected anew: sends a call again that the server has refused.

        ``False`` if the new connection is lost already.
        """

    def fail(self, failure: BaseException) -> None:
        """For an event loop: ends the call, which cannot be sent again, with this exception."""

@final
class Listeners:
    """Sockets that clients connect to: bound before a fork, used after it."""

    def __new__(
        cls,
        *,
        allow_plaintext: bool,
        tls: Tls | None,
        nats: Login | None,
        allow_users: Sequence[int],
        allow_groups: Sequence[int],
        sockets: Sequence[int],
    ) -> Listeners: ...
    def bind(self, url: str) -> str:
        """Listens at one more URL; returns the URL with the port that the system chose."""

    def left(self) -> list[str]:
        """The addresses of the sockets that were passed and that no URL has used."""

    def filenos(self) -> list[int]:
        """The descriptors to poll for clients, in the order in which they were bound."""

    def accept(self, index: int) -> int | None:
        """The socket of the next client of one listener, for another process to serve; the socket belongs to the
        caller.
        """

    def use_channels(self, channels: Sequence[int], returned: int) -> None:
        """For a process that gets its clients from another one: takes clients that come through these channels.

        There is one channel for each listener, whose own socket is closed here. A client comes as a descriptor beside
        one byte. ``returned`` is an eventfd that counts the clients that have gone. All these descriptors belong to the
        listeners from now on.
        """

    def close(self) -> None:
        """Closes the sockets that are left. Other servers can then bind the URLs that this process itself had bound."""

@final
class Server:
    """A server of some methods, at any number of URLs."""

    def __new__(
        cls,
        methods: Sequence[tuple[Method, Callable[..., Any] | IntrospectionMethod | HealthMethod | None]],
        description: str,
        *,
        measured: Sequence[tuple[str, str] | None],
        spin: float | Literal["auto"],
        ring_size: int,
        max_message_size: int,
        handshake_timeout: float,
        compression: Literal["gzip", "zstd"] | None,
        max_concurrency: int,
        max_pending: int,
        max_streams: int,
        max_memory: int,
        max_references: int,
        make_client: Callable[[dict[str, Any]], object],
        on_arrival: Callable[[Any], object] | None,
        on_departure: Callable[[Any], object],
        departures: bool,
        make_passage: Callable[[References], object],
        on_release: Callable[[Any], object] | None = None,
        paths: dict[str, dict[str, PathEntry]] = ...,
        origins: Sequence[str] = ...,
        max_connection_age: float | None = None,
        max_connection_age_grace: float = 0.0,
    ) -> Server:
        """Methods with their handlers, in the order of the description; a handler takes every parameter by position.
        ``None`` stands for the handler of a method that is called on objects only.

        Methods are measured for which ``measured`` has a name and a kind; calls of one name are counted together.
        ``make_client`` takes a client's identity, and makes the object that belongs to the client. ``on_arrival`` is
        called with that object before the client's first call, ``on_departure`` after its last, if the object was made
        or ``departures`` is true. ``on_release`` is called with an object that was passed to a client when the client
        has released it, or is gone, after the last call of the object.

        ``paths`` are the methods that are called over HTTP, by their paths, for each codec. ``origins`` are the
        origins of web pages that may call.
        """

    def listen(self, listeners: Listeners) -> None:
        """Serves the clients of these listeners, which belong to the server from now on."""

    def work(
        self, spawn: Callable[[], object], log: Callable[[bool, str], object], deserted: Callable[[], object]
    ) -> None:
        """Serves on the calling thread until the server stops or does not need this thread any more.

        ``spawn`` starts another thread that calls this; ``log`` takes whether a line is a warning, and the line;
        ``deserted`` is called when all clients are gone and none can come.
        """

    def stop(self, grace: float, in_hook: bool) -> bool:
        """Lets calls under way finish for at most ``grace`` seconds, or until a signal handler raises, and then raises
        the same. Returns whether all have finished.

        ``in_hook``: the caller is itself a hook of a session, or the end of a released object, and is not waited for.
        """

    def close(self) -> None:
        """Closes all connections. Departures of clients, and released objects, are still to be handled."""

    def end_departure(self) -> bool:
        """Handles one departure of a client, or one released object, that no worker thread has handled. Returns whether
        there was one.
        """

    def departures_ended(self) -> bool:
        """Whether all of these have been handled, and no thread is handling one, not counting the hook that stops the
        server.
        """

    def loop_fileno(self) -> int:
        """The descriptor that the event loop of the asynchronous handlers polls for reading."""

    def use_loop(self, running: object) -> None:
        """Names that event loop: its handlers may call objects of clients."""

    def poll_fileno(self) -> int:
        """The descriptor that the loop polls while ``next_for_loop`` says so."""

    def changed(self) -> list[int]:
        """Keys of that loop's requests for which something has changed; when the first descriptor is readable."""

    def watch_loop(
        self, limit: float, held_up: Callable[[float, bool], object], turned: Callable[[float], object]
    ) -> None:
        """Watches that loop until ``end_watch``. Calls ``held_up`` when it has not turned for ``limit`` seconds, with
        for how long and whether it still does not; then ``turned`` when it turns again, with for how long it had not.
        """

    def end_watch(self) -> None:
        """Ends ``watch_loop``."""

    def statistics(self) -> bytes:
        """What ``nearcall.introspection.Statistics`` is made of, in msgpack: for processes that serve with this one."""

    def connections(self, after: int) -> bytes:
        """What lists of ``nearcall.introspection.ConnectionStatistics`` are made of, in msgpack: of the first
        connections whose numbers are greater than ``after``, as many as are shown at once.
        """

    def watch_statistics(self, begins: bool) -> None:
        """Such a process begins to watch, or ends."""

    def set_place(self, number: int, count: int) -> None:
        """This is one of so many processes that serve together. Only the first call counts."""

    def work_in_loop(self) -> LoopWork:
        """What the loop does for a call of a thread counts as a call in the loop while the result lives."""

    def next_for_loop(self, runner: _Runner, may_spin: bool) -> HandlerTurn | Watch:
        """A turn that begins with the next request of that loop, for a task. If there is none, where to hear of the
        next one. With ``may_spin``, for when nothing else is under way, it may take 100 µs.
        """

@final
class Login:
    """Who this process is to the servers of ``nats://``: nothing, or the name of a kind of proof and its values."""

    def __new__(cls, proof: Sequence[str], *, tls: Tls | None, inbox: str) -> Login: ...

@final
class Tls:
    """The certificates and keys of one side of ``tls://``, read and checked. Each text comes with its name for
    messages.
    """

    @staticmethod
    def client(
        *,
        ca: tuple[str, bytes] | None,
        cert: tuple[str, bytes] | None,
        key: tuple[str, bytes] | None,
        server_name: str | None,
    ) -> Tls:
        """For a client. Without ``ca`` the system's authorities are trusted."""

    @staticmethod
    def server(*, cert: tuple[str, bytes], key: tuple[str, bytes], client_ca: tuple[str, bytes] | None) -> Tls:
        """For a server. With ``client_ca`` every client must show a certificate."""

@final
class RequestStream:
    """The client's stream, as a handler in a thread sees it."""

    def __iter__(self) -> RequestStream: ...
    def __next__(self) -> Any: ...

@type_check_only
class _Runner(Protocol):
    """What a turn needs of the loop's part in Python. All of it is called in the loop's thread."""

    def turned(self, watch: Watch | None, waits: bool) -> None:
        """The turn has made its first step: it is over, or a handler ``waits``. ``watch`` is as from
        ``next_for_loop``, if that found no further request; ``None``: there may be one, for another turn.
        """

    def go_on(self, request: LoopRequest, begun: Awaitable[object]) -> Coroutine[Any, Any, None]:
        """What ends the call of a handler without streams that waits."""

    def run_stream(self, request: LoopRequest) -> Coroutine[Any, Any, None]:
        """What runs a handler with a stream, and ends its call."""

    def awaited(self, work: Awaitable[object]) -> Coroutine[Any, Any, object]:
        """A coroutine of something else that can be awaited."""

    def rest(self, handling: Coroutine[Any, Any, object], awaited: object) -> Awaitable[object]:
        """What is awaited for the rest of a coroutine that has made its first step, and waits for ``awaited``."""

    def ended(self, result: object, error: BaseException | None = None) -> Awaitable[object]:
        """The same if it has ended."""

@final
class Watch:
    """Where an event loop hears of the next request."""

    CONNECTIONS: Watch
    """At ``Server.poll_fileno``: the loop receives."""
    QUEUE: Watch
    """At ``Server.loop_fileno``: a worker receives, and tells the loop."""

@final
class LoopWork:
    """Something that the event loop does for a call of a thread."""

@final
class HandlerTurn(Coroutine[Any, Any, None]):
    """The coroutine of a task that runs handlers: one after the other while they end without waiting and leave the task
    as it was, and from then on the one that waits.
    """

    __name__: str
    __qualname__: str

    @property
    def is_new(self) -> bool:
        """Whether it has not begun."""

    def fail(self, exception: BaseException) -> None:
        """No task could be made of it: its first call ends with that exception. Does nothing once it has begun."""

    @property
    def cr_running(self) -> bool: ...
    @property
    def cr_suspended(self) -> bool: ...
    @property
    def cr_await(self) -> Any: ...
    @property
    def cr_frame(self) -> FrameType | None: ...
    def __await__(self) -> Any: ...
    def __iter__(self) -> HandlerTurn: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> None: ...

@final
class LoopRequest:
    """One request for a coroutine handler."""

    @property
    def index(self) -> int:
        """The method's number."""

    @property
    def target(self) -> tuple[Any, ServedObject] | None:
        """The object that is called, and its table of methods; ``None`` if a service is called."""

    @property
    def key(self) -> int:
        """The key of this request in ``Server.changed``; 0 if nothing can change for it."""

    @property
    def time_left(self) -> float | None:
        """Seconds until the caller stops waiting; ``None`` if it waits for ever."""

    def call(self) -> Call:
        """The call, for ``nearcall.context()``."""

    @property
    def cancelled(self) -> bool:
        """Whether the client gave the call up, or is gone."""

    def on_end(self, observer: Callable[[int], object]) -> bool:
        """Calls ``observer`` with the status code of this call, once it has ended. ``False``: it is over already."""

    def arguments(self) -> tuple[Any, ...]:
        """Every argument in order but the stream. To be called once."""

    def try_next(self, default: _D) -> Any | _D:
        """The next item of the client's stream if it has arrived, else ``default``; raises ``StopAsyncIteration`` at
        the end.
        """

    def try_send(self, item: Any) -> bool | None:
        """Sends an item: ``True``; ``False`` if the client gave the call up, ``None`` if there is no room now."""

    def reply(self, result: Any) -> bool:
        """Ends the call with a result. ``False``: the client does not read; try again when something has changed."""

    def end(self) -> None:
        """Ends the call without an error, after its items."""

    def fail(self, exception: BaseException) -> None:
        """Ends the call with an exception."""

    def fail_late(self) -> None:
        """Ends the call because its deadline has passed."""

    def subscribe(self, subscription: Subscription) -> None:
        """Called if the handler has returned a subscription: a topic goes on with the call, and :meth:`forget` does
        nothing.

        Raises:
            TypeError: items of the method cannot be sent to many.
        """

    def forget(self) -> None:
        """Called when the call has ended: nothing more is received for it, and it no longer counts as under way."""

    def finish(self) -> None:
        """Called when the handler has ended: as :meth:`forget`, and from now on this keeps nothing of the client. Only
        ``key``, ``cancelled``, ``time_left``, ``call`` and ``on_end`` can still be asked.
        """

@final
class Topic:
    """Where items are published."""

    def __new__(cls, *, max_buffer: int, drops: bool, keeps_last: bool) -> Topic: ...
    def publish(self, item: Any) -> int:
        """Sends an item to all subscribers. Returns how many there are. Waits for none of them."""
    def skip(self, count: int) -> None:
        """So many items, of an unknown number if it is 0, were lost before they came here."""

    def close(self) -> None:
        """Ends all streams without an error. Harmless when repeated."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def subscribers(self) -> int:
        """How many subscribers there are."""

@disjoint_base
class Subscription:
    """What a method returns to stream a topic's items to its caller."""

    def __new__(cls, topic: Topic) -> Self: ...

@final
class View:
    """A received buffer, or a part of it; the object behind a received ``memoryview``."""

@final
class RouteCodec:
    """Encodes and decodes the payloads of one type: as the result of a method that returns it."""

    def __new__(cls, method: Method, explain: Callable[[BaseException], BaseException]) -> RouteCodec:
        """``explain`` makes the exception for a value or payload that does not fit, of the one that says why."""
    def encode(self, value: Any) -> bytes:
        """A value as the payload of a message."""
    def decode(self, payload: bytes) -> Any:
        """The value of a payload."""

@disjoint_base
class RouteMessage(Generic[_M_co]):
    """A message that has arrived."""

    @property
    def type(self) -> int:
        """The message's type, a number."""
    @property
    def subscription(self) -> int:
        """Its subscription; -1 if it has none."""
    @property
    def transaction(self) -> bytes:
        """The number that a message and the reply to it share; empty if it has none."""
    @property
    def entity(self) -> str:
        """The managed entity that the message concerns; empty if it names none."""
    @property
    def source(self) -> str:
        """The name of the node that has sent it."""
    @property
    def address(self) -> str:
        """Where that node takes replies; empty if it takes none."""
    @property
    def trace(self) -> bytes:
        """Data that travels along for tracing; a reply carries it back."""
    @property
    def payload(self) -> bytes:
        """Its payload, as bytes of this process's own."""
    @property
    def view(self) -> memoryview:
        """Its payload where it lies: over shared memory a long one is not copied. Its memory goes back to the sender
        when the message and the last view of it are gone.
        """
    @property
    def value(self) -> _M_co:
        """Its payload as an object of the type that is bound to the message's type, or that the handler asks for."""
    def reply(self, payload: Any = ..., *, type: int | None = None, timeout: float | None = None) -> Any:
        """Sends a message back to the sender, with the same transaction number. That needs no table."""
    def _settle(self, handled: bool) -> None:
        """Says of a message that was kept for this node whether it was handled; if not, it comes again. The first word
        counts.
        """
    def __len__(self) -> int:
        """Bytes of the payload."""
    def __bool__(self) -> bool: ...
    def __class_getitem__(cls, item: Any) -> Any: ...

@final
class RouteInbox:
    """The handler of the method that takes messages."""

@final
class RouteDispatch:
    """The handler of the method that takes messages, for a node with handlers: the thread that has received a message
    calls the one for its type. Those that come without a call wait in the inbox for threads of their own.
    """

    def work(self, most: int) -> None:
        """Handles messages of the inbox, of which it takes ``most`` at once, until nothing more will come. For a thread
        of its own.
        """

@final
class RouteEndpoint:
    """An endpoint of a node."""

    @property
    def name(self) -> str: ...
    def is_connected(self) -> bool:
        """Whether there is a connection."""
    def counts(self) -> tuple[int, int, int, int, int, int, int, bool, str | None]:
        """Messages sent, failed for good, refused for want of room, dropped, handed on to other members of the group,
        and in the queue; the bytes of these; whether it is connected; and why not.
        """

@final
class RouteWork:
    """What a thread of its own has to do for a node."""

    @property
    def name(self) -> str:
        """A name for the thread."""
    def run(self) -> None:
        """Does it, until the node is closed."""

@final
class RoutePushed:
    """Tables that a route manager of RMR pushes in pieces."""

    def __new__(cls) -> RoutePushed: ...
    def take(self, payload: bytes) -> list[tuple[str, str | None]]:
        """Takes a message's payload. Returns, for each table that is whole now, its text and no problem; and for each
        that cannot be used an empty text, and what the manager is told.
        """
    @staticmethod
    def answer(text: str, problem: str | None = None) -> str:
        """What the manager is told of a table; ``problem`` is why it is not used."""

@final
class RouteWaiter:
    """One who waits for a reply."""

    @property
    def transaction(self) -> bytes: ...
    def take(self) -> RouteMessage[Any] | None:
        """The reply; ``None`` if none has come. Raises if none will come."""
    def ends_in(self) -> float | None:
        """Seconds until it is certain that no reply will come; ``None`` if that is not known."""
    def wait(self, timeout: float | None) -> RouteMessage[Any] | None:
        """Waits for the reply for at most ``timeout`` seconds; ``None`` if none has come. Raises if none will
        come. Call this once.
        """

@final
class RoutePending:
    """A message that has no room yet, in an event loop."""

    def attempt(self) -> bool:
        """Tries again. Whether everything is done. To be called once before anybody waits for the bell."""
    def late(self) -> BaseException | None:
        """The exception for giving up, which is counted."""

def read_route_table(text: str, *, toml: bool) -> tuple[str, int, list[str], str]:
    """Reads a table. Returns its id, the number of its entries, its endpoints, and its text as RMR has it."""

@final
class RouteNode:
    """Sends and takes messages."""

    def __new__(
        cls,
        name: str,
        when_full: str,
        queue: int,
        rmr: tuple[int, bool, bool, bool, bool],
        dial: Callable[[str], Connection],
        start: Callable[[RouteWork], None],
        prepare: Callable[[Any, Any], tuple[int, Any]],
        reply: Callable[[RouteMessage[Any], Any, int | None, float | None], object],
        codec_of: Callable[[int], RouteCodec],
    ) -> RouteNode:
        """``when_full`` is what becomes of a message when ``queue`` bytes wait for its endpoint. ``rmr`` says, of
        programs of RMR, how many bytes their longest message has, whether they may be on other machines, whether the
        node takes other messages than replies from them, whether one of them may push tables, and whether ``host:port``
        alone is one. ``dial`` makes a connection to an endpoint of some name; ``start`` starts a thread that does some
        work; ``prepare`` makes a type and a buffer of a type and a payload that are something else; ``reply`` is called
        with a message, a payload, a type and a timeout; ``codec_of`` returns what decodes payloads of a type, or
        raises.
        """
    def inbox(self) -> RouteInbox:
        """The handler of the method that takes messages, for a node that receives them one by one."""
    def dispatch(
        self,
        unhandled: Callable[[RouteMessage[Any]], object],
        failed: Callable[[str, RouteMessage[Any], BaseException], object],
        threads: int,
    ) -> RouteDispatch:
        """The same for a node that has handlers called. ``unhandled`` is called with messages of other types,
        ``failed`` with the name of a handler, a message, and what the handler has raised. So many ``threads`` run
        handlers.
        """
    def handle(self, kind: int, function: Callable[..., object], codec: RouteCodec | None, name: str) -> None:
        """Gives messages of a type to a function. ``codec`` decodes their payloads, if they have values."""
    def set_address(self, name: str, address: str, shared: Sequence[str]) -> None:
        """Sets its name, and where this node takes replies; ``shared`` is how addresses begin for which it has to be
        there itself.
        """
    def listen_rmr(self, place: str) -> str:
        """Takes messages of RMR's programs from now on at ``host:port``. Returns that with the port that the system
        chose, if it was 0.
        """
    def take_durable(self, url: str, group: str) -> None:
        """Takes messages that a NATS server keeps from now on, as a member of a group."""
    def set_rmr_sender(self, source: str, source_address: str) -> None:
        """Sets where this node takes messages of RMR's programs, as it tells them: by name and by address."""
    def rmr_counts(self) -> tuple[int, int, int]:
        """Connections with RMR's programs, those that were closed because the other side broke a rule, and those that
        were refused because there were too many.
        """
    def install(self, text: str, names: list[str], *, toml: bool, grace: float, may_wait: bool) -> None:
        """Puts a table in force: RMR's text, or TOML. ``names`` are this node's. What is queued for endpoints that the
        table no longer names is still sent for at most ``grace`` seconds. Unless it ``may_wait``, new endpoints are not
        given the time to connect first.
        """
    def table(self) -> tuple[str, str] | None:
        """The table in force in RMR's text, with its id."""
    def send(
        self,
        type: Any,
        payload: Any = None,
        *,
        subscription: int = ...,
        transaction: bytes | None = None,
        entity: str = "",
        trace: bytes | None = None,
        to: str | None = None,
        timeout: float | None = None,
        for_loop: bool = False,
    ) -> RoutePending | None:
        """Sends a message to the node at ``to``, or else where the table says. Waits for room for at most ``timeout``
        seconds; for an event loop not at all, and returns what is left to be done if there is no room.
        """
    def reply(
        self,
        message: RouteMessage[Any],
        type: Any,
        payload: Any,
        *,
        timeout: float | None = None,
        for_loop: bool = False,
    ) -> RoutePending | None:
        """Sends a reply to the sender of a message, in the same way."""
    def expect(self, transaction: bytes | None = None, *, for_loop: bool = False) -> RouteWaiter:
        """Begins to wait for the reply to a message with this transaction number, or a new one."""
    def bell_fileno(self) -> int:
        """For an event loop: the descriptor that is readable when there may be room, and when replies have come."""
    def rung(self) -> list[bytes]:
        """For an event loop, when that is readable: the transaction numbers of the calls whose replies have come."""
    def is_over(self) -> bool:
        """Whether nothing more will come."""
    def receive(self, most: int, timeout: float | None) -> list[RouteMessage[Any]]:
        """The next messages, at most ``most``. Waits for the first for at most ``timeout`` seconds."""
    def receive_table(self, timeout: float | None) -> RouteMessage[Any] | None:
        """The next message with records of a table that a route manager of RMR has pushed; ``None`` if none comes
        within ``timeout`` seconds, or the node takes no more messages.
        """
    def fileno(self) -> int:
        """The descriptor that an event loop polls for reading."""
    def open(self, name: str) -> RouteEndpoint:
        """The endpoint of that name, which connects from now on, whether the table names it or not."""
    def counts(self) -> tuple[int, int, int, int]:
        """Messages taken, waiting and malformed, and those that no entry of the table took."""
    def endpoints(self) -> tuple[list[RouteEndpoint], tuple[int, int, int, int, int, int, int, int]]:
        """All endpoints in use; and of those that have left, how many they are, and what they have done together: the
        first seven of ``RouteEndpoint.counts``.
        """
    def is_ready(self) -> bool:
        """Whether a table is in force, and all its endpoints are connected."""
    def take_no_more(self) -> None:
        """Takes no more messages. Those that wait can still be received."""
    def close(self, grace: float) -> None:
        """Sends nothing more but what is queued, for at most ``grace`` seconds."""
    def end(self) -> None:
        """Closes the sockets that are left, once nothing more is to be sent."""
