"""Interceptors: the user's functions around every call, at the client or at the server.

Without interceptors a call runs no code of this module.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from .._core import Subscription
from ..codec.explain import explain_no_stream
from ..errors import Internal, RpcError
from ..metadata_pairs import Metadata, MetadataPairs
from ..options.checked import with_option
from ..service.implementing import by_position
from ..service.outward import dressed
from ..service.plan import BIDI_STREAM, SERVER_STREAM, UNARY, MethodPlan
from ..types.hints import describe_value
from .around import wrapped
from .context import Context, context
from .metadata import metadata
from .variables import current_metadata
from .wrong_with import stream_in_thread

__all__ = [
    "CallInfo",
    "Chain",
    "ClientCall",
    "ClientInterceptor",
    "InterceptedReplies",
    "Proceed",
    "ServerCall",
    "ServerInterceptor",
    "check_call",
    "check_interceptors",
    "intercept_client",
    "intercept_handler",
    "intercept_method",
    "interceptors_that_wait",
    "is_awaited",
]

Proceed: TypeAlias = "Callable[[Any], Any]"
"""Calls the next interceptor, or at last the method itself. Takes the call, returns the result."""
Function: TypeAlias = "Callable[..., Any]"
Across: TypeAlias = "Callable[..., Proceed]"
"""``across(interceptor, proceed, streams=...)``: an ``async def`` interceptor as a step around an ordinary handler."""


class CallInfo:
    """One call, as an interceptor sees it; a :class:`ClientCall` or a :class:`ServerCall`."""

    __slots__ = ("args", "kind", "kwargs", "method")

    method: str
    """``"Calculator.add"``."""
    kind: str
    """``"unary"``, ``"server_stream"``, ``"client_stream"``, ``"bidi_stream"`` or ``"oneway"``."""
    args: tuple[Any, ...]
    """The arguments by position, a stream to the server among them; may be replaced."""
    kwargs: dict[str, Any]
    """The arguments by name; may be changed and replaced."""

    def __init__(self, method: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.method = method
        self.kind = kind
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        # Without the arguments: they may be long, and secret.
        return f"<{type(self).__name__} of {self.method}>"


class ClientCall(CallInfo):
    """One call that is about to be sent."""

    __slots__ = ("metadata",)

    metadata: dict[str, str | bytes]
    """Metadata to send besides that of ``nearcall.metadata`` blocks; empty at first, to be added to."""

    def __init__(self, method: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(method, kind, args, kwargs)
        self.metadata = {}


class ServerCall(CallInfo):
    """One call that has arrived, with its arguments decoded."""

    __slots__ = ("_target", "context")

    context: Context
    """The call's context: the caller, its metadata, the deadline."""

    def __init__(
        self, method: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], target: tuple[object, ...] = ()
    ) -> None:
        super().__init__(method, kind, args, kwargs)
        self.context = context()
        self._target = target


ClientInterceptor: TypeAlias = "Callable[[ClientCall, Proceed], Any]"
"""A function around every call of a client."""
ServerInterceptor: TypeAlias = "Callable[[ServerCall, Proceed], Any]"
"""A function around every call at a server."""


def _takes_a_call(interceptor: Callable[..., object]) -> bool:
    try:
        inspect.signature(interceptor).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        pass  # a function written in C has no signature to look at
    return True


def check_interceptors(interceptors: Sequence[Any], synchronous: str | None = None) -> tuple[Any, ...]:
    """Interceptors as given, if they can work.

    Args:
        interceptors: The first is the outermost.
        synchronous: Why nobody awaits an ``async def`` interceptor; ``None`` if it is awaited.

    Raises:
        TypeError: an interceptor is no function, or is a coroutine function where nothing awaits it.
    """
    if not isinstance(cast(object, interceptors), Iterable):
        todo = ": write [...] around it" if callable(interceptors) else ""
        problem = f"interceptors must be a list of functions, not {interceptors!r}{todo}"
        raise with_option(TypeError(problem), "interceptors")
    checked = tuple(interceptors)
    for interceptor in checked:
        if not callable(interceptor):
            raise with_option(
                TypeError(f"interceptors must be a list of functions, and {interceptor!r} is none"), "interceptors"
            )
        name = getattr(interceptor, "__name__", type(interceptor).__name__)
        if not _takes_a_call(interceptor):
            what = f"an interceptor takes (call, proceed), and {name} does not"
            raise with_option(TypeError(f"{what}; if it makes interceptors, write {name}()"), "interceptors")
        if synchronous is not None and is_awaited(interceptor):
            raise with_option(
                TypeError(f"the interceptor '{name}' is asynchronous, and {synchronous}: write it with 'def'"),
                "interceptors",
            )
    return checked


def is_awaited(interceptor: Any) -> bool:
    """Whether an interceptor is ``async def``, or an asynchronous generator."""
    called = getattr(interceptor, "__call__", None)  # noqa: B004 - an object may have an asynchronous one
    return any(
        check(function)
        for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        for function in (interceptor, called)
    )


