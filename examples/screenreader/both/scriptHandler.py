"""Scripts: methods that a gesture calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def script(gesture: str, description: str = "") -> Callable[[F], F]:
    """Binds a method to a gesture."""

    def bind(function: F) -> F:
        function.gesture = gesture  # type: ignore[attr-defined]
        function.__doc__ = description
        return function

    return bind
