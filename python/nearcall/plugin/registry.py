"""What a plugin has declared while it was imported: one process is one plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Registered", "Registry", "registry"]


class Registered(NamedTuple):
    """A handler of an extension point."""

    served: object
    """The object that answers."""
    priority: int


class Registry:
    """What a plugin has declared, and what of it runs now."""

    def __init__(self) -> None:
        self.handlers: dict[str, Registered] = {}
        """By the names of extension points."""
        self.offered: list[object] = []
        """Objects that the host may call."""
        self.used: dict[str, Any] = {}
        """Services of the host that it uses, by the names of permissions."""
        self.at_end: list[Callable[[], object]] = []
        """Functions to call when it is stopped."""
        self.running: set[object] = set()
        """A mark for each handler that runs now; adding and discarding are one step each."""


registry = Registry()
"""That of this process."""
