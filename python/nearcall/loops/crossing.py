"""``async def`` interceptors around ordinary handlers: they run in the server's event loop, the handler in its thread.

So a handler keeps what the core has given it: the thread, its limits, the deadline, the streams.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import nullcontext, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NamedTuple

from .._core import Subscription, current_call
from ..call.deadline import timeout
from ..call.early_ends import watch_early_end
from ..call.interceptors import InterceptedReplies, Proceed, ServerCall, ServerInterceptor, check_call
from ..call.variables import LentCall, current_request
from ..errors import Cancelled, DeadlineExceeded, Unavailable
from .handlers import LoopThread

__all__ = ["Crossings"]


class Crossings:
    """Runs the ``async def`` interceptors of a server for its ordinary handlers, once its loop is there."""

    def __init__(self) -> None:
        self.loop: LoopThread | None = None
        """Set when the server begins to serve."""

    def across(self, interceptor: ServerInterceptor, proceed: Proceed, *, streams: bool) -> Proceed:
        """An ``async def`` interceptor as a step of a chain that runs in a thread.

        Args:
            interceptor: It is run in the event loop.
            proceed: The steps after it; they are run in the thread that serves the call.
            streams: Whether the result is a stream.
        """

        def step(call: ServerCall) -> Any:
            if self.loop is None:
                raise Unavailable(f"the server was stopped before {call.method} had begun")
            crossing = _Crossing(self.loop, call)
            return crossing.stream(interceptor, proceed) if streams else crossing.single(interceptor, proceed)

        return step


class _Outcome(NamedTuple):
    value: Any
    error: BaseException | None = None


class _Crossing:
    """One call at one interceptor. Its thread waits for the loop, and does meanwhile what the loop asks of it."""

    def __init__(self, loop: LoopThread, call: ServerCall) -> None:
        self._thread = loop
        self._loop = loop.loop
        self._call = call
        self._served = current_call()
        """``None`` if an interceptor has passed the call to a thread of its own."""
        self._work: queue.SimpleQueue[tuple[asyncio.Future[_Outcome], Callable[[], Any]] | None] = queue.SimpleQueue()
        """What the loop asks of the thread; ``None``: it is through for now."""
        self._over = False
        """Nobody takes work any more."""
        self._task: asyncio.Task[None] | None = None
        self._given_up = False
        self._closing = False
        """What happens at the end may be awaited, and is not to be interrupted."""
        self._outcome = _Outcome(None)
        self._watched = False
        self._given: list[_Items] = []
        """What the handler gives, each time that it was called."""

    def single(self, interceptor: ServerInterceptor, proceed: Proceed) -> Any:
        """The result of a call without a stream of results."""

        async def proceed_in_thread(call: Any = None) -> Any:
            check_call(call)
            return await self.here(_handlers_context(), partial(proceed, call))

        async def result() -> Any:
            given = interceptor(self._call, proceed_in_thread)
            while inspect.isawaitable(given):
                given = await given
            return given

        try:
            return self._run(result)
        finally:
            self._end()

    def stream(self, interceptor: ServerInterceptor, proceed: Proceed) -> Any:
        """A subscription, or what gives the items of a call in its thread."""

        async def opened(call: ServerCall) -> Any:
            context = _handlers_context()
            given = await self.here(context, partial(proceed, call))
            if isinstance(given, Subscription):
                return given
            items = _Items(self, context, given)
            self._given.append(items)
            return items

        def proceed_in_loop(call: Any = None) -> InterceptedReplies:
            check_call(call)
            return InterceptedReplies(opened(call), call.method)

        async def result() -> Any:
            given: Any = interceptor(self._call, proceed_in_loop)
            while not isinstance(given, Subscription):
                if isinstance(given, InterceptedReplies):
                    given = await given.opened()
                elif hasattr(given, "__aiter__") or not inspect.isawaitable(given):
                    break
                else:
                    given = await given
            return given

        try:
            items = self._run(result)
        except BaseException:
            self._end()
            raise
        if hasattr(items, "__aiter__") and not isinstance(items, (Subscription, _Items)):
            return _Replies(self, items.__aiter__())
        if isinstance(items, _Items):
            # They need not cross, and are the caller's now.
            self._given.remove(items)
            items = items.in_thread()
        self._end()
        return items

    async def here(self, context: Context, function: Callable[[], Any]) -> Any:
        """Runs a function in the call's thread, and waits for it. Whoever is cancelled meanwhile learns of it when the
        function has returned: a thread cannot be interrupted, and what surrounds it must not end before it does.
        """
        done: asyncio.Future[_Outcome] = self._loop.create_future()
        self._work.put((done, partial(context.run, function)))
        if self._over and not done.done():
            done.set_result(_Outcome(None, RuntimeError(f"the call of {self._call.method} is over")))
        cancelled = False
        while not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError
        value, error = done.result()
        del done
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it keeps this frame

    def run_next(self, items: AsyncIterator[Any], end: object) -> Any:
        """The next item of an iterator in the loop, for the call's thread."""

        async def following() -> Any:
            try:
                return await items.__anext__()
            except StopAsyncIteration:
                return end

        return self._run(following)

    def run_close(self, items: Any) -> None:
        """The end of an iterator in the loop; the crossing ends with it."""

        async def closed() -> None:
            if hasattr(items, "aclose"):
                await items.aclose()

        self._closing = True
        try:
            self._run(closed)
        finally:
            self._end()

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Awaits something in the loop, and does in this thread what the loop asks of it meanwhile."""
        try:
            self._loop.call_soon_threadsafe(partial(self._begin, work), context=copy_context())
            if not self._watched:
                self._watched = True
                if self._served is not None:
                    watch_early_end(self._served, self._give_up)
            while (asked := self._next()) is not None:
                done, function = asked
                self._loop.call_soon_threadsafe(_settle, done, _tried(function))
                del asked, done, function  # they may keep an exception, and it this frame
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            raise self._stopped() from None
        value, error = self._outcome
        self._outcome = _Outcome(None)
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it keeps this frame

    def _next(self) -> tuple[asyncio.Future[_Outcome], Callable[[], Any]] | None:
        while True:
            try:
                return self._work.get(timeout=_LOOK)
            except queue.Empty:
                if self._thread.over:
                    raise self._stopped() from None

    def _begin(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """In the loop."""
        awaited = self._awaited(work)
        try:
            self._task = self._loop.create_task(awaited)
        except Exception as error:
            # The loop's own task factory failed. The thread must not wait for ever.
            awaited.close()
            self._outcome = _Outcome(None, error)
            self._work.put(None)
            return
        self._thread.adopt(self._task)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():  # before its first step
            self._outcome = _Outcome(None, self._why_cancelled(asyncio.CancelledError()))
        self._work.put(None)

    async def _awaited(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        left = None
        if self._served is not None:
            current_request.set(LentCall(self._served))
            left = self._served.time_left
        try:
            if self._given_up and not self._closing:
                raise asyncio.CancelledError
            with nullcontext() if left is None else timeout(left):
                self._outcome = _Outcome(await work())
        except asyncio.CancelledError as error:
            self._outcome = _Outcome(None, self._why_cancelled(error))
        except BaseException as error:
            # SystemExit and KeyboardInterrupt, too: an interceptor does not end the server.
            self._outcome = _Outcome(None, error)

    def _why_cancelled(self, error: BaseException) -> BaseException:
        if self._given_up:
            if self._served is not None and self._served.time_left == 0:
                return DeadlineExceeded(f"the deadline of {self._call.method} has passed")
            return Cancelled(f"the caller gave {self._call.method} up")
        return self._stopped() if self._thread.stopping else error

    def _stopped(self) -> Unavailable:
        return Unavailable(f"the server was stopped before {self._call.method} had finished")

    def _give_up(self, done: Callable[[], None]) -> None:
        """Nobody waits for the call any more."""

        def cancel() -> None:
            self._given_up = True
            if self._task is not None and not self._closing:
                self._task.cancel()
            done()

        try:
            self._loop.call_soon_threadsafe(cancel)
        except RuntimeError:  # the loop is closed, and its tasks are cancelled
            done()

    def _end(self) -> None:
        """The thread does nothing more for the loop. Tasks that the interceptor has left are told, and what it has not
        taken to its end is closed.
        """
        self._over = True
        given, self._given = self._given, []
        while not self._work.empty():
            asked = self._work.get()
            if asked is not None:
                late = RuntimeError(f"the call of {self._call.method} is over")
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(_settle, asked[0], _Outcome(None, late))
        for items in given:
            items.close()


class _Items:
    """What a handler gives in its thread, item by item in the loop."""

    def __init__(self, crossing: _Crossing, context: Context, given: Any) -> None:
        self._crossing = crossing
        self._context = context
        self._given = given
        self._items: Any = None

    def in_thread(self) -> Any:
        """The same in the thread, for an interceptor that returns what it was given."""
        return None if self._given is None else _InContext(self._context, self._given)

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        item = await self._crossing.here(self._context, self._next)
        if item is _END:
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Ends the handler's generator where it stands."""
        await self._crossing.here(self._context, self._close)

    def close(self) -> None:
        """The same, in the thread."""
        self._context.run(self._close)

    def _close(self) -> None:
        if hasattr(self._given, "close"):
            self._given.close()

    def _next(self) -> Any:
        if self._items is None:
            self._items = iter(self._given)
        return next(self._items, _END)


