"""One-way calls of an event loop that wait until there is room to send."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

__all__ = ["RoomQueue"]

_SHORTEST = 0.001
"""Seconds until the first waiting call tries again by itself, doubled each time up to the longest."""
_LONGEST = 0.02


class _Oneway(Protocol):
    def attempt(self, *args: Any, **kwargs: Any) -> bool: ...
    def time_allowed(self) -> float | None: ...
    def late(self) -> BaseException: ...


class _Waiter:
    """A call that waits for its turn or for room."""

    future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class RoomQueue:
    """Sends one-way calls in the order in which they were awaited. The first waiting call tries again when the
    connection has news, and now and then by itself, because nothing reports that a socket has room again.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiter] = deque()

    def look(self) -> None:
        """Called when there may be room."""
        if self._waiting:
            self._waiting[0].wake()

    async def send(
        self,
        method: _Oneway,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ready: Callable[[], Awaitable[None] | None],
    ) -> None:
        """Sends a call as soon as there is room. ``ready`` renews the connection if need be.

        Raises:
            DeadlineExceeded: there was no room until the call's deadline. Nothing was sent.
        """
        if (connecting := ready()) is not None:
            await connecting
        if not self._waiting and method.attempt(*args, **kwargs):
            return
        loop, left = asyncio.get_running_loop(), method.time_allowed()
        until = None if left is None else loop.time() + left
        waiter, pause = _Waiter(), _SHORTEST
        self._waiting.append(waiter)
        try:
            while True:
                first = self._waiting[0] is waiter
                if first and (connecting := ready()) is not None:
                    await connecting
                if first and method.attempt(*args, **kwargs):
                    return
                left = None if until is None else until - loop.time()
                if left is not None and left <= 0:
                    raise method.late()
                waits = [seconds for seconds in (left, pause if first else None) if seconds is not None]
                await self._pause(waiter, min(waits, default=None))
                pause = min(2 * pause, _LONGEST) if first else _SHORTEST
        finally:
            self._waiting.remove(waiter)
            self.look()

    @staticmethod
    async def _pause(waiter: _Waiter, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        waiter.future = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, waiter.wake)
        try:
            await waiter.future
        finally:
            waiter.future = None
            if timer is not None:
                timer.cancel()
