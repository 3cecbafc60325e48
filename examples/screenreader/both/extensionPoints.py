"""Extension points inside one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Action:
    """Tells all that are registered."""

    def __init__(self) -> None:
        self._handlers: list[Callable[..., object]] = []

    def register(self, handler: Callable[..., object]) -> None:
        self._handlers.append(handler)

    def unregister(self, handler: Callable[..., object]) -> None:
        self._handlers.remove(handler)

    def notify(self, **kwargs: Any) -> None:
        for handler in list(self._handlers):
            handler(**kwargs)


class Filter(Generic[T]):
    """Passes a value through all that are registered."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[T], T]] = []

    def register(self, handler: Callable[[T], T]) -> None:
        self._handlers.append(handler)

    def unregister(self, handler: Callable[[T], T]) -> None:
        self._handlers.remove(handler)

    def apply(self, value: T) -> T:
        for handler in list(self._handlers):
            value = handler(value)
        return value
