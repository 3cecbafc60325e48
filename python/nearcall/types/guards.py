"""Type guards for untrusted values that a JSON or MessagePack decoder made."""

from __future__ import annotations

from typing import Any, TypeGuard

__all__ = ["is_dict", "is_list"]


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    """Whether a value is a dictionary."""
    return isinstance(value, dict)
