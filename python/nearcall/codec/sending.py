"""Checks, before a value is sent, that it will arrive as it is.

msgspec encodes a value by its own type, not by the declared one, and its decoder takes what it understands. Between the
two a value can change without an error: a subclass loses its fields, a TypedDict a key, a datetime its offset. So each
declared type gets a :class:`Sender`, made once, which knows where that can happen. A type whose values can lose nothing
has none, and costs nothing.

Whatever the receiver's decoder checks in any case (that an int is an int) is not checked here.
"""

from __future__ import annotations

import datetime
import typing
from collections.abc import Callable, Sequence
from typing import Any, cast, get_args, get_origin

from msgspec import inspect as shapes

from .._core import FittingEncoder
from ..types.beside import Beside
from ..types.carried import CarriedShape
from ..types.declared import service_class
from ..types.hints import UNION_ORIGINS, type_name, unwrap
from .carrying import CarriedSender
from .checks import outer_type
from .references import ReferenceSender
from .senders import (
    AnySender,
    DateTimeSender,
    DecimalSender,
    DictSender,
    FieldsSender,
    FloatSender,
    IntSender,
    ItemsSender,
    MisfitError,
    Sender,
    TimeSender,
    TupleSender,
    TypedDictSender,
    UnionSender,
)

__all__ = ["group_seen_to", "seen_argument", "seen_to", "sender"]

_KINDS: dict[type, type] = {shapes.DateTimeType: datetime.datetime, shapes.TimeType: datetime.time}
_SEQUENCES: dict[type, type] = {
    shapes.ListType: list,
    shapes.VarTupleType: tuple,
    shapes.SetType: set,
    shapes.FrozenSetType: frozenset,
}


def sender(shape: shapes.Type, annotation: Any, *, again: bool = False, wide: bool = False) -> Sender | None:
    """The sender of a declared type, to be called with :meth:`Sender.look`; ``None`` if there is nothing to check.

    Args:
        shape: msgspec's description of the type.
        annotation: The type itself, which tells a list from a Sequence.
        again: For what was refused because of an int beyond 64 bits: it may be given for a float or a Decimal.
        wide: Such ints are sent as ints, too.
    """
    found = _Builder(again, wide).build(shape, annotation)
    if isinstance(found, UnionSender) and not any(member.deep for member in found.members):
        return None  # the outer type of the value is checked before
    return found if found is not None and found.deep else None


def seen_to(encode: Callable[[Any], Any], what: Sender | None) -> Callable[[Any], Any]:
    """An encoder of values of one type that first makes sure that they arrive as they are."""
    if what is None:
        return encode
    look, rewrite = what.look, what.rewrite

    def encode_one(value: Any) -> Any:
        return encode(rewrite(value) if look(value) else value)

    return encode_one if what.expected is None else FittingEncoder(encode, encode_one, [(None, what.expected)])


def group_seen_to(
    encode: Callable[[Any], Any], names: Sequence[str], senders: Sequence[Sender | None]
) -> Callable[[tuple[Any, ...]], Any]:
    """The same for the arguments of a call, in order."""
    parts = [(index, names[index], found) for index, found in enumerate(senders) if found is not None]
    if not parts:
        return encode

    looks = [(index, found.look) for index, _, found in parts]

    def encode_group(values: tuple[Any, ...]) -> Any:
        # The usual case first: no argument needs rewriting.
        try:
            for index, look in looks:
                if look(values[index]):
                    break
            else:
                return encode(values)
        except TypeError:
            pass  # the loop below raises it again, with the argument's name
        changed = list(values)
        for index, name, found in parts:
            changed[index] = seen_argument(name, values[index], found)
        return encode(changed)

    expected = [(index, found.expected) for index, _, found in parts if found.expected is not None]
    return FittingEncoder(encode, encode_group, expected) if len(expected) == len(parts) else encode_group


def seen_argument(name: str, value: Any, what: Sender) -> Any:
    """What to encode for an argument.

    Raises:
        MisfitError: the argument would not arrive as it was sent.
    """
    try:
        return what.rewrite(value) if what.look(value) else value
    except TypeError as problem:
        misfit = problem if isinstance(problem, MisfitError) else MisfitError(str(problem))
        misfit.argument = name
        raise misfit from problem.__cause__


