"""Where calls go. Functions that make callables take it."""

from __future__ import annotations

from typing import TypeAlias

from .._core import Connection, Target

__all__ = ["Calls", "Target"]

Calls: TypeAlias = "Connection | Target"
"""To what a server serves, or to one object at the other end of a connection."""
