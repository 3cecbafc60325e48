"""The variables that hold the values of the ``with`` blocks around a call. The core reads them with every call."""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING = False  # as in nearcall/__init__.py
if TYPE_CHECKING:
    from typing import Any

__all__ = ["current_compression", "current_deadline", "current_metadata"]

current_deadline: ContextVar[float | None] = ContextVar("nearcall.deadline", default=None)
"""The deadline of the surrounding blocks, in seconds of ``time.monotonic()``."""
current_metadata: ContextVar[Any] = ContextVar("nearcall.metadata", default=None)
"""The innermost ``nearcall.metadata`` block, or ``None``."""
current_compression: ContextVar[Any] = ContextVar("nearcall.compression", default=None)
"""The innermost ``nearcall.compression`` block, or ``None``; the core asks the block before each message of a call."""
