"""Whether a value arrives as it leaves, looked at before it is sent.

msgspec encodes a value by what it is, not by what is declared, and its decoder takes what it understands. Between the
two a value can change without a word: a subclass loses its fields, a TypedDict a key, a datetime its offset. So each
declared type gets a :class:`Sender`, made once, which knows where in it that can happen. A type of which nothing can be
lost has none, and costs nothing.

What the receiver's decoder checks anyway (that an int is an int) is not looked at here.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import operator
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from .._core import FittingEncoder, is_native
from ..types.hints import UNION_ORIGINS, describe_value, type_name, unwrap
from . import anything

__all__ = [
    "AnySender",
    "DateTimeSender",
    "DictSender",
    "ItemsSender",
    "MisfitError",
    "Sender",
    "TimeSender",
    "group_seen_to",
    "is_record",
    "loss",
    "seen_argument",
    "seen_to",
    "sender",
]

_UTC = datetime.timezone.utc
_CONTAINERS = (list, tuple, set, frozenset, dict)


class MisfitError(TypeError):
    """A value that would not arrive as it left: where in the whole it is, and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path = ""
        self.argument: str | None = None
        """The argument of a call that it is in, if it is known."""

    def within(self, path: str) -> MisfitError:
        """The same, seen from one level further out."""
        self.path = path + self.path
        return self

    def __str__(self) -> str:
        message = super().__str__()
        return f"at {self.path}: {message}" if self.path else message


class Sender:
    """What is to be seen to in values of one declared type; this one trusts them."""

    kinds: frozenset[type] | None = None
    """Exact types of which nothing is lost here; ``None`` if every type is left to the decoder."""
    deep = False
    """Whether :meth:`look` has anything to look at."""
    expected: Sequence[tuple[str, list[type]]] = ()
    """Attributes of a value and their exact types, if it is enough that they have one of those."""

    def fit(self, value: Any) -> None:
        """For a value whose exact type is not in ``kinds``; raises :class:`MisfitError` if it must not be sent."""

    def look(self, value: Any) -> bool:
        """Whether the value must be rewritten; its own type is known to fit.

        Raises:
            MisfitError: something in it would not arrive as it left.
        """
        return False

    def rewrite(self, value: Any) -> Any:
        """What to encode in the value's place."""
        return value

    def check(self, value: Any) -> bool:
        """:meth:`fit` and :meth:`look` in one."""
        if self.kinds is not None and type(value) not in self.kinds:
            self.fit(value)
        return self.deep and self.look(value)


def sender(shape: shapes.Type, annotation: Any) -> Sender | None:
    """The sender of a declared type, to be asked with :meth:`Sender.look`; ``None`` if there is nothing to look at.

    Args:
        shape: msgspec's description of the type.
        annotation: The type itself, which tells a list from a Sequence.
    """
    found = _Builder().build(shape, annotation)
    if isinstance(found, _Union) and not any(member.deep for member in found.members):
        return None  # which of them the value itself is, is checked before
    return found if found is not None and found.deep else None


def seen_to(encode: Callable[[Any], Any], what: Sender | None) -> Callable[[Any], Any]:
    """An encoder of values of one type that sees to it first that they arrive as they leave."""
    if what is None:
        return encode
    look, rewrite = what.look, what.rewrite

    def encode_one(value: Any) -> Any:
        return encode(rewrite(value) if look(value) else value)

    return FittingEncoder(encode, encode_one, [(None, what.expected)]) if what.expected else encode_one


def group_seen_to(
    encode: Callable[[Any], Any], names: Sequence[str], senders: Sequence[Sender | None]
) -> Callable[[tuple[Any, ...]], Any]:
    """The same for the arguments of a call, in order."""
    parts = [(index, names[index], found) for index, found in enumerate(senders) if found is not None]
    if not parts:
        return encode

    looks = [(index, found.look) for index, _, found in parts]

    def encode_group(values: tuple[Any, ...]) -> Any:
        # The usual case first: all of them arrive as they are.
        try:
            for index, look in looks:
                if look(values[index]):
                    break
            else:
                return encode(values)
        except TypeError:
            pass  # it is found again, with the argument's name
        changed = list(values)
        for index, name, found in parts:
            changed[index] = seen_argument(name, values[index], found)
        return encode(changed)

    if all(found.expected for _, _, found in parts):
        return FittingEncoder(encode, encode_group, [(index, found.expected) for index, _, found in parts])
    return encode_group


