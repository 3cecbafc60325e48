"""Runs coroutine handlers of a server in an event loop that the user's program runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from contextvars import Context
from typing import Any

from .. import _core
from ..service.plan import MethodPlan
from .handlers import LoopThread

__all__ = ["GuestLoop"]

_MOMENT = 1.0
"""Seconds to wait for the loop to run the end of a server."""


class GuestLoop(LoopThread):
    """Like :class:`LoopThread`, in a loop that runs already, so that handlers can share objects with the rest of the
    program.

    Only :meth:`start` is called in the loop's own thread, everything else in others.
    """

    def __init__(
        self,
        core: _core.Server,
        handlers: Sequence[tuple[MethodPlan, Any]],
        loop: asyncio.AbstractEventLoop,
        context: Context,
        blocked_loop_after: float | None,
    ) -> None:
        super().__init__(core, handlers, lambda: loop, context, blocked_loop_after)

    def start(self) -> None:
        """Takes requests from now on."""
        self._watch_queue()
        _core.enter_handler_loop(self._loop)
        self._begin_watch(threading.get_ident())

    def leave(self) -> None:
        """Cancels the handlers that are left, and takes no requests any more."""
        super().leave()
        left = threading.Event()

        def leave() -> None:
            for task in self._tasks | self._queued:
                task.cancel()
            self._loop.remove_reader(self._core.loop_fileno())
            _core.leave_handler_loop(self._loop)
            self._watch(_core.Watch.QUEUE)
            left.set()

        with contextlib.suppress(RuntimeError):  # the loop is closed, and watches nothing any more
            self._loop.call_soon_threadsafe(leave)
            left.wait(_MOMENT)

    def stop(self) -> None:
        """Leaves the loop running."""
        if not self.over:
            self.leave()
