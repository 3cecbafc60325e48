"""``nearcall.aio.Channel``: one connection for the clients of several services, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from copy import copy
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .. import _core
from ..call.interceptors import ClientInterceptor, intercept_client
from ..call.variables import current_deadline
from ..client.callables import make_callable
from ..client.channel import ChannelBase, check_service
from ..client.connected import ForLoops
from ..client.options import ChannelOptions
from ..client.references import Passages
from ..errors import DeadlineExceeded, RpcError, Unavailable
from ..loops.home import HomeLoop
from ..options.checked import check_url
from ..service.for_loops import Interface
from ..service.plan import MethodPlan
from .client import AsyncClient
from .closing import Closing
from .methods import Caller
from .objects import object_callable
from .room import RoomQueue
from .running import running_loop

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Channel", "connect"]

T = TypeVar("T", bound=Interface)

_SLICE = 0.1
"""Seconds for which a thread tries to connect before it checks that a task still waits for that."""
_LONG = 1 << 15
"""Characters of the shortest description that a thread reads, to keep the event loop free."""
_MOST_LOST = 3
"""Connections that may be lost while one call connects, before it gives up."""


class Channel(Caller, ChannelBase, ForLoops):
    """One connection to a server for the clients of any number of its services, for coroutines.

    Use it with ``async with``, or ``await`` it and call :meth:`close`; awaiting it again reconnects if the connection
    was lost. It belongs to the event loop it was connected in, and any number of tasks may use it at once::

        async with nearcall.aio.Channel("shm://shop") as channel:
            basket = channel.client(Basket).service
            prices = channel.client(Prices).service
            await basket.add("pen", await prices.of("pen"))

    Options and errors are those of :class:`nearcall.Channel`. Interceptors may be ``async def``; what ``proceed``
    returns is awaited, or for a stream iterated with ``async for``.
    """

    def __init__(self, url: str, **options: Unpack[ChannelOptions]) -> None:
        self._room = RoomQueue()
        self._home = HomeLoop()
        self._around = self._home.around
        super().__init__(url, None, options, for_loop=True)
        self._connection: _core.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polled: list[int] = []
        self._connecting: dict[bool, asyncio.Future[bool]] = {}
        self._opening = asyncio.Lock()
        self._sending_again: set[asyncio.Task[None]] = set()

    @overload
    def client(self, service: Callable[..., T]) -> AsyncClient[T]: ...
    @overload
    def client(self, service: Callable[..., object] | None = None) -> AsyncClient[Any]: ...
    def client(self, service: Callable[..., Any] | None = None) -> AsyncClient[Any]:
        """A client of one service, over this connection: :meth:`nearcall.Channel.client` says what it costs. It need
        not be awaited. Type checkers see the service as for :func:`connect`.

        Raises:
            FailedPrecondition: the server's service differs; the message names the method, the parameter and both
                types.
            Unavailable: the connection was lost: await the channel.
            Cancelled: the channel is closed.
            RuntimeError: the channel is not connected yet.
        """
        client: AsyncClient[Any] = AsyncClient(self, check_service(service, for_loop=True), owns_channel=False)
        client._begin()
        return client

    def method(self, path: str) -> Callable[[Iterable[bytes] | AsyncIterable[bytes]], AsyncIterator[bytes]]:
        """A method of gRPC by its path: see :meth:`nearcall.Channel.method`."""
        cls, name = self._with_path(path)
        found: Callable[[Any], AsyncIterator[bytes]] = getattr(self.client(cls).service, name)
        return found

    def close(self) -> Awaitable[None]:
        """Ends the connection at once; calls of all clients that are under way fail with :class:`~nearcall.Cancelled`,
        and so do all further calls. Harmless when repeated.

        Any function may call it. The result may be awaited, and has nothing to wait for.
        """
        if self._connection is not None:
            if not self._running().is_closed():
                for fileno in self._polled:
                    self._running().remove_reader(fileno)
            self._polled.clear()
            self._connection.close(self._why_closed())
        self._resolve_no_more()
        return Closing()

    async def __aenter__(self) -> Self:
        return await self._open()

    def __repr__(self) -> str:
        closed = self._connection is not None and self._connection.closed
        return f"<{'closed ' if closed else ''}asynchronous channel to {self._shown}>"

    async def _open(self) -> Self:
        async with self._opening:  # if several tasks come at once, one connects
            if self._connection is None:
                await self._begin()
        self._check_open()
        connection = self._opened()
        connection.check_loop()
        if not connection.connected:
            await self._renew(self._patience())
        return self

    def _reconnect(self) -> None:
        # This method is no coroutine, so it cannot wait for a connection.
        raise Unavailable(f"the connection to {self._shown} was lost: await the channel to connect anew")

    async def _begin(self) -> None:
        loop = self._loop = self._home.loop = running_loop()
        connection, options = self._make_connection(), self._settings.of_connection
        try:
            deadline = current_deadline.get()
            until = inf if deadline is None else loop.time() + deadline - monotonic()
            patient_until = None
            if options["wait_for_ready"]:
                # Without it there is one attempt, which ends by itself.
                patient_until = until = min(until, loop.time() + options["handshake_timeout"])
            with self._waiting():
                await self._connect(connection, patient_until, None if until == inf else until)
            description = connection.description
            if len(description) > _LONG:
                await loop.run_in_executor(None, self._agreements.foresee, description)
            self._connection = connection
            connection.use_loop(
                loop, loop.call_soon, connection.on_idle, self._connect_again, self._send_again, self._follow
            )
            self._follow()
        except BaseException:
            self._connecting.clear()
            connection.close()
            raise

    def _be_called(self) -> None:
        super()._be_called()
        # From now on the callbacks' threads receive on the connection, so the loop must watch another descriptor.
        self._follow()

    def _follow(self) -> None:
        """Lets the loop poll the present connections, and the earlier ones only as long as they have calls."""
        connection = self._opened()
        new = connection.watch()
        if new:
            for other in [other for other in self._polled if not connection.goes_on(other)]:
                # Its remaining calls learn that they have ended.
                self._on_readable(other)
        for fileno in new:
            self._polled.append(fileno)
            self._running().add_reader(fileno, self._on_readable, fileno)
            self._on_readable(fileno)

    def _on_readable(self, fileno: int) -> None:
        connection = self._opened()
        try:
            connection.on_readable(fileno)
            self._room.look()
        finally:
            if not connection.goes_on(fileno):
                self._polled.remove(fileno)
                self._running().remove_reader(fileno)
                connection.unwatch(fileno)

    async def _connect(self, connection: _core.Connection, patient_until: float | None, until: float | None) -> None:
        """Makes sure that there is a connection; any number of tasks may wait for it. Both times are in seconds of
        ``loop.time()``.

        Threads connect, a slice of time at a time, so that every task can give up when its own time is over.
        """
        loop, lost = self._running(), 0
        while not connection.connected:
            now = loop.time()
            if until is not None and now >= until:
                # If the last attempt failed, it raises its own error here, which says more.
                if not connection.try_connect(False, 0.0):
                    raise DeadlineExceeded(
                        f"there was no connection to {self._shown} before the deadline: the server does not answer"
                    )
                return
            patient = patient_until is not None and now < patient_until
            step = self._connecting.get(patient)
            if step is None or step.done():
                if not patient:
                    try:
                        # In the pause after a failure a call ends here: a thread for it costs ten times as much.
                        connection.check_pause()
                    except RpcError:
                        # A task that calls again and again must not keep the others from running.
                        await asyncio.sleep(0)
                        raise
                step = loop.run_in_executor(None, connection.try_connect, patient, _SLICE)
                step.add_done_callback(self._dialled)
                self._connecting[patient] = step
            await asyncio.wait([step], timeout=None if until is None else until - now)
            if step.done() and (failure := step.exception()) is not None:
                # Several tasks may wait: each gets a copy, with its own traceback.
                raise copy(failure)
            if step.done() and step.result() and not connection.connected:
                lost += 1
                if lost >= _MOST_LOST and not patient:
                    raise Unavailable(
                        f"each connection to {self._shown} is lost at once: the server takes no calls there"
                    )

    def _dialled(self, step: asyncio.Future[bool]) -> None:
        """Called at the end of each slice, even if the tasks that waited for it have given up."""
        failed = step.cancelled() or step.exception() is not None
        if not failed and self._connection is not None and not self._connection.closed:
            # The next calls find a connection, so it must be watched already.
            self._follow()

    def _patience(self) -> float:
        """Seconds for which awaiting the channel waits for a server that is not there."""
        return inf if self._settings.of_connection["wait_for_ready"] else 0.0

    async def _renew(self, patience: float, left: float | None = None) -> None:
        now = self._running().time()
        until = None if left is None else now + left
        patient_until = min(now + patience, inf if until is None else until) if patience else None
        await self._connect(self._opened(), patient_until, until)
        self._follow()

    async def _connect_again(
        self, pause: float, patience: float, left: float | None, failure: BaseException | None = None
    ) -> None:
        """Makes sure that there is a connection for a call: the one before was lost, or the server has refused the call
        or failed. If there is no server, this raises ``failure``, the error of the attempt before.
        """
        until = None if left is None else self._running().time() + left
        if pause:
            await asyncio.sleep(pause)
        try:
            await self._renew(patience, None if until is None else until - self._running().time())
        except (Unavailable, DeadlineExceeded):
            if failure is None:
                raise
            raise failure from None

    def _send_again(self, stream: _core.Stream, pause: float, patience: float, left: float | None) -> None:
        """Sends a stream again that the server has refused before it began."""
        task = self._running().create_task(self._connect_and_send(stream, pause, patience, left))
        self._sending_again.add(task)
        task.add_done_callback(self._sending_again.discard)

    async def _connect_and_send(self, stream: _core.Stream, pause: float, patience: float, left: float | None) -> None:
        now = self._running().time()
        until = None if left is None else now + left
        try:
            await self._connect_again(pause, patience, left)
            while not stream.send_again():
                await self._renew(patience, None if until is None else until - self._running().time())
        except Exception as failure:  # the task that waits for the stream raises it
            stream.fail(failure)
        except BaseException:
            stream.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise self._not_yet()
        return self._loop

    def _opened(self) -> _core.Connection:
        if self._connection is None:
            raise self._not_yet()
        return self._connection

    def _not_yet(self) -> RuntimeError:
        return RuntimeError(f"not connected yet to {self._shown}: use 'async with', or await it")

    def _waits_for_room(self) -> bool:
        return bool(self._settings.of_connection["oneway"] == "block")

    def _make_passages(self) -> Passages:
        make_callable = partial(_object_callable, self._settings.interceptors, self._room)
        return Passages(make_callable, self._settings.max_values, self._home.around)


def _object_callable(
    interceptors: tuple[ClientInterceptor, ...],
    room: RoomQueue,
    target: _core.Calls,
    plan: MethodPlan,
    method: _core.Method,
    for_loop: bool,
) -> Any:
    called = object_callable(target, plan, method, room) if for_loop else make_callable(target, plan, method)
    return intercept_client(interceptors, plan, called, for_loop=for_loop)


# Callable, not type[T]: to type checkers a Protocol is no type[T], and interfaces are just those.
@overload
def connect(url: str, service: Callable[..., T], **options: Unpack[ChannelOptions]) -> AsyncClient[T]: ...
@overload
def connect(
    url: str, service: Callable[..., object] | None = None, **options: Unpack[ChannelOptions]
) -> AsyncClient[Any]: ...
def connect(url: str, service: Callable[..., Any] | None = None, **options: Unpack[ChannelOptions]) -> AsyncClient[Any]:
    """Connects to a server from an event loop: the result is the only client of a :class:`Channel`, and closes that
    channel. Options and errors are those of :func:`nearcall.connect`::

        async with nearcall.aio.connect("shm://calc", AsyncCalculator) as calc:
            await calc.add(1, 2)

    Any class of the service will do. Type checkers see the service inside the block as an interface that derives from
    :class:`nearcall.aio.Interface`, if it is given one, and ``nearcall stub --async`` writes it. Else they see ``Any``:
    a class whose methods are ordinary functions cannot tell them that a client's methods are awaited.

    Interceptors may be ``async def``; what ``proceed`` returns is awaited, or for a stream iterated with ``async for``.
    """
    check_url(url)
    return AsyncClient(Channel(url, **options), check_service(service, for_loop=True), owns_channel=True)
