"""Which classes travel as another type: ``nearcall.register_type``, ``types=`` of a service, and what needs neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from .carried import NO_TYPES, CarriedType, CarriedTypes
from .hints import describe_value, short_repr, type_name
from .standard import standard_type

__all__ = ["carried_type", "register_type", "types_by_class"]

T = TypeVar("T")

_registered: dict[type, CarriedType] = {}
"""For all services of the process."""


def register_type(
    cls: type[T],
    to: Any,
    *,
    give: Callable[[T], Any] | None = None,
    make: Callable[[Any], T] | None = None,
    name: str | None = None,
) -> None:
    """Lets objects of a class travel, as values of another type, in every service of this process that is declared from
    now on::

        nearcall.register_type(Money, to=str, give=str, make=Money.parse)

    Annotations decide: where one names the class, in a list, a dict or a field too, ``give`` is called at the sender
    and ``make`` at the receiver. The other side registers the same class as the same type. A class that is registered
    again travels as the last one says. Use ``types=`` of :func:`nearcall.service` for one service alone.

    Args:
        cls: The class. Exactly its objects travel so, not those of its subclasses.
        to: The type that travels, any that nearcall can carry. If the class is generic, it may name its type variables.
        give: Makes a value of ``to`` of an object. ``to`` itself, called with the object, if not given.
        make: Makes an equal object of a value of ``to``, which a peer has chosen: what it raises refuses the value.
            The class itself, called with the value, if not given.
        name: What both sides call the type; the name of the class if not given.

    Raises:
        TypeError: ``cls`` is no class, ``to`` no type or one with type variables that the class does not have, a
            function cannot be called, or such objects travel by themselves.
        ValueError: the name is empty.
    """
    carried = CarriedType(cls, to, give=give, make=make, name=name)
    carried.check_variables()
    _registered[cls] = carried


def types_by_class(types: Sequence[CarriedType]) -> dict[type, CarriedType]:
    """The types of one service, by their classes.

    Raises:
        TypeError: they are no list, something among them is none, or two are of one class or of one name.
    """
    if isinstance(cast(object, types), (CarriedType, type)):
        raise TypeError(f"types takes a list of nearcall.CarriedType: write types=[{_written(types)}]")
    if not isinstance(cast(object, types), (list, tuple)):
        raise TypeError(f"types takes a list of nearcall.CarriedType, not {describe_value(types)}")
    found: dict[type, CarriedType] = {}
    for each in types:
        if not isinstance(each, CarriedType):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"types takes a list of nearcall.CarriedType, and {short_repr(each)} is none: write {_written(each)}"
            )
        if each.cls in found:
            raise TypeError(f"types says twice as what {type_name(each.cls)} travels: {found[each.cls]} and {each}")
        if (other := next((known for known in found.values() if known.name == each.name), None)) is not None:
            raise TypeError(
                f"types has two classes that both sides would call {each.name}: give {other} or {each} another name=..."
            )
        each.check_variables()
        found[each.cls] = each
    return found


def _written(given: object) -> str:
    """How what was given for a type is written."""
    if isinstance(given, CarriedType):
        return repr(given)
    return f"nearcall.CarriedType({type_name(given) if isinstance(given, type) else '...'}, to=...)"


def carried_type(cls: Any, own: CarriedTypes = NO_TYPES) -> CarriedType | None:
    """How objects of a class travel, if as values of another type.

    Args:
        cls: The class, without type arguments.
        own: The types of the service.
    """
    found = own.get(cls) or _registered.get(cls)
    if found is None and isinstance(cls, type):
        found = standard_type(cls)
    return found
