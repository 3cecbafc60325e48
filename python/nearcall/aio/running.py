"""The event loop in which something connects."""

from __future__ import annotations

import asyncio
import sys

__all__ = ["running_loop"]


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of asyncio that runs here.

    Raises:
        RuntimeError: none runs; the message says what to do.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(_advice()) from None


def _advice() -> str:
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return (
            "nearcall.aio is for asyncio, and this is trio: use a client of nearcall.connect, and let threads wait for "
            "its calls, 'await trio.to_thread.run_sync(service.method, ...)'; or run an event loop of asyncio in trio, "
            "by trio_asyncio.open_loop()"
        )
    return "nearcall.aio connects in coroutines of asyncio, and no event loop of it runs in this thread"