class _InContext:
    """An iterator whose steps run in a context."""

    def __init__(self, context: Context, given: Any) -> None:
        self._context = context
        self._given = given
        self._items = context.run(iter, given)

    def __iter__(self) -> _InContext:
        return self

    def __next__(self) -> Any:
        return self._context.run(next, self._items)

    def close(self) -> None:
        """Ends it where it stands."""
        if hasattr(self._given, "close"):
            self._context.run(self._given.close)


class _Replies:
    """The items that an interceptor gives in the loop, one by one in the call's thread."""

    def __init__(self, crossing: _Crossing, items: AsyncIterator[Any]) -> None:
        self._crossing = crossing
        self._items: AsyncIterator[Any] | None = items

    def __iter__(self) -> _Replies:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            raise StopIteration
        try:
            item = self._crossing.run_next(self._items, _END)
        except BaseException:
            self.close()
            raise
        if item is _END:
            self.close()
            raise StopIteration
        return item

    def close(self) -> None:
        """Ends it where it stands. Harmless when repeated."""
        items, self._items = self._items, None
        if items is not None:
            self._crossing.run_close(items)


def _handlers_context() -> Context:
    """That of the interceptor, as it is now, for what runs in the call's thread."""
    context = copy_context()
    context.run(current_request.set, None)
    return context


def _tried(function: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(function())
    except BaseException as error:
        return _Outcome(None, error)


def _settle(done: asyncio.Future[_Outcome], outcome: _Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


_END: Any = object()
_LOOK = 1.0
"""Seconds after which a thread that waits looks whether the server has stopped."""
