"""Objects that travel as values of another type: what is checked and encoded in their place, and how they are made
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..types.carried import CarriedShape
from ..types.hints import describe_value, short_repr, type_name
from ..types.shown import shown
from .checks import outer_type
from .refused import RefusedError, told
from .senders import MisfitError, Sender, loss

__all__ = ["CarriedSender", "giver", "object_maker"]


class CarriedSender(Sender):
    """A class whose objects travel as values of another type."""

    deep = True

    def __init__(self, shape: CarriedShape, inner: Sender | None) -> None:
        self._carried = shape.carried
        self._give = giver(shape)
        self._inner = inner or Sender()
        self.kinds = frozenset(shape.carried.kinds)

    def fit(self, value: Any) -> None:
        """See :class:`Sender`."""
        carried = self._carried
        if not carried.fits(value):
            name = type_name(carried.cls)
            raise MisfitError(f"expected {name}, got {describe_value(value)}{loss(value, carried.cls)}")
        self.kinds = frozenset(carried.kinds)

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        return True

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        given = self._give(value)
        return self._inner.rewrite(given) if self._inner.check(given) else given


def giver(shape: CarriedShape) -> Callable[[Any], Any]:
    """Makes a function from an object, which is of the class, to the value that travels; it raises
    :class:`MisfitError` if there is none.
    """
    give, name, to = shape.carried.give, type_name(shape.carried.cls), type_name(shape.to)
    fits = outer_type(shape.to).fits

    def given(value: Any) -> Any:
        try:
            carried = give(value)
        except (MisfitError, MemoryError):
            raise
        except Exception as problem:  # of any class: the user's function
            why = told(problem, "its 'give'")
            raise MisfitError(f"{name} cannot be sent: {why}") from problem
        if fits is not None and not fits(carried):
            raise MisfitError(f"{name} travels as {to}, and its 'give' has made {describe_value(carried)} of an object")
        return carried

    return given


def object_maker(shape: CarriedShape) -> Callable[[Any], Any]:
    """Makes a function from a value that arrived to the object; it raises :class:`ValueError` if there is none."""
    make, name, cls = shape.carried.make, type_name(shape.carried.cls), shape.bare
    shows_sent = shape.carried.shows_sent

    def made(carried: Any) -> Any:
        try:
            value = make(carried)
        except MemoryError:
            raise
        except Exception as problem:  # of any class: a peer chose the value
            sent = shown(short_repr(carried)) if shows_sent else "what arrived"
            why = told(problem, "its 'make'")
            raise RefusedError(f"no {name} can be made of {sent}: {why}") from problem
        if not isinstance(value, cls):
            raise ValueError(f"the 'make' of {name} has made {describe_value(value)} of it")
        return value

    return made