def intercept_client(
    interceptors: tuple[ClientInterceptor, ...], plan: MethodPlan, function: Function, *, for_loop: bool
) -> Function:
    """A method's callable with interceptors around it; the callable itself if there are none."""
    function = wrapped(plan, function, for_loop=for_loop)
    if not interceptors:
        return function
    streams = plan.kind in (SERVER_STREAM, BIDI_STREAM)

    def send(call: Any = None) -> Any:
        check_call(call)
        if not call.metadata:
            return function(*call.args, **call.kwargs)
        with _Added(call.metadata):
            return function(*call.args, **call.kwargs)

    async def send_in_loop(call: Any = None) -> Any:
        check_call(call)
        if not call.metadata:
            return await function(*call.args, **call.kwargs)
        with _Added(call.metadata):
            return await function(*call.args, **call.kwargs)

    last: Function = send_in_loop if for_loop and not streams else send
    chain = _chain(interceptors, last, for_loop=for_loop, streams=streams)
    kept = _blame(interceptors, plan, chain, "this client", for_loop=for_loop)

    def intercepted(*args: Any, **kwargs: Any) -> Any:
        return kept(ClientCall(plan.full_name, plan.kind, args, kwargs))

    dressed(intercepted, plan, for_loop=for_loop)
    if not for_loop and plan.kind == UNARY:
        setattr(intercepted, _NAMES, _names_of(interceptors))
    return intercepted


def interceptors_that_wait(method: object) -> str | None:
    """The names of the interceptors around a method that waits for one result in a thread, if there are any."""
    return getattr(method, _NAMES, None)


class Chain(NamedTuple):
    """The interceptors of a server."""

    interceptors: tuple[ServerInterceptor, ...]
    across: Across | None
    """How one that is ``async def`` surrounds a handler that is not; ``None`` if there is none such."""


def intercept_handler(chain: Chain, plan: MethodPlan, handler: Function) -> Function:
    """A handler with interceptors around it, if there are any. The result takes every parameter by position."""
    if not chain.interceptors:
        return plan.adapt(handler)
    return _intercepted(chain, plan, handler, 0)


def intercept_method(chain: Chain, plan: MethodPlan, method: Function) -> Function:
    """The same for a method of objects: it takes the object first, which interceptors do not see."""
    if not chain.interceptors:
        return by_position(plan)(method)
    return _intercepted(chain, plan, method, 1)


def _intercepted(of_server: Chain, plan: MethodPlan, handler: Function, leading: int) -> Function:
    streams = plan.kind in (SERVER_STREAM, BIDI_STREAM)
    count = leading + sum(slot.by_position for slot in plan.slots)
    names = [slot.name for slot in plan.slots if not slot.by_position]

    interceptors, in_loop = of_server.interceptors, plan.handler_is_async

    def run(call: Any = None) -> Any:
        check_call(call)
        result = handler(*call._target, *call.args, **call.kwargs)
        if streams and not in_loop and not (hasattr(result, "__iter__") or hasattr(result, "__getitem__")):
            # Said here, or it looks like a mistake of an interceptor's.
            raise explain_no_stream(plan.full_name, result)
        return result

    across = None if in_loop else of_server.across
    chain = _chain(interceptors, run, for_loop=in_loop, streams=streams, across=across)
    kept = _blame(interceptors, plan, chain, "the server", for_loop=in_loop)

    def intercepted(*values: Any) -> Any:
        kwargs = dict(zip(names, values[count:], strict=True))
        return kept(ServerCall(plan.full_name, plan.kind, values[leading:count], kwargs, values[:leading]))

    return intercepted


def _names_of(interceptors: Iterable[Any]) -> str:
    return ", ".join(map(_name_of, interceptors))


def _name_of(interceptor: Any) -> str:
    return str(getattr(interceptor, "__name__", type(interceptor).__name__))


def _blame(interceptors: Iterable[Any], plan: MethodPlan, chain: Function, whose: str, *, for_loop: bool) -> Function:
    """The chain, with a check: if the result is ``None`` and must not be, the error names the interceptors. Otherwise
    an interceptor that forgets to return the result looks like a mistake in the handler.
    """
    streams = plan.kind in (SERVER_STREAM, BIDI_STREAM)
    problem = f"{plan.full_name}(): the result must be a stream, got None" if streams else ""
    if not streams:
        try:
            if plan.reply.check is not None:
                plan.reply.check(None)
        except RpcError as error:
            problem = error.message
    if not problem or (streams and for_loop):  # None is a valid result; or the chain checks it itself
        return chain
    advice = (
        f"{problem}; {whose} has interceptors ({_names_of(interceptors)}), which must return what proceed(call) returns"
    )

    def look(result: Any) -> Any:
        if result is None:
            raise Internal(advice)
        return result

    def called(call: Any) -> Any:
        return look(chain(call))

    async def awaited(call: Any) -> Any:
        return look(await chain(call))

    return awaited if for_loop else called


