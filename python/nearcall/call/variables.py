"""The variables that hold the values of the ``with`` blocks around a call, which the core reads with every call, and
the call that a task serves, which the core sets.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context

TYPE_CHECKING = False  # as in nearcall/__init__.py
if TYPE_CHECKING:
    from typing import Any

    from .. import _core

__all__ = ["LentCall", "current_compression", "current_deadline", "current_metadata", "current_request", "outside"]


class LentCall:
    """A call that a thread serves, while the event loop runs an interceptor for it."""

    __slots__ = ("_call",)

    def __init__(self, call: _core.Call) -> None:
        self._call = call

    def call(self) -> _core.Call:
        """The call."""
        return self._call


current_deadline: ContextVar[float | None] = ContextVar("nearcall.deadline", default=None)
"""The deadline of the surrounding blocks, in seconds of ``time.monotonic()``."""
current_metadata: ContextVar[Any] = ContextVar("nearcall.metadata", default=None)
"""The innermost ``nearcall.metadata`` block, or ``None``."""
current_compression: ContextVar[Any] = ContextVar("nearcall.compression", default=None)
"""The innermost ``nearcall.compression`` block, or ``None``; the core asks the block before each message of a call."""
current_request: ContextVar[_core.LoopRequest | LentCall | None] = ContextVar("nearcall.request", default=None)
"""The request that a task of the server's event loop serves; threads keep theirs in the core."""


def outside() -> Context:
    """A copy of the current context, as it is outside of all blocks and handlers."""
    context = copy_context()
    context.run(current_deadline.set, None)
    context.run(current_metadata.set, None)
    context.run(current_compression.set, None)
    context.run(current_request.set, None)
    return context
