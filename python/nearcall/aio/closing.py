"""The result of ``close()`` in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["Closing"]


class Closing:
    """The result of closing something. It is closed already; awaiting this waits until everything that belonged to it
    has ended.

    It is no coroutine, because Python would warn of a coroutine that is not awaited, and closing needs no event loop.

    Args:
        wait: Waits for the end; ``None`` where nothing is left to wait for.
    """

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:
        if self._wait is not None:
            yield from self._wait().__await__()