def _chain(
    interceptors: Iterable[Any], last: Function, *, for_loop: bool, streams: bool, across: Across | None = None
) -> Function:
    """All functions as one, which takes the call and returns the result."""
    wrap = (_stream_of if streams else _awaitable_of) if for_loop else _same
    chain = wrap(last, "")
    for interceptor in reversed(tuple(interceptors)):
        if across is not None and is_awaited(interceptor):
            chain = across(interceptor, chain, streams=streams)
        else:
            chain = wrap(_step(interceptor, chain), _name_of(interceptor))
    return chain


def check_call(call: object) -> None:
    """Refuses what an interceptor gives to ``proceed`` if that is no call.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(call, CallInfo):
        given = "" if call is None else f", and not {describe_value(call)}"
        raise TypeError(f"proceed takes the call that the interceptor got{given}: write proceed(call)")


def _step(interceptor: Any, proceed: Proceed) -> Proceed:
    def step(call: Any = None) -> Any:
        check_call(call)
        return interceptor(call, proceed)

    return step


def _same(function: Proceed, _interceptor: str) -> Proceed:
    return function


def _awaitable_of(function: Proceed, _interceptor: str) -> Proceed:
    """The same function with a result that can be awaited, whether ``function`` is ``async def`` or not."""

    async def proceed(call: Any = None) -> Any:
        result = function(call)
        # It takes two rounds if an `async def` returns something that it did not await. A subscription can be awaited
        # as well, but gives itself, so this loop would never end.
        while inspect.isawaitable(result) and not isinstance(result, Subscription):
            result = await result
        return result

    return proceed


def _stream_of(function: Proceed, interceptor: str) -> Proceed:
    def proceed(call: Any = None) -> Any:
        given = function(call)
        # The server takes a subscription as it is: it cannot be iterated over.
        return given if isinstance(given, Subscription) else InterceptedReplies(given, call.method, interceptor)

    return proceed


class InterceptedReplies:
    """A stream that passes through an interceptor: an asynchronous iterator, and an awaitable that gives one.

    That lets an interceptor be ``def``, ``async def`` or an asynchronous generator.
    """

    def __init__(self, given: Any, method: str, interceptor: str = "") -> None:
        self._given = given
        self._method = method
        self._interceptor = interceptor
        """Who has returned ``given``; empty if that was the handler."""
        self._items: AsyncIterator[Any] | None = given.__aiter__() if hasattr(given, "__aiter__") else None

    async def opened(self) -> AsyncIterator[Any]:
        """The stream that this stands for, once it is there."""
        if self._items is None:
            given, self._given = self._given, _TAKEN
            if given is _TAKEN:
                raise RuntimeError("this stream was closed, or is opened by another task")
            found = await given if hasattr(given, "__await__") else given
            if not hasattr(found, "__aiter__"):
                raise self._no_stream(found)
            self._items = cast("AsyncIterator[Any]", found.__aiter__())
        return self._items

    def _no_stream(self, found: object) -> RpcError:
        if not self._interceptor:
            return explain_no_stream(self._method, found, in_loop=True)
        return Internal(
            f"{self._method}(): the interceptor {self._interceptor} must return what proceed(call) returns, or another "
            f"asynchronous iterator, and has returned {describe_value(found)}"
        )

    async def subscription(self) -> Subscription | None:
        """The subscription that the handler has returned in place of items, if it did: the server takes it as it is."""
        items: object = self
        while isinstance(items, InterceptedReplies):
            items = await items.opened()
        return items if isinstance(items, Subscription) else None

    async def _self(self) -> InterceptedReplies:
        await self.opened()
        return self

    def __await__(self) -> Generator[Any, None, InterceptedReplies]:
        return self._self().__await__()

    def __aiter__(self) -> InterceptedReplies:
        return self

    async def __anext__(self) -> Any:
        items = self._items
        if items is None:
            items = await self.opened()
        return await items.__anext__()

    async def aclose(self) -> None:
        """Gives the call up; the server stops. Harmless when it has ended."""
        given, self._given = self._given, _TAKEN
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()
        elif self._items is None and hasattr(given, "close"):
            given.close()  # a coroutine that was never begun

    async def __aenter__(self) -> InterceptedReplies:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    if not TYPE_CHECKING:  # a type checker refuses them by itself
        __enter__ = __exit__ = __iter__ = stream_in_thread


class _Added(metadata):
    """An interceptor's metadata, as a block inside the user's own, to which it passes on what the server sends back."""

    def __init__(self, items: dict[str, str | bytes]) -> None:
        super().__init__(items)
        self._outer = current_metadata.get()

    def received(self, initial: bool, pairs: MetadataPairs) -> None:
        """Called by the core with what the server sent; passes it on to the user's block."""
        if self._outer is not None:
            self._outer.received(initial, pairs)
        if initial:
            self.initial = Metadata(pairs)
        else:
            self.trailing = Metadata(pairs)


_TAKEN: Any = object()
"""Stands for a stream that was opened already, or closed."""
_NAMES = "__nearcall_interceptors__"
"""Where a method keeps the names of what is around it."""
