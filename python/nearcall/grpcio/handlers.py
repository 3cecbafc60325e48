"""Makes handlers of encoded messages from a servicer's methods, for threads.

The code that protoc has generated reads and writes a servicer's messages: ``request_deserializer`` and
``response_serializer``. So a handler here takes bytes and returns bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from .. import _core
from ..call.early_ends import watch_early_end
from ..errors import Internal, Unimplemented
from ..service.encoded import EncodedMethod, encoded_class
from .context import ServicerContext
from .outcome import Metadatum, Outcome

__all__ = [
    "HandlerCallDetails",
    "Methods",
    "ThreadMethod",
    "behavior_of",
    "collect",
    "decoded",
    "encoded",
    "is_coroutine",
    "no_method",
    "services",
    "unknown_method",
]

Methods = dict[str, dict[str, Any]]
"""The handlers of methods, by the names of service and method."""


class HandlerCallDetails(NamedTuple):
    """The details of a call that an interceptor gets."""

    method: str
    invocation_metadata: tuple[Metadatum, ...]


def collect(generic: Any) -> Iterator[tuple[str, str, Any]]:
    """The methods of a generic handler: names of service and method, and its handler.

    Raises:
        TypeError: the handler does not tell which methods it has.
    """
    # Only handlers made by `grpc.method_handlers_generic_handler` have this attribute; older generated code registers
    # no others.
    handlers = getattr(generic, "_method_handlers", None)
    if not isinstance(handlers, Mapping):
        raise TypeError(
            f"{type(generic).__name__} decides call by call which methods it has, and nearcall must know them when it "
            "starts: use grpc.method_handlers_generic_handler(service, {method: handler})"
        )
    for path, handler in cast("Mapping[str, Any]", handlers).items():
        _, service, method = path.split("/")
        yield service, method, handler


def behavior_of(handler: Any) -> Callable[[Any, Any], Any]:
    """The servicer's own method."""
    kinds = {(False, False): "unary_unary", (False, True): "unary_stream"}
    kinds |= {(True, False): "stream_unary", (True, True): "stream_stream"}
    behavior: Callable[[Any, Any], Any] = getattr(
        handler, kinds[bool(handler.request_streaming), bool(handler.response_streaming)]
    )
    return behavior


def is_coroutine(handler: Any) -> bool:
    """Whether a method is a coroutine function or an asynchronous generator."""
    behavior = inspect.unwrap(behavior_of(handler))
    return inspect.iscoroutinefunction(behavior) or inspect.isasyncgenfunction(behavior)


def decoded(handler: Any, message: bytes, path: str) -> Any:
    """A request.

    Raises:
        Internal: the servicer's own reader does not take it.
    """
    if handler.request_deserializer is None:
        return message
    try:
        return handler.request_deserializer(message)
    except Exception as error:
        raise Internal(f"{path}: the request cannot be read: {type(error).__name__}: {error}") from error


def encoded(handler: Any, message: Any, path: str) -> bytes:
    """A response, encoded.

    Raises:
        Internal: it is no message of that method.
    """
    try:
        written: bytes = message if handler.response_serializer is None else handler.response_serializer(message)
    except Exception as error:
        kind = type(message).__name__
        raise Internal(f"{path}: the response, a {kind}, cannot be written: {type(error).__name__}: {error}") from error
    return written


