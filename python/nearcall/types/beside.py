"""A buffer that travels beside the message, where the codec can, and not within it."""

from __future__ import annotations

__all__ = ["Beside"]


class Beside:
    """A contiguous buffer of bytes. It arrives as a read-only view, over shared memory without a copy."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def __repr__(self) -> str:
        return f"<{self.view.nbytes} bytes>"