def seen_argument(name: str, value: Any, what: Sender) -> Any:
    """What to encode for an argument.

    Raises:
        MisfitError: it would not arrive as it left.
    """
    try:
        return what.rewrite(value) if what.look(value) else value
    except TypeError as problem:
        misfit = problem if isinstance(problem, MisfitError) else MisfitError(str(problem))
        misfit.argument = name
        raise misfit from None


class AnySender(Sender):
    """``Any``."""

    deep = True

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        return not is_native(value)

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        return anything.pack(value)


class DateTimeSender(Sender):
    """A point in time: its offset travels, the rules of its zone do not."""

    deep = True

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        zone = getattr(value, "tzinfo", None)
        if getattr(value, "nanosecond", 0):  # pandas has a datetime of its own
            raise MisfitError(f"a {describe_value(value)} with nanoseconds would lose them: round it to microseconds")
        if zone is None or zone is _UTC or not isinstance(value, datetime.datetime):
            return False
        _whole_minutes(value)
        return True

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        # msgspec's decoder keeps the offset of a text, and makes UTC of a timestamp.
        if not isinstance(value, datetime.datetime) or value.tzinfo in (None, _UTC):
            return value
        return datetime.datetime.isoformat(value.replace(tzinfo=datetime.timezone(_whole_minutes(value))))


class TimeSender(Sender):
    """A time of day."""

    deep = True

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        if isinstance(value, datetime.time) and value.tzinfo is not None:
            _whole_minutes(value)
        return False


def _whole_minutes(value: datetime.datetime | datetime.time) -> datetime.timedelta:
    offset = value.utcoffset()
    if offset is None:
        raise MisfitError(
            f"a {type(value).__name__} in a zone without an offset would lose the zone: give it a fixed one"
        )
    if offset % datetime.timedelta(minutes=1):
        raise MisfitError(f"the offset {offset} is not one of whole minutes: convert it with astimezone() first")
    return offset


class _Exact(Sender):
    """A type that only values of exactly that class are sent as, or of a subclass that has nothing to lose."""

    def __init__(self, name: str, cls: type) -> None:
        self.name = name
        self.cls = cls
        self.kinds = frozenset({cls})

    def fit(self, value: Any) -> None:
        if self.cls not in _CONTAINERS or not isinstance(value, self.cls) or is_record(value):
            raise MisfitError(f"expected {self.name}, got {describe_value(value)}{loss(value, self.cls)}")


def is_record(value: Any) -> bool:
    """Whether a tuple is a named one, which would arrive without its name."""
    return hasattr(value, "_fields")


def loss(value: Any, cls: type) -> str:
    """What to add to an error if the value is of a subclass."""
    if not isinstance(value, cls):
        return ""
    return ", a subclass, which would arrive without what is its own: declare it, or a union of tagged Structs"


class ItemsSender(Sender):
    """A list, a set or a tuple of any length, or an abstract collection."""

    def __init__(self, cls: type | None, item: Sender | None) -> None:
        self.item = item or Sender()
        self.deep = item is not None
        self.cls = cls
        self.kinds = None if cls is None else frozenset({cls})

    def fit(self, value: Any) -> None:
        """See :class:`Sender`."""
        if self.cls is not None:
            _Exact(self.cls.__name__, self.cls).fit(value)

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        items: Any = value
        if self.cls is None and not _is_collection(value):
            return False
        return _look_at_all(self.item, items)

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        rewrite = self.item.rewrite
        return tuple([rewrite(item) for item in value])


def _is_collection(value: Any) -> bool:
    return isinstance(value, (collections.abc.Sequence, collections.abc.Set)) and not isinstance(value, (str, bytes))


def _look_at_all(item: Sender, values: Iterable[Any]) -> bool:
    kinds = item.kinds
    try:
        if kinds is not None and not kinds.issuperset(map(type, values)):
            for value in values:
                if type(value) not in kinds:
                    item.fit(value)
        if not item.deep:
            return False
        look, found = item.look, False
        for value in values:
            if look(value):
                found = True
    except MisfitError as problem:
        raise problem.within("[...]") from None
    return found


class _Tuple(_Exact):
    def __init__(self, items: list[Sender | None]) -> None:
        super().__init__("tuple", tuple)
        self.items = [item or Sender() for item in items]
        self.parts = [(index, item) for index, item in enumerate(items) if item is not None]
        self.deep = bool(self.parts)

    def look(self, value: Any) -> bool:
        found = False
        for index, item in self.parts:
            try:
                if index < len(value) and item.check(value[index]):
                    found = True
            except MisfitError as problem:
                raise problem.within(f"[{index}]") from None
        return found

    def rewrite(self, value: Any) -> Any:
        known = [item.rewrite(part) for item, part in zip(self.items, value, strict=False)]
        return (*known, *value[len(known) :])