class ThreadMethod:
    """A servicer's method."""

    def __init__(self, path: str, handler: Any, interceptors: Sequence[Any]) -> None:
        self._path = path
        self._handler = handler
        self._interceptors = interceptors

    def single(self, message: Any) -> bytes:
        """Serves a call with one response."""
        outcome = self._begin()
        try:
            handler, responses = self._called(message, outcome)
            if handler.response_streaming:  # a handler of an interceptor
                responses = next(iter(responses), None)
            # A servicer that has set a status may return nothing.
            response = b"" if outcome.number else encoded(handler, responses, self._path)
            outcome.succeed()
            return response
        except Exception as error:
            status = outcome.failure(error)
            if status is error:
                raise
            raise status from None
        finally:
            outcome.end()

    def many(self, message: Any) -> Iterator[bytes]:
        """Serves a call with a stream of responses."""
        return self._many(message, self._begin())

    def _many(self, message: Any, outcome: Outcome) -> Iterator[bytes]:
        responses = None
        try:
            handler, responses = self._called(message, outcome)
            if not handler.response_streaming:  # a handler of an interceptor
                responses = iter((responses,)) if not outcome.number else iter(())
            for response in responses:
                yield encoded(handler, response, self._path)
                outcome.message_sent()
            outcome.succeed()
        except Exception as error:
            status = outcome.failure(error)
            if status is error:
                raise
            raise status from None
        finally:
            outcome.end()
            if hasattr(responses, "close"):
                with suppress(Exception):
                    responses.close()  # type: ignore[union-attr]

    def _begin(self) -> Outcome:
        return Outcome(_served_now(), self._path, _watch)

    def _called(self, message: Any, outcome: Outcome) -> tuple[Any, Any]:
        """The handler that serves the call, and what it returned."""
        handler = self._handler
        if self._interceptors:
            details = HandlerCallDetails(self._path, outcome.invocation_metadata)
            handler = _continuation(self._interceptors, self._handler)(details)
            if handler is None:
                raise no_method(self._path, known=self._handler is not None)
        streamed = not isinstance(message, bytes)
        if handler.request_streaming:
            messages: Iterable[bytes] = message if streamed else (message,)
            request: Any = (decoded(handler, each, self._path) for each in messages)
        else:  # a stream may arrive all the same, if the handler is an interceptor's
            request = decoded(handler, next(iter(message), b"") if streamed else message, self._path)
        return handler, behavior_of(handler)(request, ServicerContext(outcome))


def _served_now() -> _core.Call:
    call = _core.current_call()
    assert call is not None, "a handler runs where its call is served"
    return call


def no_method(path: str, *, known: bool) -> Unimplemented:
    """The error when no interceptor has a handler for a call.

    Args:
        path: The path that was called.
        known: Whether the server has that method.
    """
    if known:
        return Unimplemented(f"{path}: an interceptor says that there is no such method")
    return Unimplemented(f"the server has no method {path}")


def unknown_method(interceptors: Sequence[Any]) -> Callable[[str, Iterator[bytes]], Iterator[bytes]]:
    """What answers calls to unknown paths: interceptors see these calls as well, and may have a handler for them."""
    return lambda path, messages: ThreadMethod(path, None, interceptors).many(messages)


def _continuation(interceptors: Sequence[Any], handler: Any) -> Callable[[Any], Any]:
    """The function by which an interceptor asks the next interceptor, or at last gets the servicer's handler."""
    if not interceptors:
        return lambda _details: handler
    inner = _continuation(interceptors[1:], handler)
    return lambda details: interceptors[0].intercept_service(inner, details)


def _watch(outcome: Outcome) -> None:
    """Runs the callbacks of a call as soon as it has ended early."""

    def run(done: Callable[[], None]) -> None:
        outcome.run_callbacks()
        done()

    watch_early_end(outcome.call, run)


def services(methods: Methods, interceptors: Sequence[Any]) -> list[object]:
    """The objects that :class:`nearcall.Server` serves for some servicers.

    Raises:
        TypeError: a method is a coroutine function.
        ValueError: a name cannot be served.
    """
    made: list[object] = []
    for service, handlers in methods.items():
        shapes: list[EncodedMethod] = []
        functions: dict[str, Callable[..., Any]] = {}
        for name, handler in handlers.items():
            if is_coroutine(handler):
                raise TypeError(f"{service}.{name} is a coroutine function: serve it with nearcall.grpcio.aio.server()")
            method = ThreadMethod(f"/{service}/{name}", handler, interceptors)
            streams_out = bool(handler.response_streaming)
            shapes.append(EncodedMethod(name, bool(handler.request_streaming), streams_out))
            functions[name] = method.many if streams_out else method.single
        made.append(encoded_class(service, shapes, functions)())
    return made
