"""What a plugin has declared while it was imported. There is one plugin in a process."""

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
    """What a plugin has declared, and which of its handlers run now."""

    def __init__(self) -> None:
        self.handlers: dict[str, Registered] = {}
        """Its handlers, by the names of extension points."""
        self.offered: list[object] = []
        """Objects that the host may call."""
        self.used: dict[str, Any] = {}
        """Services of the host that it uses, by the names of permissions."""
        self.at_end: list[Callable[[], object]] = []
        """Functions to call when it is stopped."""
        self.running: list[None] = []
        """Has an item for each handler that runs now. A list, because appending and popping are one step each."""
        self.storage = ""
        """The directory in which it may keep files; empty if it has none."""
        self.no_storage = ""
        """Why it has no such directory."""
        self.complete = False
        """Whether the plugin is imported; from then on the host may be told what it has."""

    def check_open(self, what: str) -> None:
        """Refuses a declaration that the host would never learn of.

        Raises:
            RuntimeError: the plugin is imported already.
        """
        if self.complete:
            raise RuntimeError(f"{what} comes too late: write it where it runs while the plugin is imported")


registry = Registry()
"""The registry of this process."""