class DictSender(Sender):
    """A dict, or an abstract mapping."""

    def __init__(self, exact: bool, key: Sender | None, item: Sender | None) -> None:
        self.key, self.item = key or Sender(), item or Sender()
        self.deep = key is not None or item is not None
        self.kinds = frozenset({dict}) if exact else None

    def fit(self, value: Any) -> None:
        """See :class:`Sender`."""
        _Exact("dict", dict).fit(value)

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        mapping: Any = value
        if not isinstance(value, collections.abc.Mapping):
            return False
        keys = _look_at_all(self.key, mapping)
        return _look_at_all(self.item, mapping.values()) or keys

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        return {self.key.rewrite(key): self.item.rewrite(item) for key, item in value.items()}


class _Fields(_Exact):
    """A dataclass, a Struct or a NamedTuple."""

    def __init__(self, shape: Any, cls: type) -> None:
        super().__init__(type_name(cls), cls)
        self.fields: list[tuple[str, str, Sender]] = []
        """Name, name on the wire, and what is to be seen to."""
        self.parts: list[tuple[str, Sender]] = []
        self._get: Callable[[Any], Any] = operator.attrgetter("__class__")
        self._expected: Any = ()
        self.by_position = getattr(shape, "array_like", isinstance(shape, shapes.NamedTupleType))
        self.tag = (shape.tag_field, shape.tag) if getattr(shape, "tag", None) is not None else None
        config = getattr(cls, "__struct_config__", None)
        # Such a class leaves out what is like its default, and the receiver's default may be another one.
        self.always = config is not None and config.omit_defaults and not self.by_position
        self.unset = _defaults_in_class(cls)

    def complete(self, fields: list[tuple[str, str, Sender | None]]) -> None:
        """Says what the fields are; a type may be one of its own fields' types."""
        self.fields = [(name, wire, part or Sender()) for name, wire, part in fields]
        self.parts = [(name, part) for name, _, part in fields if part is not None]
        self.deep = bool(self.parts) or self.always or bool(self.unset)
        kinds = [part.kinds or () for _, part in self.parts]
        if not self.always and not self.unset and not any(part.deep for _, part in self.parts):
            # Only types are looked at: usually all at once.
            if all(kinds):
                self.expected = [(name, list(kind)) for (name, _), kind in zip(self.parts, kinds, strict=True)]
            if len(kinds) == 1:
                self._get, self._expected = operator.attrgetter(self.parts[0][0]), kinds[0]
                self.look = self._look_at_one  # type: ignore[method-assign]
            elif kinds and all(len(kind) == 1 for kind in kinds):
                self._get = operator.attrgetter(*(name for name, _ in self.parts))
                self._expected = tuple(next(iter(kind)) for kind in kinds)
                self.look = self._look_at_types  # type: ignore[method-assign]

    def _look_at_one(self, value: Any) -> bool:
        try:
            if type(self._get(value)) in self._expected:
                return False
        except AttributeError:
            pass
        return self._look_at_each(value)

    def _look_at_types(self, value: Any) -> bool:
        try:
            if tuple(map(type, self._get(value))) == self._expected:
                return False
        except AttributeError:
            pass
        return self._look_at_each(value)

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        return self._look_at_each(value)

    def _look_at_each(self, value: Any) -> bool:
        # A decoder leaves a field that it did not receive to the class; the encoder leaves out what only the class has.
        for name in self.unset:
            if name not in value.__dict__:
                value.__dict__[name] = getattr(value, name)
        found = self.always
        for name, part in self.parts:
            try:
                if part.check(getattr(value, name, None)):
                    found = True
            except MisfitError as problem:
                raise problem.within(f".{name}") from None
        return found

    def rewrite(self, value: Any) -> Any:
        if self.by_position:
            fields = tuple([part.rewrite(getattr(value, name)) for name, _, part in self.fields])
            return fields if self.tag is None else (self.tag[1], *fields)
        mapping: dict[str, Any] = {} if self.tag is None else {self.tag[0]: self.tag[1]}
        for name, wire, part in self.fields:
            field = getattr(value, name, msgspec.UNSET)
            if field is not msgspec.UNSET:
                mapping[wire] = part.rewrite(field)
        return mapping


