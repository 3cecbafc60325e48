"""Nodes for event loops: as :class:`nearcall.route.Node`, with ``await``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from .. import _core
from ..call.wrong_with import for_loops, wrong_with
from ..errors import FailedPrecondition
from ..options.checked import check_seconds, check_whole
from .base import HOW_NODES_ARE_USED, LOOK, REPLY_TIMEOUT, NodeBase, checked_grace, shown
from .failures import reply_or_raise
from .message import AnyBuffer, reply_of
from .options import About, NodeOptions
from .sending import DEFAULT_QUEUE, WhenFull

__all__ = ["Message", "Node"]

T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class Message(_core.RouteMessage[T_co]):
        """A message that has arrived at a node in an event loop."""

        async def reply(
            self, payload: AnyBuffer = b"", *, type: int | None = None, timeout: float | None = None
        ) -> None:
            """Sends a message back to the sender, as :meth:`nearcall.route.Message.reply` does."""
else:
    Message = _core.RouteMessage

M = TypeVar("M")
R = TypeVar("R")
H = TypeVar("H", bound=Callable[[Message[Any]], object])

_AT_ONCE = 64
"""Messages that are handled before the event loop looks at its other work."""


class Node(NodeBase):
    """Sends messages by their type, to whom a table says, and takes those that other nodes send::

        node = route.aio.Node("shm://filter", table="routes.toml")

        @node.on(1000)
        async def measured(message: route.aio.Message) -> None:
            await node.send(2000, message.payload, subscription=7)

        async with node:
            await node.ready(timeout=5)
            ...

    Handlers run in the event loop in which the node was started; they may be plain functions, too.

    Arguments and errors are those of :class:`nearcall.route.Node`, but for ``threads``.

    Args:
        concurrency: How many messages are handled at a time. With 1, those of one sender are handled in the order in
            which they were sent.
    """

    _coroutines = True

    def __init__(
        self,
        *urls: str,
        table: str | Path | None = None,
        manager: str | None = None,
        group: str | None = None,
        name: str | None = None,
        when_full: WhenFull = "block",
        queue: int = DEFAULT_QUEUE,
        concurrency: int = 1,
        **options: Unpack[NodeOptions],
    ) -> None:
        super().__init__(urls, table, manager, group, name, when_full, queue, options)
        self._concurrency = check_whole("concurrency", concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._arrival: asyncio.Future[None] | None = None
        self._calls: dict[bytes, asyncio.Future[None]] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_closed = False

    # --- sending ---

    async def send(
        self,
        type: int | object,
        payload: AnyBuffer = b"",
        *,
        subscription: int = -1,
        transaction: bytes | None = None,
        entity: str = "",
        trace: bytes | None = None,
        to: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sends a message to whom the table says, as :meth:`nearcall.route.Node.send` does."""
        pending = self._core.send(
            type,
            payload,
            subscription=subscription,
            transaction=transaction,
            entity=entity,
            trace=trace,
            to=to,
            for_loop=True,
        )
        if pending is not None:
            await self._until_sent(pending, timeout)

    async def call(
        self,
        type: int | object,
        payload: AnyBuffer = b"",
        *,
        timeout: float | None = None,
        transaction: bytes | None = None,
        **about: Unpack[About],
    ) -> Message[Any]:
        """Sends a message, and waits for the message with the same transaction number. Any number of tasks may call at
        once. The arguments are those of :meth:`nearcall.route.Node.call`.

        Raises:
            TimeoutError: no reply has come within ``timeout`` seconds.
            RpcError: the handler has failed, or there is none, as for :meth:`nearcall.route.Node.call`.
            Unavailable: all nodes that have got the message have stopped or died, or their connections were lost.
            AlreadyExists: a call with that number is under way.
            NotFound: no table is in force, or it has no entry for the message.
            ResourceExhausted: a queue is full.
            FailedPrecondition: the node is closed, or was closed meanwhile.
        """
        loop = self._listen()
        end = None if timeout is None else loop.time() + check_seconds("timeout", timeout)
        waiter = self._core.expect(transaction, for_loop=True)
        number = waiter.transaction
        self._calls[number] = loop.create_future()
        try:
            await self.send(type, payload, transaction=number, timeout=timeout, **about)
            received = await self._reply_to(waiter, end)
        finally:
            del self._calls[number]
        if received is None:
            raise TimeoutError(f"no reply to a message of type {shown(type)} within {timeout} s")
        return cast("Message[Any]", reply_or_raise(received))

    async def _reply_to(self, waiter: _core.RouteWaiter, end: float | None) -> _core.RouteMessage[Any] | None:
        """The reply to a message that was sent; ``None`` if it does not come before ``end``."""
        loop, number = self._listen(), waiter.transaction
        while (received := waiter.take()) is None:
            now = loop.time()
            if end is not None and end <= now:
                break
            if self._is_closed:
                raise FailedPrecondition("the node was closed before the reply came")
            rung = self._calls[number]
            if rung.done():
                rung = self._calls[number] = loop.create_future()
            # While somebody may reply, the bell rings for what happens; else it is certain after this time.
            bounds = [waiter.ends_in(), None if end is None else end - now]
            await asyncio.wait({rung}, timeout=min((each for each in bounds if each is not None), default=None))
        return received

    async def _reply(
        self, message: _core.RouteMessage[Any], payload: AnyBuffer, type: int | None, timeout: float | None
    ) -> None:
        pending = self._core.reply(message, *reply_of(message, payload, type), for_loop=True)
        if pending is not None:
            await self._until_sent(pending, REPLY_TIMEOUT if timeout is None else timeout)

    async def _until_sent(self, pending: _core.RoutePending, timeout: float | None) -> None:
        loop = self._listen()
        end = None if timeout is None else loop.time() + check_seconds("timeout", timeout)
        while True:
            room = loop.create_future()
            self._waiting.add(room)
            try:
                if pending.attempt():
                    return
                left = None if end is None else end - loop.time()
                if left is not None and left <= 0:
                    late = pending.late()
                    assert late is not None
                    raise late
                await asyncio.wait({room}, timeout=left)
            finally:
                self._waiting.discard(room)

    # --- receiving ---

    @overload
    def on(self, cls: type[M], /) -> Callable[[Callable[[Message[M]], R]], Callable[[Message[M]], R]]: ...

    @overload
    def on(self, number: int, /, *types: int | type) -> Callable[[H], H]: ...

    @overload
    def on(self, cls: type, other: int | type, /, *types: int | type) -> Callable[[H], H]: ...

    def on(self, *types: int | type) -> Callable[[Any], Any]:
        """Has a function, most often a coroutine function, called with each :class:`Message` of these types. A type may
        also be a class with a message type: then ``message.value`` is an object of it.

        Raises:
            TypeError: a class has no message type, or a type has a handler already.
        """
        return self._handlers.adding(types)

    async def receive(self, timeout: float | None = None) -> Message[Any] | None:
        """The next message that no handler takes; ``None`` if none comes within ``timeout`` seconds, or the node is
        closed.

        Raises:
            RuntimeError: the node has handlers, which get all messages.
        """
        self._check_asked()
        loop = self._listen()
        end = None if timeout is None else loop.time() + timeout
        while True:
            left = None if end is None else max(0.0, end - loop.time())
            found = await self._take(1, left)
            if not found:
                return None
            found[0]._settle(True)
            if not self._answers_probe(found[0]):
                return found[0]

    async def __aiter__(self) -> AsyncIterator[Message[Any]]:
        """The messages, until the node is closed."""
        while (message := await self.receive()) is not None:
            yield message

    async def _take(self, most: int, timeout: float | None) -> list[Message[Any]]:
        """The next messages; none if none has come in time, or nothing more will come."""
        loop = self._listen()
        end = None if timeout is None else loop.time() + timeout
        while True:
            if found := self._core.receive(most, 0.0):
                return cast("list[Message[Any]]", found)
            left = None if end is None else end - loop.time()
            if self._core.is_over() or (left is not None and left <= 0):
                return []
            if self._arrival is None:
                self._arrival = loop.create_future()
                loop.add_reader(self._core.fileno(), self._arrived)
            await asyncio.wait({self._arrival}, timeout=left)

    def _arrived(self) -> None:
        loop, arrival = self._loop, self._arrival
        assert loop is not None
        assert arrival is not None
        self._arrival = None
        loop.remove_reader(self._core.fileno())
        arrival.set_result(None)

    async def _work(self) -> None:
        """Handles messages, one after the other."""
        most = _AT_ONCE if self._concurrency == 1 else 1
        while messages := await self._take(most, None):
            for message in messages:
                await self._handle(message)
            await asyncio.sleep(0)

    async def _handle(self, message: Message[Any]) -> None:
        handler = self._handlers.of(message.type)
        if handler is None:
            message._settle(self._note_unhandled(message))
            return
        try:
            if handler.value_type is not None:
                _ = message.value  # a payload that does not fit never reaches the handler
            result = handler.function(message)
            if inspect.isawaitable(result):
                await result
            message._settle(True)
        except Exception as error:
            self._note_failure(handler.name, message, error)
            message._settle(False)

    def _dispatch(self) -> tuple[_core.RouteDispatch | None, int]:
        return None, 1

    # --- begin and end ---

    async def start(self) -> Node:
        """Takes messages from now on, in this event loop.

        Raises:
            AlreadyExists: a URL is served already.
            InvalidArgument: the table is wrong; the message names file and line.
            OSError: the table's file cannot be read.
        """
        loop = self._listen()
        self._begin()
        if self._handlers:
            self._workers = [loop.create_task(self._work()) for _ in range(self._concurrency)]
        return self

    async def ready(self, timeout: float | None = None) -> None:
        """Waits until a table is in force, and all the nodes that it names are connected.

        Raises:
            TimeoutError: that is not so within ``timeout`` seconds; the message says what is missing.
        """
        loop = self._listen()
        end = None if timeout is None else loop.time() + check_seconds("timeout", timeout)
        while not self.is_ready():
            if end is not None and loop.time() >= end:
                raise TimeoutError(self._what_is_missing())
            await asyncio.sleep(LOOK)

    async def close(self, grace: float = 5.0) -> None:
        """Ends: handles the messages that have come, and sends those that are queued, for at most ``grace`` seconds,
        or a day. Harmless when repeated.

        Raises:
            InvalidArgument: ``grace`` is no number, or negative.
        """
        loop = self._listen()
        grace = checked_grace(grace)
        # The handlers go on in this loop meanwhile.
        await loop.run_in_executor(None, self._begin_end, grace)
        if self._workers:
            _, cut_off = await asyncio.wait(self._workers, timeout=grace)
            for task in cut_off:
                task.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            self._workers = []
        await loop.run_in_executor(None, self._finish, grace)
        self._is_closed = True
        self._wake(self._calls.values())
        self._wake(self._waiting)
        loop.remove_reader(self._core.bell_fileno())
        self._loop = None

    async def __aenter__(self) -> Node:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker refuses it by itself
        __enter__ = __exit__ = wrong_with(for_loops(*HOW_NODES_ARE_USED))

    def _may_wait(self) -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return True
        return False

    def _listen(self) -> asyncio.AbstractEventLoop:
        """The running event loop, in which the node is told of room and of replies."""
        running = asyncio.get_running_loop()
        if self._loop is not running:
            if self._loop is not None:
                raise RuntimeError("this node belongs to another event loop: make one in each")
            self._loop = running
            running.add_reader(self._core.bell_fileno(), self._rung)
        return running

    def _rung(self) -> None:
        answered = self._core.rung()
        self._wake(call for number in answered if (call := self._calls.get(number)) is not None)
        self._wake(self._waiting)

    @staticmethod
    def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)
