"""Which function takes which messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..types.hints import type_name
from .message import check_number, number_of

__all__ = ["Handler", "Handlers"]


class Handler(NamedTuple):
    """A function that takes messages."""

    function: Callable[..., Any]
    value_type: type | None
    """What payloads are made of, if the handler asks for that."""
    name: str


class Handlers:
    """The handlers of a node."""

    def __init__(self) -> None:
        self._by_type: dict[int, Handler] = {}

    def add(self, types: Sequence[int | type], function: Callable[..., Any]) -> None:
        """Adds a function for some types.

        Raises:
            TypeError: a class has no message type, a type has a handler already, or there is no type.
        """
        if not callable(function):
            raise TypeError(f"a handler is a function that takes a message, not {function!r}")
        if not types:
            raise TypeError("say which messages the handler takes: @node.on(1000)")
        name = getattr(function, "__qualname__", repr(function))
        for each in types:
            number: int | None
            number, value_type = (number_of(each), each) if isinstance(each, type) else (each, None)
            if number is None:
                raise TypeError(f"{type_name(each)} has no message type: decorate it with @route.message(number)")
            check_number("message type", number)
            if number in self._by_type:
                raise TypeError(f"messages of type {number} have a handler already: {self._by_type[number].name}")
            self._by_type[number] = Handler(function, value_type, name)

    def of(self, number: int) -> Handler | None:
        """The handler of messages of this type; ``None`` if there is none."""
        return self._by_type.get(number)

    def type_of(self, number: int) -> type | None:
        """What payloads of messages of this type are made of, if a handler says so."""
        handler = self._by_type.get(number)
        return None if handler is None else handler.value_type

    def types(self) -> list[int]:
        """The types of messages that have handlers."""
        return sorted(self._by_type)

    def __len__(self) -> int:
        return len(self._by_type)
