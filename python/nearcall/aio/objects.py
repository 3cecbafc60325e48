"""Calls of objects that were received as references, from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .. import _core
from ..errors import Unavailable
from ..service.plan import MethodPlan
from .methods import Caller
from .room import RoomQueue

__all__ = ["object_callable"]


class _ObjectCaller(Caller):
    """Calls objects; when their connection is gone, so are they."""

    def __init__(self, room: RoomQueue) -> None:
        self._room = room

    def _running(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def _renew(self, patience: float, left: float | None = None) -> None:
        raise Unavailable("the connection that the reference belongs to is gone")

    def _waits_for_room(self) -> bool:
        return True


def object_callable(
    target: _core.Calls, plan: MethodPlan, method: _core.Method, room: RoomQueue | None = None
) -> Callable[..., Any]:
    """The callable for a method of an object, to be awaited.

    Args:
        target: The object.
        plan: The method.
        method: The method, for the core.
        room: The queue in which one-way calls of the connection wait for room; a new queue if not given.
    """
    return _ObjectCaller(room or RoomQueue())._callable(target, plan, method)
