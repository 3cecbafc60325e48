"""Runs the coroutine handlers of a server, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from .. import _core
from ..call.interceptors import InterceptedReplies
from ..codec.explain import explain_no_stream
from ..errors import Unavailable, Unknown
from ..log import ERROR, WARNING, log
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, SERVER_STREAM, MethodPlan
from .starting import starter
from .turns import pass_turn_on, turn_end
from .watch import DEFAULT_BLOCKED_LOOP_AFTER, LoopWatch

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


async def _awaited(work: Awaitable[object]) -> object:
    return await work


@types.coroutine
def _rest(handling: Coroutine[Any, Any, object], awaited: object) -> Generator[Any, Any, object]:
    """The rest of a coroutine that has made its first step, and waits for ``awaited``."""
    while True:
        error, sent = None, None
        try:
            sent = yield awaited
        except GeneratorExit:
            handling.close()
            raise
        except BaseException as thrown:
            error = thrown
        try:
            awaited = handling.send(sent) if error is None else handling.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            error = None  # whose traceback holds this frame


@types.coroutine
def _ended(result: object, error: BaseException | None = None) -> Generator[Any, Any, object]:
    """The same of one that has ended."""
    yield from ()
    try:
        if error is not None:
            raise error
        return result
    finally:
        error = None


class LoopThread:
    """An event loop that takes the requests of a server's coroutine handlers."""

    def __init__(
        self,
        core: _core.Server,
        handlers: Sequence[tuple[MethodPlan, Any]],
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
        context: Context,
        blocked_loop_after: float | None = DEFAULT_BLOCKED_LOOP_AFTER,
    ) -> None:
        self._core = core
        self._handlers = handlers
        self._running: dict[int, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks of handlers that wait."""
        self._queued: set[asyncio.Task[None]] = set()
        """Tasks of turns that the loop has still to begin."""
        self._loop = (loop_factory or asyncio.new_event_loop)()
        self._start = starter(self._loop)
        # Handlers' contexts are copies of this one.
        self._context = context
        # Timers run in this empty context: a loop keeps cancelled timers until their time comes, and the handler's
        # context would keep all that the handler has set in it.
        self._nobodys = Context()
        self._watches = _core.Watch.QUEUE
        self._serves = False
        self._goes_on = False
        self._waited = False
        self._comes_back = False
        self._stopping = False
        self.over = False
        """Whether the server has stopped: its calls are cut off, and wait no longer for what runs here."""
        self._watch_over = None if blocked_loop_after is None else LoopWatch(core, handlers, blocked_loop_after)
        self._thread = threading.Thread(target=self._run, name="nearcall-loop", daemon=True)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    def start(self) -> None:
        """Starts the thread; requests are taken from now on."""
        try:
            self._watch_queue()
            self._thread.start()
            self._begin_watch(self._thread.ident)
        except BaseException:
            # The system may lack descriptors or threads: closing the loop frees its descriptors.
            self._loop.close()
            raise

    def _begin_watch(self, thread: int | None) -> None:
        if self._watch_over is not None:
            try:
                self._watch_over.start(thread)
            except RuntimeError as error:  # the system has no more threads: the handlers run all the same
                self._watch_over = None
                log(WARNING, "nobody notices if the server's event loop is blocked: %s", str(error))

    def _end_watch(self) -> None:
        if self._watch_over is not None:
            self._watch_over.end()

    def _watch_queue(self) -> None:
        self._core.use_loop(self._loop)
        self._context.run(self._loop.add_reader, self._core.loop_fileno(), self._on_queue)

    @property
    def stopping(self) -> bool:
        """Whether what is left is being cancelled because the server ends."""
        return self._stopping

    def adopt(self, task: asyncio.Task[None]) -> None:
        """Counts a task among the handlers: it is cancelled when the server ends. In the loop's own thread."""
        work = self._core.work_in_loop()
        self._tasks.add(task)
        task.add_done_callback(partial(self._forget, work))

    def _forget(self, work: _core.LoopWork, task: asyncio.Task[None]) -> None:
        del work
        self._tasks.discard(task)

    def cut_off(self) -> None:
        """Cancels the handlers that are left, and lets them send their callers a status."""
        self._stopping = True
        if self._tasks or self._queued:
            # If the loop hangs or has ended, nothing can be sent.
            with contextlib.suppress(TimeoutError, RuntimeError):
                self._wait_for(self._cancel_all(), _MOMENT)

    async def _cancel_all(self) -> None:
        tasks = self._tasks | self._queued
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

    def leave(self) -> None:
        """The server has stopped. The loop goes on, for what is still to be awaited in it, until :meth:`stop`."""
        self._end_watch()
        self._stopping = self.over = True

    def stop(self) -> None:
        """Cancels the handlers that are left, and ends the thread."""
        self.leave()
        try:
            self._loop.call_soon_threadsafe(self._loop.stop)
        except RuntimeError:
            return  # it has ended already
        self._thread.join(1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        _core.enter_handler_loop(self._loop)
        try:
            while not self._stopping:
                try:
                    self._loop.run_forever()
                except BaseException as error:
                    # SystemExit and the like, raised in a task that a handler has started: the other tasks go on.
                    log(ERROR, "a task in the event loop of the server ended", error=error)
            if self._tasks or self._queued:
                self._loop.run_until_complete(self._cancel_all())
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
        """Begins turns for the requests that have arrived. As long as handlers end at once, it also waits a while for
        the next request.
        """
        until = time.monotonic() + _TURN
        self._serves = True
        try:
            while True:
                turn = self._core.next_for_loop(self, not self._tasks and not self._queued)
                if isinstance(turn, _core.Watch):
                    self._watch(turn)
                    return
                self._goes_on = False
                self._begin(turn)
                if not self._goes_on:
                    return
                if time.monotonic() > until:
                    break
        finally:
            self._serves = False
        self._come_back_soon()

    def _begin(self, turn: _core.HandlerTurn) -> None:
        try:
            task = self._start(self._loop, turn)
        except Exception as error:
            # The loop's task factory failed. Neither this caller nor the other requests may wait for ever.
            log(ERROR, "the event loop of the server cannot make a task", error=error)
            turn.fail(Unknown(f"{type(error).__name__}: {error}"))
            self._goes_on = True
            return
        if turn.is_new:
            self._queued.add(task)
            # The turn takes more requests when it begins, unless its handler waits, as the last handler did.
            self._goes_on = self._waited

    def turned(self, watch: _core.Watch | None, waits: bool) -> None:
        """Goes on after a turn's first step. The turn itself calls this.

        Args:
            watch: Where the next request is heard of, as from ``Server.next_for_loop``; ``None``: one may be there.
            waits: Whether a handler waits, and has the turn's task from now on. If not, the turn is over.
        """
        self._waited = waits
        if self._queued:
            self._queued.discard(self._task())
        if watch is not None:
            self._watch(watch)
        elif self._serves:
            self._goes_on = True
        else:
            self._come_back_soon()

    def _come_back_soon(self) -> None:
        if not self._comes_back:
            self._comes_back = True
            # Not in the context of the handler that has just ended: the next handlers have nothing to do with it.
            self._loop.call_soon(self._come_back, context=self._context)

    def _come_back(self) -> None:
        self._comes_back = False
        self._serve()

    def _watch(self, watch: _core.Watch) -> None:
        """Watches the connections, or leaves that to a worker thread."""
        if watch == self._watches:
            return
        self._watches = watch
        if watch == _core.Watch.CONNECTIONS:
            self._loop.add_reader(self._core.poll_fileno(), self._serve)
        else:
            self._loop.remove_reader(self._core.poll_fileno())

    def go_on(self, request: _core.LoopRequest, begun: Awaitable[object]) -> Coroutine[Any, Any, None]:
        """A coroutine that ends a call without streams, whose handler has made its first step and waits."""
        plan, _ = _handler_of(request, self._handlers)
        return self._handle(request, plan, None, begun)

    def run_stream(self, request: _core.LoopRequest) -> Coroutine[Any, Any, None]:
        """A coroutine that runs the handler of a call with a stream, and ends the call."""
        plan, handler = _handler_of(request, self._handlers)
        return self._handle(request, plan, handler, None)

    awaited = staticmethod(_awaited)
    rest = staticmethod(_rest)
    ended = staticmethod(_ended)

    def _task(self) -> asyncio.Task[None]:
        # The loop is given because asyncio makes a system call each time that it has to find it, up to Python 3.13.
        return cast("asyncio.Task[None]", asyncio.current_task(self._loop))

    async def _handle(
        self, request: _core.LoopRequest, plan: MethodPlan, handler: Any, begun: Awaitable[object] | None
    ) -> None:
        """Runs a handler, or the rest of one that has begun, in the current task. From now on the task can be found by
        the request, and cancelled.
        """
        running = _Running(request)
        task = running.task = self._task()
        self._tasks.add(task)
        if request.key:
            self._running[request.key] = running
        left = request.time_left
        timer = None if left is None else self._loop.call_later(left, running.expire, context=self._nobodys)
        try:
            if begun is None:
                await self._stream(plan, handler, running)
            elif not request.reply(result := await begun):
                await _reply(running, result)
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
            self._tasks.discard(task)
            self._running.pop(request.key, None)
            # Something may still refer to the request, such as the traceback of an exception that the user's code
            # keeps, or the context of a timer.
            request.finish()
            if running.changed is not None:
                # A task that the handler has left may wait for an item of the client's stream.
                running.changed.set()
            # A cancelled task keeps its exception, which keeps the frame, which keeps `running`. An idle server
            # collects no cycles, so what the handler had would stay.
            running.task = None
            if not self._tasks and not self._serves:
                # No other handler waits, so it may pay to spin for the next request.
                self._come_back_soon()

    async def _stream(self, plan: MethodPlan, handler: Any, running: _Running) -> None:
        request = running.request
        changed = running.changed = asyncio.Event()
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
            if not hasattr(replies, "__aiter__"):
                raise explain_no_stream(plan.full_name, replies, in_loop=True)
            end = turn_end()
            async for item in replies:
                if time.monotonic() > end:
                    end = await pass_turn_on()
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
    end = turn_end()
    while True:
        if time.monotonic() > end:
            end = await pass_turn_on()
        changed.clear()
        try:
            item = request.try_next(_NOTHING_YET)
        except StopAsyncIteration:
            return
        if item is not _NOTHING_YET:
            yield item
        else:
            await changed.wait()
            end = turn_end()


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


_MOMENT = 1.0
"""Seconds for handlers that are cancelled because the server ends; half of it is for their own cleanup."""
_PATIENCE = 5.0
"""Seconds that the end of a client's object may take in the loop."""
_TURN = 0.0001
"""Seconds after which the loop turns to its other work, even if more requests arrive."""