class _Builder:
    """Makes the senders of a type and of the types in it; of each class once, because a class may refer to itself."""

    def __init__(self, again: bool, wide: bool) -> None:
        self.plain: dict[Any, Callable[[], Sender]] = {
            shapes.AnyType: lambda: AnySender(wide=wide),
            shapes.DateTimeType: DateTimeSender,
            shapes.TimeType: TimeSender,
        }
        if again:
            self.plain |= {shapes.FloatType: FloatSender, shapes.DecimalType: DecimalSender}
        if wide:
            self.plain[shapes.IntType] = IntSender
        self.classes: dict[Any, Any] = {}

    def build(self, shape: Any, annotation: Any) -> Sender | None:
        hint = unwrap(annotation)
        kind = cast(Any, type(shape))
        if kind in self.plain:
            return self.plain[kind]()
        if kind is shapes.UnionType:
            return self._union(shape, hint)
        if kind in _SEQUENCES:
            return self._items(shape, _SEQUENCES[kind], hint)
        if kind is shapes.DictType:
            key, value = _arguments(hint, 2)
            exact = (get_origin(hint) or hint) is dict
            found = DictSender(exact, self.build(shape.key_type, key), self.build(shape.value_type, value))
            return found if exact or found.deep else None
        if kind is shapes.TupleType:
            hints = _arguments(hint, len(shape.item_types))
            return TupleSender([self.build(item, each) for item, each in zip(shape.item_types, hints, strict=True)])
        if hasattr(shape, "fields"):
            return self._fields(shape)
        if kind is CarriedShape and shape.bare is Beside:
            return None  # the encoder puts it beside the message
        if kind is CarriedShape:
            return CarriedSender(shape, self.build(shape.inner, shape.to))
        if kind is shapes.CustomType and (service := service_class(shape.cls)) is not None:
            return ReferenceSender(service)
        return None

    def _items(self, shape: Any, cls: type, hint: Any) -> Sender | None:
        item = self.build(shape.item_type, _arguments(hint, 1)[0])
        exact = (get_origin(hint) or hint) is cls
        return ItemsSender(cls if exact else None, item) if exact or item is not None else None

    def _union(self, shape: Any, hint: Any) -> Sender | None:
        hints = {_category(arg): arg for arg in (get_args(hint) if get_origin(hint) in UNION_ORIGINS else ())}
        members: list[Sender] = []
        for member in shape.types:
            found = self.build(member, hints.get(_category(member)))
            if isinstance(found, AnySender):
                return found
            if found is not None:
                if found.kinds is None and type(member) in _KINDS:
                    found.kinds = frozenset({_KINDS[type(member)]})
                members.append(found)
        if not members:
            return None
        found_all = UnionSender(members, optional=shapes.NoneType() in shape.types)
        carried = {each.bare: each.carried for each in shape.types if isinstance(each, CarriedShape)}
        if carried and get_origin(hint) in UNION_ORIGINS:
            # What travels must not be given in the place of an object.
            found_all.refuse(outer_type(hint, carried).fits, type_name(hint))
        return found_all

    def _fields(self, shape: Any) -> Sender:
        if (known := self.classes.get(shape.cls)) is not None:
            return cast(Sender, known)
        cls = get_origin(shape.cls) or shape.cls
        found: Any = TypedDictSender(cls) if isinstance(shape, shapes.TypedDictType) else FieldsSender(shape, cls)
        self.classes[shape.cls] = found
        # True until complete() sets it, so that a class within itself is searched.
        found.deep = True
        hints = _hints(cls)
        fields = [
            (field.name, field.encode_name, self.build(field.type, hints.get(field.name))) for field in shape.fields
        ]
        found.complete(fields)
        return cast(Sender, found)


def _category(kind: Any) -> Any:
    """What tells the members of a union apart: msgspec allows one member of each category."""
    if isinstance(kind, shapes.Type):
        named: Any = getattr(kind, "cls", None)
        shape: Any = type(kind)
        return (get_origin(named) or named) if named is not None else _SEQUENCES.get(shape, shape)
    kind = unwrap(kind)
    cls: Any = get_origin(kind) or kind
    if cls in _SEQUENCES.values() or not isinstance(cls, type):
        return cls
    if cls is dict:
        return shapes.DictType
    return cls


def _arguments(hint: Any, count: int) -> tuple[Any, ...]:
    args = tuple(arg for arg in get_args(hint) if arg is not Ellipsis)
    return args if len(args) == count else (None,) * count


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # of any class: evaluating annotations runs code. msgspec has accepted them
        return {}
