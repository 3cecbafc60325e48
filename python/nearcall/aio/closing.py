"""What ``close()`` returns in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["Closing"]


class Closing:
    """Something was closed when this was made; awaiting it waits until all that belonged to it has ended.

    No coroutine, because Python would warn of one that nobody awaits, and closing needs no event loop.

    Args:
        wait: Waits for the end; ``None`` where nothing is left to wait for.
    """

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:
        if self._wait is not None:
            yield from self._wait().__await__()
