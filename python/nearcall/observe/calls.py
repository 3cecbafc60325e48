"""Follows a call from its beginning to its end: any kind, on either side, in threads and in event loops."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, TypeAlias

from .._core import Subscription
from ..call.interceptors import CallInfo, InterceptedReplies, Proceed, ServerCall
from ..errors import RpcError
from ..service.plan import BIDI_STREAM, SERVER_STREAM
from ..status import StatusCode

__all__ = ["BUCKETS", "Followed", "Interceptor", "follow"]

Interceptor: TypeAlias = "Callable[[Any, Proceed], Any]"
"""An interceptor for clients and for servers."""

BUCKETS = (
    *(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Bounds for histograms, seconds: from the usual time of calls over shared memory to the time at which people stop
waiting.
"""

_NOTHING = nullcontext()


class Followed:
    """A call that is followed. A subclass defines what happens when it ends."""

    def __init__(self, call: CallInfo) -> None:
        self.call = call
        self._begun: float | None = time.perf_counter()
        self._error: BaseException | None = None
        self._is_told = isinstance(call, ServerCall) and call.context._on_end(  # pyright: ignore[reportPrivateUsage]
            self.sent
        )

    def step(self) -> AbstractContextManager[object]:
        """A context manager around each part of the call: the handler, and the making of each item of a stream."""
        return _NOTHING

    def ended(self, code: StatusCode, seconds: float, error: BaseException | None) -> None:
        """Called once, when the call has ended."""
        raise NotImplementedError

    def end(self, error: BaseException | None = None) -> None:
        """Called when the part of the call that interceptors see has ended, well or with an error. Harmless when
        repeated.

        At a client that is the end. At a server the result is still to be encoded and sent; the core then calls
        :meth:`sent`.
        """
        if not self._is_told:
            self._end(_code_of(error), error)
        elif self._begun is not None and self._error is None:
            self._error = error

    def sent(self, code: int) -> None:
        """Called when a server's call has ended, and its status is sent to the client."""
        error, self._error = self._error, None
        self._end(StatusCode(code), error)

    def _end(self, code: StatusCode, error: BaseException | None) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self.ended(code, time.perf_counter() - begun, error)


def follow(begin: Callable[[CallInfo], Followed]) -> Interceptor:
    """An interceptor that follows every call; ``begin`` is called with each."""

    def intercept(call: CallInfo, proceed: Proceed) -> Any:
        followed = begin(call)
        try:
            with followed.step():
                result = proceed(call)
            if call.kind in (SERVER_STREAM, BIDI_STREAM):
                if isinstance(result, Subscription):
                    return result  # the core says when it ends
                if isinstance(result, InterceptedReplies) and isinstance(call, ServerCall):
                    return _opened(result, followed)
                if hasattr(result, "__aiter__"):
                    return _AsyncItems(result, followed)
                return _Items(result, followed)
        except BaseException as error:
            followed.end(error)
            raise
        if inspect.isawaitable(result):
            return _awaited(result, followed)
        followed.end()
        return result

    return intercept


def _code_of(error: BaseException | None) -> StatusCode:
    """How a call ended, as its client sees it."""
    if error is None:
        return StatusCode.OK
    if isinstance(error, RpcError):
        return error.code
    # Otherwise a task was cancelled, or a stream was left before its end.
    return StatusCode.UNKNOWN if isinstance(error, Exception) else StatusCode.CANCELLED


async def _awaited(result: Awaitable[Any], followed: Followed) -> Any:
    try:
        with followed.step():
            value = await result
    except BaseException as error:
        followed.end(error)
        raise
    followed.end()
    return value


async def _opened(replies: InterceptedReplies, followed: Followed) -> object:
    """A stream in an event loop of a server, which may still turn out to be a subscription, once an interceptor of the
    user's has returned it.
    """
    try:
        with followed.step():
            subscription = await replies.subscription()
    except BaseException as error:
        followed.end(error)
        raise
    return _AsyncItems(replies, followed) if subscription is None else subscription


class _Items:
    """A stream in a thread, until it has ended or is left."""

    def __init__(self, items: Any, followed: Followed) -> None:
        self._given = items
        self._items: Iterator[Any] = iter(items)
        self._followed = followed

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        followed = self._followed
        try:
            with followed.step():
                return next(self._items)
        except StopIteration:
            followed.end()
            raise
        except BaseException as error:
            followed.end(error)
            raise

    def close(self) -> None:
        """Gives the call up. Harmless when it has ended."""
        try:
            close = getattr(self._given, "close", None)
            if close is not None:
                with self._followed.step():
                    close()
        finally:
            self._followed.end(GeneratorExit())

    def __enter__(self) -> _Items:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_followed"):
            self._followed.end(GeneratorExit())


class _AsyncItems:
    """A stream in an event loop, until it has ended or is left."""

    def __init__(self, items: Any, followed: Followed) -> None:
        self._given = items
        self._items: AsyncIterator[Any] = items.__aiter__()
        self._followed = followed

    def __aiter__(self) -> _AsyncItems:
        return self

    async def __anext__(self) -> Any:
        followed = self._followed
        try:
            with followed.step():
                return await self._items.__anext__()
        except StopAsyncIteration:
            followed.end()
            raise
        except BaseException as error:
            followed.end(error)
            raise

    async def aclose(self) -> None:
        """Gives the call up. Harmless when it has ended."""
        try:
            close = getattr(self._given, "aclose", None)
            if close is not None:
                with self._followed.step():
                    await close()
        finally:
            self._followed.end(GeneratorExit())

    def __del__(self) -> None:
        if hasattr(self, "_followed"):
            self._followed.end(GeneratorExit())
