"""Which function takes which messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import _core
from ..types.hints import type_name
from .message import check_number, codec_of, number_of

__all__ = ["Handler", "Handlers"]

F = TypeVar("F", bound=Callable[..., Any])


class Handler(NamedTuple):
    """A function that takes messages."""

    function: Callable[..., Any]
    value_type: type | None
    """What payloads are made of, if the handler asks for that."""
    name: str


def numbers_of(types: Sequence[object]) -> dict[int, type | None]:
    """The numbers of message types, each with the class that it was given as, if it was.

    Raises:
        TypeError: a class has no message type, something is no type at all, or there is none.
        ValueError: a number is too large.
    """
    if not types:
        raise TypeError("say which messages the handler takes: @node.on(1000)")
    numbers = dict[int, type | None]()
    for each in types:
        if not isinstance(each, type):
            if callable(each):
                raise TypeError("say which messages the handler takes: @node.on(1000), and not @node.on")
            numbers[check_number("message type", each)] = None
            continue
        number = number_of(each)
        if number is None:
            raise TypeError(f"{type_name(each)} has no message type: decorate it with @route.message(number)")
        numbers[number] = each
    return numbers


class Handlers:
    """The handlers of a node.

    Args:
        core: What has them called, if no event loop does.
        coroutines: Whether they may be coroutine functions.
    """

    def __init__(self, core: _core.RouteNode, coroutines: bool) -> None:
        self.by_type: dict[int, Handler] = {}
        self._core = core
        self._coroutines = coroutines

    def add(self, numbers: Mapping[int, type | None], function: Callable[..., Any]) -> None:
        """Adds a function for messages of some types, which :func:`numbers_of` has found.

        Raises:
            TypeError: a type has a handler already, or it is no function.
        """
        if not callable(function):
            raise TypeError(f"a handler is a function that takes a message, not {function!r}")
        if inspect.iscoroutinefunction(function) and not self._coroutines:
            raise TypeError(
                "handlers of this node run in its threads, and nobody would await this one: write 'def', or use a node "
                "of nearcall.route.aio"
            )
        name = getattr(function, "__qualname__", repr(function))
        for number in numbers:
            if number in self.by_type:
                raise TypeError(f"messages of type {number} have a handler already: {self.by_type[number].name}")
        for number, cls in numbers.items():
            self.by_type[number] = Handler(function, cls, name)
            self._core.handle(number, function, None if cls is None else codec_of(cls), name)

    def adding(self, types: Sequence[object]) -> Callable[[F], F]:
        """What adds a function for messages of these types, and returns it.

        Raises:
            TypeError, ValueError: as :func:`numbers_of`.
        """
        numbers = numbers_of(types)

        def add(function: F) -> F:
            self.add(numbers, function)
            return function

        return add

    def of(self, number: int) -> Handler | None:
        """The handler of messages of this type; ``None`` if there is none."""
        return self.by_type.get(number)

    def types(self) -> list[int]:
        """The types of messages that have handlers."""
        return sorted(self.by_type)

    def __len__(self) -> int:
        return len(self.by_type)