def _defaults_in_class(cls: type) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(cls) or not cls.__dictoffset__:
        return ()
    return tuple(field.name for field in dataclasses.fields(cls) if field.default is not dataclasses.MISSING)


class _TypedDict(Sender):
    kinds = frozenset({dict})
    deep = True

    def __init__(self, cls: Any) -> None:
        self.name = type_name(cls)
        self.known: frozenset[str] = frozenset()
        self.fields: dict[str, Sender] = {}

    def complete(self, fields: list[tuple[str, str, Sender | None]]) -> None:
        self.known = frozenset(name for name, _, _ in fields)
        self.fields = {name: part for name, _, part in fields if part is not None}

    def fit(self, value: Any) -> None:
        _Exact(self.name, dict).fit(value)

    def look(self, value: Any) -> bool:
        if not self.known.issuperset(value):
            key = next(key for key in value if key not in self.known)
            raise MisfitError(f"{self.name} has no key {key!r}, which would be lost: declare it, or leave it out")
        found = False
        for name, part in self.fields.items():
            try:
                if name in value and part.check(value[name]):
                    found = True
            except MisfitError as problem:
                raise problem.within(f".{name}") from None
        return found

    def rewrite(self, value: Any) -> Any:
        trusted = Sender()
        return {name: self.fields.get(name, trusted).rewrite(item) for name, item in value.items()}


class _Misplaced(Sender):
    """For values that the decoder would take for something else."""

    deep = True

    def __init__(self, expected: str) -> None:
        self._expected = expected

    def look(self, value: Any) -> bool:
        raise MisfitError(f"expected {self._expected}, got {describe_value(value)}")


class _Union(Sender):
    deep = True

    def __init__(self, members: list[Sender]) -> None:
        self.members = members
        self.by_kind = {kind: member for member in members for kind in member.kinds or ()}
        # What is sent as a dict is the only such in its union: a dict itself would arrive as an object of that class.
        classes = [member.cls for member in members if isinstance(member, _Fields) and not member.by_position]
        if classes:
            self.by_kind[dict] = _Misplaced(" or ".join(map(type_name, classes)))

    def look(self, value: Any) -> bool:
        member = self.member(value)
        return member.deep and member.look(value)

    def rewrite(self, value: Any) -> Any:
        return self.member(value).rewrite(value)

    def member(self, value: Any) -> Sender:
        """Which of the types it is; a subclass is not another member's."""
        if (member := self.by_kind.get(cast(Any, type(value)))) is not None:
            return member
        for kind, member in self.by_kind.items():
            if isinstance(value, kind):
                member.fit(value)
                return member
        return next((member for member in self.members if member.kinds is None), _TRUSTED)


_TRUSTED = Sender()

_KINDS: dict[type, type] = {shapes.DateTimeType: datetime.datetime, shapes.TimeType: datetime.time}
_SEQUENCES: dict[type, type] = {
    shapes.ListType: list,
    shapes.VarTupleType: tuple,
    shapes.SetType: set,
    shapes.FrozenSetType: frozenset,
}


class _Builder:
    """Makes the senders of a type and of those in it, each class once, because a class may refer to itself."""

    def __init__(self) -> None:
        self.classes: dict[Any, Any] = {}

    def build(self, shape: Any, annotation: Any) -> Sender | None:
        hint = unwrap(annotation)
        kind = cast(Any, type(shape))
        if kind is shapes.AnyType:
            return AnySender()
        if kind is shapes.DateTimeType:
            return DateTimeSender()
        if kind is shapes.TimeType:
            return TimeSender()
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
            return _Tuple([self.build(item, each) for item, each in zip(shape.item_types, hints, strict=True)])
        if hasattr(shape, "fields"):
            return self._fields(shape)
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
        return _Union(members) if members else None

    def _fields(self, shape: Any) -> Sender:
        if (known := self.classes.get(shape.cls)) is not None:
            return cast(Sender, known)
        cls = get_origin(shape.cls) or shape.cls
        found: Any = _TypedDict(cls) if isinstance(shape, shapes.TypedDictType) else _Fields(shape, cls)
        self.classes[shape.cls] = found
        # Until it is known better: a class within itself has to be looked into.
        found.deep = True
        hints = _hints(cls)
        fields = [
            (field.name, field.encode_name, self.build(field.type, hints.get(field.name))) for field in shape.fields
        ]
        found.complete(fields)
        return cast(Sender, found)


def _category(kind: Any) -> Any:
    """What tells the members of a union apart: msgspec allows one of each."""
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
    except Exception:  # of whatever class: evaluating annotations runs code; msgspec has found them well
        return {}
