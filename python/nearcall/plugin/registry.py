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
        self.running: list[None] = []
        """As long as there are handlers that run now: to append and to pop are one step each."""
        self.storage = ""
        """The directory in which it may keep files; empty: none."""
        self.no_storage = ""
        """Why there is none."""
        self.complete = False
        """The plugin is imported, and the host is told what it has."""

    def check_open(self, what: str) -> None:
        """Refuses a declaration that the host would never learn of.

        Raises:
            RuntimeError: the plugin is imported already.
        """
        if self.complete:
            raise RuntimeError(f"{what} comes too late: write it where it runs while the plugin is imported")


registry = Registry()
"""That of this process."""
