"""How often an event loop has its turn while a task of it works."""

from __future__ import annotations

import asyncio
from typing import Any


class Turns:
    """Counts the running loop's turns during an ``async with`` block."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Turns:
        self._counting = asyncio.create_task(self._go_on())
        return self

    async def __aexit__(self, *_error: Any) -> None:
        self._counting.cancel()

    async def _go_on(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)
