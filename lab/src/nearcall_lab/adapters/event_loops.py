"""What adapters for asyncio share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from nearcall_lab.contract import Stop


def run(work: Coroutine[Any, Any, Any], on_uvloop: bool) -> None:
    """Runs a coroutine to its end, on asyncio's own event loop or on uvloop's."""
    if on_uvloop:
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)


async def until_stopped(stop: Stop) -> None:
    """Returns when the server is asked to stop."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(asked.set)

    stop.on(wake)
    if not stop.is_set():
        await asked.wait()
