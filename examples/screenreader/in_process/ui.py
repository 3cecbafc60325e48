"""Messages to the user."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["message"]

_spoken: Callable[[str], None] = print


def message(text: str) -> None:
    """Speaks a message after what is spoken now."""
    _spoken(text)


def speak_with(speak: Callable[[str], None]) -> None:
    """The program's own: says how messages are spoken."""
    global _spoken  # noqa: PLW0603 - a module's state is what such interfaces are made of
    _spoken = speak
