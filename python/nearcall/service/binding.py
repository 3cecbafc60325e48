"""Python's rules for calling, applied before a call is sent: which argument was given for which parameter.

The errors read like Python's own, and name the method, the argument and the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, TypeAlias

from ..errors import InvalidArgument
from .plan import Slot

__all__ = ["POSITIONAL_KINDS", "Binder", "make_adapter"]

POSITIONAL_KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
Bound: TypeAlias = "tuple[Any, ...] | dict[str, Any]"


class Binder:
    """Binds the arguments of one method.

    Args:
        method: The method's full name, for messages.
        slots: All parameters in order.
        signature: The signature as written, for messages.
        stream: The name of the streaming parameter, if there is one.
    """

    def __init__(self, method: str, slots: Sequence[Slot], signature: str, stream: str | None = None) -> None:
        self._method = method
        self._slots = {slot.name: slot for slot in slots}
        self._positional = [slot.name for slot in slots if slot.by_position]
        self._signature = signature
        self._stream = stream

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """The arguments: a tuple in the parameters' order if every parameter was given, else a dict by name.

        Raises:
            InvalidArgument: an argument is missing, unexpected, given twice, or there are too many.
        """
        given = self._collect(args, kwargs)
        names = self._slots
        return tuple(given[name] for name in names) if len(given) == len(names) else given

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Bound, Any]:
        """Like :meth:`bind`, but returns the stream separately: (the other arguments, the stream).

        Raises:
            InvalidArgument: as :meth:`bind`; also if the stream cannot be iterated over.
        """
        if self._stream is None:
            return self.bind(args, kwargs), None
        given = self._collect(args, kwargs)
        stream: Any = given.pop(self._stream)
        if not hasattr(stream, "__iter__") and not hasattr(stream, "__aiter__"):
            raise self._error(f"argument '{self._stream}' must be an iterable, got {type(stream).__name__}")
        names = [name for name in self._slots if name != self._stream]
        return (tuple(given[name] for name in names) if len(given) == len(names) else given), stream

    def _collect(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            count = len(self._positional)
            plural = "argument" if count == 1 else "arguments"
            raise self._error(f"takes {count} positional {plural}, got {len(args)}; it is {self._signature}")
        given = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            slot = self._slots.get(name)
            if slot is None:
                raise self._error(f"unexpected argument '{name}'{self._hint(name)}; it is {self._signature}")
            if not slot.by_name:
                raise self._error(f"argument '{name}' must be given by position; it is {self._signature}")
            if name in given:
                raise self._error(f"argument '{name}' is given twice, by position and by name")
            given[name] = value
        missing = [name for name, slot in self._slots.items() if slot.required and name not in given]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            verb = "argument {} is" if len(missing) == 1 else "arguments {} are"
            raise self._error(f"{verb.format(names)} missing; it is {self._signature}")
        return given

    def _hint(self, name: str) -> str:
        import difflib  # only on the way to an error

        close = difflib.get_close_matches(name, self._slots, n=1)
        return f" (did you mean '{close[0]}'?)" if close else ""

    def _error(self, problem: str) -> InvalidArgument:
        return InvalidArgument(f"{self._method}(): {problem}")


def make_adapter(slots: Sequence[Slot]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the ``adapt`` of a method's plan: lets a handler be called with every parameter by position."""
    count = sum(slot.by_position for slot in slots)
    keywords = [slot.name for slot in slots if not slot.by_position]
    if not keywords:
        return _unchanged

    def adapt(handler: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            return handler(*values[:count], **dict(zip(keywords, values[count:], strict=True)))

        return call

    return adapt


def _unchanged(handler: Callable[..., Any]) -> Callable[..., Any]:
    return handler
