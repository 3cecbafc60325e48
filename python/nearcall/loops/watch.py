"""Logs what holds up the event loop of coroutine handlers: such a loop is silent, and so are all its handlers.

The core watches (``crates/core/src/server/threads/loop_watch.rs``), and calls this when the loop has not turned for
some time.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import CodeType, FrameType
from typing import Any

from .. import _core
from ..log import ERROR, INFO, WARNING, is_logged, log
from ..service.plan import MethodPlan
from ..types.shown import stack_text

__all__ = ["DEFAULT_BLOCKED_LOOP_AFTER", "LoopWatch"]

DEFAULT_BLOCKED_LOOP_AFTER = 1.0
"""Seconds without a turn after which a loop counts as blocked, unless the user says otherwise."""
PAUSE = 60.0
"""Seconds in which one thing that blocks the loop is logged once."""
MOST_KINDS = 256
"""Things that are told apart at the same time; further ones count as one."""
_OURS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, os.path.dirname(asyncio.__file__) + os.sep)


class LoopWatch:
    """Watches the loop of one server from a thread of its own.

    Args:
        core: The server.
        handlers: Its handlers, for their names.
        seconds: How long the loop may not turn before that is logged.
    """

    def __init__(self, core: _core.Server, handlers: Sequence[tuple[MethodPlan, Any]], seconds: float) -> None:
        self._core = core
        self._handlers = handlers
        self._seconds = seconds
        self._loops_thread: int | None = None
        self._said: dict[tuple[str, ...], tuple[float, int]] = {}
        """When each thing was logged last, and how often it was left out since."""
        self._told = False
        """Whether the log says of a loop that turned no more when this looked."""
        self._thread = threading.Thread(target=self._watch, name="nearcall-loop-watch", daemon=True)

    def start(self, loops_thread: int | None) -> None:
        """Begins to watch the loop of the thread with this identity."""
        self._loops_thread = loops_thread
        self._thread.start()

    def end(self) -> None:
        """Ends the watch."""
        self._core.end_watch()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _watch(self) -> None:
        try:
            self._core.watch_loop(self._seconds, self._on_held_up, self._on_turned)
        except BaseException as error:
            log(ERROR, "the watch over the server's event loop ended", error=error)

    def _on_held_up(self, seconds: float, still: bool) -> None:
        """The loop has not turned for so long; whether it still does not."""
        self._told = False
        if not is_logged(WARNING):
            return
        frame = sys._current_frames().get(self._loops_thread or 0) if still else None
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        # From the outermost of the user's frames, or of all, to the innermost.
        frames.reverse()
        first = next((place for place, each in enumerate(frames) if not _is_ours(each)), 0)
        del frames[:first]
        name = self._name(frames)
        kind = (name, *((frames[-1].f_code.co_filename, _qualified(frames[-1].f_code)) if frames else ()))
        left_out = self._count(kind)
        if left_out is None:
            return
        self._told = still
        text = "the event loop has not turned for %.1f s, and all coroutine handlers wait: %s holds it up"
        if not still:
            # It is not known when it turned: its thread, or another one, may have kept the interpreter.
            seconds = self._seconds
            text = (
                "the event loop did not turn for %.1f s or longer, and all coroutine handlers waited: %s held it up, "
                "and was over before this thread got the interpreter to see it"
            )
        if left_out:
            text += f" (as {left_out} times more since the last line of it)"
        log(WARNING, text, seconds, name, stack=stack_text(frames) if frames else None)

    def _on_turned(self, seconds: float) -> None:
        """The loop turns again."""
        if self._told:
            log(INFO, "the event loop turns again, after %.1f s", seconds)

    def _count(self, kind: tuple[str, ...]) -> int | None:
        """How often this thing was left out before; ``None`` if it is to be left out again."""
        now = time.monotonic()
        if kind not in self._said and len(self._said) >= MOST_KINDS:
            self._said = {each: said for each, said in self._said.items() if now - said[0] < PAUSE}
            if len(self._said) >= MOST_KINDS:
                kind = ()
        since, left_out = self._said.get(kind, (-PAUSE, 0))
        if now - since < PAUSE:
            self._said[kind] = since, left_out + 1
            return None
        self._said[kind] = now, 0
        return left_out

    def _name(self, frames: Sequence[FrameType]) -> str:
        """The handler that runs; otherwise the first function of these frames."""
        names = {code: plan.full_name for plan, handler in self._handlers if (code := _code_of(handler)) is not None}
        handlers = (names[frame.f_code] for frame in frames if frame.f_code in names)
        otherwise = _qualified(frames[0].f_code) if frames else "something"
        return next(handlers, otherwise)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_OURS) or name == threading.__file__


def _qualified(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)  # Python 3.10 has only the latter


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    found = inspect.unwrap(getattr(handler, "__func__", handler)) if callable(handler) else None
    return getattr(found, "__code__", None)
