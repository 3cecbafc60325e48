"""What values take in memory once they are decoded, as far as their types say more than a message's bytes.

The compiled core weighs a message by its bytes before it is decoded: ``crates/wire/src/sizes.rs`` has what each kind
takes, and ``memory_of`` tells it. The bytes do not show that a list becomes a set, a map an object, or a text a
``Decimal``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

from .._core import memory_of
from ..types.carried import CarriedShape
from .shape import walk

__all__ = ["Weights", "object_weight", "together", "weights"]

_PLACE: Final = 8
"""The place in a list, a tuple or an object where a value is held."""
_COLLECTED: Final = 16
"""The header that the garbage collector needs."""
_SINGLE: Final[dict[type[shapes.Type], int]] = {
    shapes.FloatType: memory_of("number"),  # also of ints, which Python may have already
    shapes.ByteArrayType: 88,
    shapes.RawType: 88,
    shapes.UUIDType: 120,
    shapes.DecimalType: 136,
    shapes.MemoryViewType: 336,
}
"""What one value may become that takes more than msgpack's value of its kind."""
_FACTORIES: Final[dict[Any, int]] = {list: memory_of("list"), dict: memory_of("dict"), set: memory_of("set")}
"""What the default of a field takes that is made anew for each object."""
_OTHER_FACTORY: Final = 128
_MADE: Final = 128
"""What an object may hold that was made of a value that travelled."""


class Weights(msgspec.Struct, frozen=True):
    """What the compiled core must know to weigh a message. Sizes are bytes."""

    least: int = 0
    """The largest object that a single value may become."""
    list: int = 0
    """The largest object that a list may become, a set apart."""
    sets: bool = False
    """Lists may become sets."""
    map: int = 0
    """The largest object that a map may become, a dict apart."""
    dicts: bool = False
    """Maps may become dicts."""


def weights(shape: shapes.Type) -> Weights:
    """What values of a type take."""
    least = largest_list = largest_map = 0
    sets = dicts = False
    for node in walk(shape):
        if isinstance(node, (shapes.AnyType, shapes.DictType, shapes.TypedDictType)):
            dicts = True
        elif isinstance(node, (shapes.SetType, shapes.FrozenSetType)):
            sets = True
        elif isinstance(node, (shapes.StructType, shapes.DataclassType, shapes.NamedTupleType)):
            weight = object_weight(node.cls, len(node.fields)) + sum(map(_of_default, node.fields))
            if isinstance(node, shapes.NamedTupleType) or getattr(node, "array_like", False):
                largest_list = max(largest_list, weight)
            else:
                largest_map = max(largest_map, weight)
        elif isinstance(node, CarriedShape):
            # What travels is decoded first as it would be without a type.
            least, dicts = max(least, object_weight(node.bare, 0) + _MADE), True
        else:
            least = max(least, _SINGLE.get(type(node), 0))
    return Weights(least, largest_list, sets, largest_map, dicts)


def together(several: Iterable[Weights]) -> Weights:
    """What values take in a message that holds values of several types."""
    found = list(several)
    return Weights(
        max((each.least for each in found), default=0),
        max((each.list for each in found), default=0),
        any(each.sets for each in found),
        max((each.map for each in found), default=0),
        any(each.dicts for each in found),
    )


def object_weight(cls: Any, fields: int) -> int:
    """What an object of a class with so many fields takes, apart from their values."""
    cls = getattr(cls, "__origin__", cls)
    weight: int = _PLACE + _COLLECTED + cls.__basicsize__
    if issubclass(cls, tuple):
        return weight + fields * _PLACE
    return weight + _attributes(fields) if cls.__dictoffset__ else weight


def _attributes(fields: int) -> int:
    """What the attributes of an object take that has a ``__dict__``: more than a message may give it, because Python
    makes room for those that its class may have.
    """
    if sys.version_info >= (3, 13):
        return 48 + 8 * fields if fields < 30 else 1872
    elif sys.version_info >= (3, 11):  # noqa: RET505 - mypy calls what follows a return unreachable
        return 368 if fields <= 30 else 1616
    else:
        return 72 + 8 * _room(fields)


def _room(fields: int) -> int:
    size = 8
    while size * 2 // 3 < fields:
        size *= 2
    return size * 2 // 3


def _of_default(field: shapes.Field) -> int:
    factory = field.default_factory
    return 0 if factory is msgspec.NODEFAULT else _FACTORIES.get(factory, _OTHER_FACTORY)
