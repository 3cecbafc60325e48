"""Makes handlers of encoded messages from a servicer's methods, for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from ...call.context import context as current
from ...service.encoded import EncodedMethod, encoded_class
from ..context import ServicerContext as ThreadContext
from ..handlers import (
    HandlerCallDetails,
    Methods,
    ThreadMethod,
    behavior_of,
    decoded,
    encoded,
    is_coroutine,
    no_method,
)
from ..outcome import Outcome
from .context import ServicerContext

__all__ = ["services", "unknown_method"]


_END: Any = object()
"""Stands for the end of a stream."""


class _LoopMethod:
    """A servicer's method in the event loop: a coroutine function, or with interceptors any method. Ordinary functions
    run in threads.
    """

    def __init__(self, path: str, handler: Any, interceptors: Sequence[Any]) -> None:
        self._path = path
        self._handler = handler
        self._interceptors = interceptors

    async def single(self, message: Any) -> bytes:
        """Serves a call with one response."""
        outcome = self._begin()
        try:
            handler, context, called = await self._called(message, outcome)
            if handler.response_streaming:  # a handler of an interceptor
                response = await anext(_responses(context, called), None)
            else:
                response = await called
            # A servicer that has set a status may return nothing.
            written = b"" if outcome.number else encoded(handler, response, self._path)
            outcome.succeed()
            return written
        except Exception as error:
            status = outcome.failure(error)
            if status is error:
                raise
            raise status from None
        finally:
            outcome.end()

    async def many(self, message: Any) -> AsyncIterator[bytes]:
        """Serves a call with a stream of responses."""
        outcome = self._begin()
        try:
            handler, context, called = await self._called(message, outcome)
            if handler.response_streaming:
                responses = _responses(context, called)
                try:
                    async for response in responses:
                        yield encoded(handler, response, self._path)
                        outcome.message_sent()
                finally:
                    await responses.aclose()  # type: ignore[attr-defined]
            else:  # a handler of an interceptor
                response = await called
                if not outcome.number:
                    yield encoded(handler, response, self._path)
            outcome.succeed()
        except Exception as error:
            status = outcome.failure(error)
            if status is error:
                raise
            raise status from None
        finally:
            outcome.end()

    def _begin(self) -> Outcome:
        return Outcome(current()._call, self._path, _nothing)

    async def _called(self, message: Any, outcome: Outcome) -> tuple[Any, ServicerContext, Any]:
        """The handler that serves the call, its context, and what it returned."""
        handler = self._handler
        if self._interceptors:
            details = HandlerCallDetails(self._path, outcome.invocation_metadata)
            handler = await _continuation(self._interceptors, self._handler)(details)
            if handler is None:
                raise no_method(self._path, known=self._handler is not None)
        context = ServicerContext(outcome)
        streamed = not isinstance(message, bytes)
        if handler.request_streaming:
            request = context._requests = _requests(handler, message if streamed else _only(message), self._path)
        else:  # a stream may arrive all the same, if the handler is an interceptor's
            request = decoded(handler, await anext(message, b"") if streamed else message, self._path)
        if not is_coroutine(handler):
            called = _in_thread(behavior_of(handler), request, ThreadContext(outcome))
            return handler, context, _items_of(called) if handler.response_streaming else called
        return handler, context, behavior_of(handler)(request, context)


async def _in_thread(behavior: Callable[[Any, Any], Any], request: Any, context: ThreadContext) -> Any:
    """Runs an ordinary function in a thread of the loop's executor, and the steps of its streams as well; returns its
    result.
    """
    if hasattr(request, "__anext__"):
        request = _taken(request, asyncio.get_running_loop())
    return await asyncio.to_thread(behavior, request, context)


def _taken(requests: AsyncIterator[Any], loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """A stream of the event loop as an iterator for another thread."""

    async def step() -> Any:
        return await anext(requests, _END)

    while (request := asyncio.run_coroutine_threadsafe(step(), loop).result()) is not _END:
        yield request


async def _items_of(called: Awaitable[Any]) -> AsyncIterator[Any]:
    """A stream that an ordinary function returns, as an asynchronous iterator."""
    items = iter(await called)
    try:
        while (item := await asyncio.to_thread(next, items, _END)) is not _END:
            yield item
    finally:
        if hasattr(items, "close"):
            await asyncio.to_thread(items.close)


def _nothing(_outcome: Outcome) -> None:
    """Does nothing: a handler in a loop is cancelled when its call ends early, so nothing needs to watch the call."""


async def _only(message: bytes) -> AsyncIterator[bytes]:
    yield message


async def _requests(handler: Any, messages: AsyncIterator[bytes], path: str) -> AsyncIterator[Any]:
    async for message in messages:
        yield decoded(handler, message, path)


async def _responses(context: ServicerContext, called: Any) -> AsyncIterator[Any]:
    """The responses that an asynchronous generator yields, or that a coroutine writes to its context."""
    if hasattr(called, "__aiter__"):
        try:
            async for response in called:
                yield response
        finally:
            if hasattr(called, "aclose"):
                await called.aclose()
        return
    written = context._written = asyncio.Queue(1)
    writer = asyncio.ensure_future(called)
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = asyncio.ensure_future(written.get())
            await asyncio.wait((waiting, writer), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await writer
                return
            yield waiting.result()
            written.task_done()
    finally:
        for future in (waiting, writer):
            if future is not None:
                future.cancel()


def _continuation(interceptors: Sequence[Any], handler: Any) -> Callable[[Any], Awaitable[Any]]:
    """The function by which an interceptor asks the next interceptor, or at last gets the servicer's handler."""

    async def proceed(details: Any) -> Any:
        if not interceptors:
            return handler
        return await interceptors[0].intercept_service(_continuation(interceptors[1:], handler), details)

    return proceed


def unknown_method(interceptors: Sequence[Any]) -> Callable[[str, AsyncIterator[bytes]], AsyncIterator[bytes]]:
    """The same as :func:`nearcall.grpcio.handlers.unknown_method`, for interceptors that are coroutines."""

    async def answer(path: str, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for response in _LoopMethod(path, None, interceptors).many(messages):
            yield response

    return answer


def services(methods: Methods, interceptors: Sequence[Any]) -> list[object]:
    """The objects that :class:`nearcall.Server` serves for some servicers: coroutine functions run in the loop, others
    in threads.

    Interceptors are coroutines: with interceptors, all methods begin in the loop.

    Raises:
        ValueError: a name cannot be served.
    """
    made: list[object] = []
    for service, handlers in methods.items():
        shapes: list[EncodedMethod] = []
        functions: dict[str, Callable[..., Any]] = {}
        for name, handler in handlers.items():
            path, in_loop = f"/{service}/{name}", is_coroutine(handler)
            in_loop = in_loop or bool(interceptors)
            method: Any = _LoopMethod(path, handler, interceptors) if in_loop else ThreadMethod(path, handler, ())
            streams_out = bool(handler.response_streaming)
            shapes.append(EncodedMethod(name, bool(handler.request_streaming), streams_out, in_loop))
            functions[name] = method.many if streams_out else method.single
        made.append(encoded_class(service, shapes, functions)())
    return made
