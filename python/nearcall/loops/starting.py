"""Begins the task of a handler at once, so that a handler that never waits costs no turn of the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeAlias

__all__ = ["starter"]

Starter: TypeAlias = "Callable[[asyncio.AbstractEventLoop, Coroutine[Any, Any, None]], asyncio.Task[None]]"


def starter(loop: asyncio.AbstractEventLoop) -> Starter:
    """Chooses a function that makes a task of a coroutine and runs its first step; call it outside of all tasks. The
    task is a real task from the beginning: it is ``asyncio.current_task()``, can be cancelled, and has a context of its
    own.

    Where that is impossible, the first step runs in the loop's next turn.
    """
    start: Starter = _start_later
    if sys.version_info >= (3, 12):
        start = _start_eagerly
    elif "call_soon" not in getattr(loop, "__dict__", ("call_soon",)):
        start = _start_first
    return start


def _start_eagerly(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    if loop.get_task_factory() is not None:
        return _start_later(loop, coroutine)
    return asyncio.Task(coroutine, loop=loop, eager_start=True)  # type: ignore[call-arg,unused-ignore]


def _start_first(loop: Any, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """For Python 3.10 and 3.11, which do not change any more. A new task calls ``loop.call_soon`` with its first step;
    here that step is kept and run at once. Other calls of ``call_soon`` meanwhile, by other threads or by a finalizer,
    go to the loop.
    """
    if loop.get_task_factory() is not None:
        return _start_later(loop, coroutine)
    later = loop.call_soon
    steps: list[tuple[Callable[[], None], Context]] = []

    def call_soon(callback: Callable[..., Any], *arguments: Any, context: Context | None = None) -> Any:
        owner = getattr(callback, "__self__", None)
        if context is not None and isinstance(owner, asyncio.Task) and owner.get_coro() is coroutine:
            return steps.append((callback, context))
        return later(callback, *arguments, context=context)

    loop.call_soon = call_soon
    try:
        task: asyncio.Task[None] = asyncio.Task(coroutine, loop=loop)
    finally:
        del loop.call_soon
    for step, context in steps:
        context.run(step)
    return task


def _start_later(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return loop.create_task(coroutine)
