"""Runs the coroutine handlers of a server, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from .. import _core
from ..call.context import current_request
from ..call.deadline import timeout
from ..call.interceptors import InterceptedReplies
from ..errors import Unavailable, Unknown
from ..log import ERROR, log
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, UNARY, MethodPlan
from .starting import starter

if TYPE_CHECKING:
    from ..references.catalogue import ObjectTable

__all__ = ["LoopThread"]

_NOTHING_YET: Any = object()


class _Running:
    """A request whose handler runs."""

    __slots__ = ("changed", "ending", "late", "request", "task")

    def __init__(self, request: _core.LoopRequest) -> None:
        self.request = request
        self.changed: asyncio.Event | None = None
        self.task: asyncio.Task[None] | None = None
        self.late = False
        self.ending = False

    def expire(self) -> None:
        """The deadline has passed."""
        if not self.ending:
            self.late = True
            self._cancel()

    def _cancel(self) -> None:
        """Cancels the handler, once: its cleanup may await, and must not be interrupted."""
        if self.task is not None and not self.ending:
            self.ending = True
            self.task.cancel()

    def notice(self) -> None:
        """Called when an item has arrived, when there is room to send one, or when the client gave the call up."""
        if self.changed is not None:
            self.changed.set()
        if self.request.cancelled:
            self._cancel()


class LoopThread:
    """An event loop that takes the requests of a server's coroutine handlers."""

    def __init__(
        self,
        core: _core.Server,
        handlers: Sequence[tuple[MethodPlan, Any]],
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
    ) -> None:
        self._core = core
        self._handlers = handlers
        self._running: dict[int, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = (loop_factory or asyncio.new_event_loop)()
        self._start = starter(self._loop)
        # Timers run in this empty context: a loop keeps cancelled timers until their time comes, and the handler's
        # context would keep the request and its connection.
        self._nobodys = Context()
        self._listens = False
        self._comes_back = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="nearcall-loop", daemon=True)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    def start(self) -> None:
        """Starts the thread; requests are taken from now on."""
        try:
            self._core.use_loop(self._loop)
            self._loop.add_reader(self._core.loop_fileno(), self._on_queue)
            self._thread.start()
        except BaseException:
            # The system may lack descriptors or threads: closing the loop frees its descriptors.
            self._loop.close()
            raise

    def cut_off(self) -> None:
        """Cancels the handlers that are left, and lets them send their callers a status."""
        self._stopping = True
        if self._tasks:
            # If the loop hangs or has ended, nothing can be sent.
            with contextlib.suppress(TimeoutError, RuntimeError):
                self._wait_for(self._cancel(), _MOMENT)

    async def _cancel(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_MOMENT / 2)

    def finish(self, work: Awaitable[object]) -> None:
        """Awaits something in the loop, for another thread.

        Raises:
            TimeoutError: it takes longer than 5 seconds.
            RuntimeError: the loop has ended.
        """
        self._wait_for(_awaited(work), _PATIENCE)

    def _wait_for(self, work: Coroutine[Any, Any, object], seconds: float) -> None:
        try:
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise
        try:
            running.result(seconds)
        except concurrent.futures.TimeoutError:
            running.cancel()
            raise TimeoutError(f"the event loop did not come to it within {seconds:g} s") from None

    def stop(self) -> None:
        """Cancels the handlers that are left, and ends the thread."""
        self._stopping = True
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:
            return  # it has ended already
        self._thread.join(1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._stopping:
                try:
                    self._loop.run_forever()
                except BaseException as error:
                    # SystemExit and the like, raised in a task that a handler has started: the other tasks go on.
                    log(ERROR, "a task in the event loop of the server ended", error=error)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                self._loop.run_until_complete(asyncio.wait(self._tasks, timeout=_MOMENT / 2))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _on_queue(self) -> None:
        """Called when a worker thread has queued requests, or something has changed for running ones."""
        for key in self._core.changed():
            running = self._running.get(key)
            if running is not None:
                running.notice()
        self._serve()

    def _serve(self) -> None:
        """Takes the requests that have arrived. As long as each handler ends at once, it also waits a while for the
        next request.
        """
        until = time.monotonic() + _TURN
        while True:
            request = self._core.next_for_loop(not self._tasks)
            if isinstance(request, bool):
                self._listen(request)
                return
            self._begin(request)
            if time.monotonic() > until:
                break
        if not self._comes_back:
            self._comes_back = True
            self._loop.call_soon(self._come_back)

    def _come_back(self) -> None:
        self._comes_back = False
        self._serve()

    def _listen(self, listen: bool) -> None:
        """Watches the connections, or leaves that to a worker thread."""
        if listen == self._listens:
            return
        self._listens = listen
        if listen:
            self._loop.add_reader(self._core.poll_fileno(), self._serve)
        else:
            self._loop.remove_reader(self._core.poll_fileno())

    def _begin(self, request: _core.LoopRequest) -> None:
        if request.cancelled:
            request.forget()
            return
        running = _Running(request)
        handling = self._handle(running)
        try:
            task = self._start(self._loop, handling)
        except Exception as error:
            # The loop's task factory failed. Neither this caller nor the other requests may wait for ever.
            handling.close()
            log(ERROR, "the event loop of the server cannot make a task", error=error)
            request.fail(Unknown(f"{type(error).__name__}: {error}"))
            request.forget()
            return
        if task.done():
            request.forget()
            return
        running.task = task
        if request.key:
            self._running[request.key] = running
        self._tasks.add(task)
        task.add_done_callback(partial(self._finished, running))

    def _finished(self, running: _Running, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._running.pop(running.request.key, None)
        # Something may still refer to the request, such as the traceback of an exception that the user's code keeps.
        running.request.forget()
        # A cancelled task keeps its exception, which keeps the frame, which keeps `running`. An idle server collects no
        # cycles, so the connection would stay open.
        running.task = None
        if not self._tasks:
            # No other handler runs, so it may pay to spin for the next request.
            self._serve()

    async def _handle(self, running: _Running) -> None:
        request = running.request
        plan, handler = _handler_of(request, self._handlers)
        current_request.set(request)
        inherited = timer = None
        try:
            left = request.time_left
            if left is not None:
                # The handler's own calls inherit the deadline, and the handler is cancelled when the deadline has
                # passed.
                inherited = timeout(left)
                inherited.__enter__()
                timer = self._loop.call_later(left, running.expire, context=self._nobodys)
            if plan.kind in (UNARY, ONEWAY):
                result = await handler(*request.arguments())
                await _reply(running, result)
            else:
                running.changed = asyncio.Event()
                await self._stream(plan, handler, running, running.changed)
        except asyncio.CancelledError as error:
            if running.late:
                request.fail_late()
            elif request.cancelled:
                request.forget()
            elif self._stopping:
                request.fail(Unavailable(f"the server was stopped before {plan.full_name} had finished"))
            else:
                request.fail(error)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt, too: a handler does not end the server.
            request.fail(error)
        finally:
            if timer is not None:
                timer.cancel()
            if inherited is not None:
                inherited.__exit__(None, None, None)

    async def _stream(self, plan: MethodPlan, handler: Any, running: _Running, changed: asyncio.Event) -> None:
        request = running.request
        arguments = list(request.arguments())
        if plan.kind in (CLIENT_STREAM, BIDI_STREAM):
            arguments.insert(plan.stream_position, _items(request, changed))
        if plan.kind not in (SERVER_STREAM, BIDI_STREAM):
            await _reply(running, await handler(*arguments))
            return
        replies = handler(*arguments)
        if not hasattr(replies, "__aiter__") and hasattr(replies, "__await__"):
            replies = await replies
        try:
            # An interceptor that is a coroutine returns the subscription only when awaited.
            returned = await replies.subscription() if isinstance(replies, InterceptedReplies) else replies
            if isinstance(returned, _core.Subscription):
                request.subscribe(returned)
                return
            async for item in replies:
                if not await _send(request, item, changed):
                    running.ending = True
                    request.forget()
                    return
            request.end()
        finally:
            if hasattr(replies, "aclose"):
                await replies.aclose()


def _handler_of(
    request: _core.LoopRequest, handlers: Sequence[tuple[MethodPlan, Any]]
) -> tuple[MethodPlan, Callable[..., Any]]:
    """The plan and the handler of a request: of a served method, or of a method of an object that was passed to the
    client.
    """
    target = request.target
    if target is None:
        return handlers[request.index]
    given, table = target
    plan, handler = cast("ObjectTable", table).handlers[request.index]
    return plan, partial(handler, given)


async def _items(request: _core.LoopRequest, changed: asyncio.Event) -> AsyncIterator[Any]:
    """The items of the client's stream."""
    while True:
        changed.clear()
        try:
            item = request.try_next(_NOTHING_YET)
        except StopAsyncIteration:
            return
        if item is not _NOTHING_YET:
            yield item
        else:
            await changed.wait()


async def _send(request: _core.LoopRequest, item: Any, changed: asyncio.Event) -> bool:
    """Sends an item as soon as the client has room for it. ``False`` if the client gave the call up."""
    while True:
        changed.clear()
        sent = request.try_send(item)
        if sent is not None:
            return sent
        await changed.wait()


async def _reply(running: _Running, result: Any) -> None:
    """Ends a call with its result, as soon as the client has read enough of what was sent before."""
    if running.request.reply(result):
        return
    changed = running.changed = running.changed or asyncio.Event()
    while not running.request.reply(result):
        await changed.wait()
        changed.clear()


async def _awaited(work: Awaitable[object]) -> object:
    return await work


_MOMENT = 1.0
"""Seconds for handlers that are cancelled because the server ends; half of it is for their own cleanup."""
_PATIENCE = 5.0
"""Seconds that the end of a client's object may take in the loop."""
_TURN = 0.0001
"""Seconds after which the loop turns to its other work, even if more requests arrive."""
