"""Checks that values arrive as they were sent, one class of sender for each kind of type.

A sender looks at values of one declared type: whether something in them would not arrive as it was sent, and what is to
be encoded in their place.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, cast

import msgspec
from msgspec import inspect as shapes

from .._core import Attributes, all_of_kinds, is_native
from ..types.hints import describe_value, namesake, short_repr, type_name
from ..types.shown import shown
from . import anything
from .construction import construction_of, extra_names

__all__ = [
    "AnySender",
    "DateTimeSender",
    "DecimalSender",
    "DictSender",
    "FieldsSender",
    "FloatSender",
    "IntSender",
    "ItemsSender",
    "MisfitError",
    "Sender",
    "TimeSender",
    "TupleSender",
    "TypedDictSender",
    "UnionSender",
    "is_record",
    "loss",
    "refuses_extra",
]

_UTC = datetime.timezone.utc
_CONTAINERS = (list, tuple, set, frozenset, dict)


class MisfitError(TypeError):
    """A value that would not arrive as it was sent: where it is, and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path = ""
        self.argument: str | None = None
        """The argument that contains the value, if it is known."""

    def within(self, path: str) -> None:
        """Puts the path of what the value is in before the value's own."""
        self.path = path + self.path

    def __str__(self) -> str:
        message = super().__str__()
        return f"at {self.path}: {message}" if self.path else message


class Sender:
    """The check of values of one declared type; this base class accepts all."""

    kinds: frozenset[type] | None = None
    """Exact types whose values lose nothing; ``None`` if the decoder checks the type."""
    deep = False
    """Whether :meth:`look` has anything to check."""
    expected: Attributes | None = None
    """The attributes of a value with their possible types, if checking these types is enough."""

    def fit(self, value: Any) -> None:
        """For a value whose exact type is not in ``kinds``; raises :class:`MisfitError` if it must not be sent."""

    def look(self, value: Any) -> bool:
        """Whether the value must be rewritten. Its own type was checked before.

        Raises:
            MisfitError: something in it would not arrive as it was sent.
        """
        return False

    def rewrite(self, value: Any) -> Any:
        """The value to encode in its place."""
        return value

    def check(self, value: Any) -> bool:
        """:meth:`fit` and :meth:`look` in one."""
        if self.kinds is not None and type(value) not in self.kinds:
            self.fit(value)
        return self.deep and self.look(value)


_TRUSTED = Sender()


class AnySender(Sender):
    """``Any``."""

    deep = True

    def __init__(self, *, wide: bool = False) -> None:
        self._wide = wide

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        return self._wide or not is_native(value)

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        return anything.pack(value)


class _MayBeInt(Sender):
    """A type for which an int is given that may be beyond 64 bits."""

    deep = True

    def fit(self, value: Any) -> None:
        """See :class:`Sender`. The decoder checks the type."""

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        return type(value) is int


class IntSender(_MayBeInt):
    """An int: see :mod:`nearcall.codec.msgpack.wide`."""

    kinds = frozenset({int})

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        if type(value) is not int:
            return value
        try:
            return anything.pack_int(value)
        except TypeError as problem:
            raise MisfitError(str(problem)) from None


class FloatSender(_MayBeInt):
    """A float."""

    kinds = frozenset({float, int})

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        if type(value) is not int:
            return value
        try:
            found = float(value)
        except OverflowError:
            found = None
        if found != value:
            raise MisfitError(f"no float equals {short_repr(value)}, an int: send float(...) of it")
        return found


class DecimalSender(_MayBeInt):
    """A Decimal."""

    kinds = frozenset({decimal.Decimal, int})

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        return decimal.Decimal(value) if type(value) is int else value


class DateTimeSender(Sender):
    """A point in time: its offset is sent, the rules of its zone are not."""

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
    """A type whose values must be of exactly that class, or of a subclass that has nothing to lose."""

    def __init__(self, name: str, cls: type) -> None:
        self.name = name
        self.cls = cls
        self.kinds = frozenset({cls})

    def fit(self, value: Any) -> None:
        """See :class:`Sender`."""
        if self.cls not in _CONTAINERS or not isinstance(value, self.cls) or is_record(value):
            raise MisfitError(f"expected {self.name}, got {describe_value(value)}{loss(value, self.cls)}")


def is_record(value: Any) -> bool:
    """Whether a tuple is a NamedTuple, which would arrive as a plain tuple."""
    return hasattr(value, "_fields")


def loss(value: Any, cls: type) -> str:
    """The end of an error message if the value is of a subclass, or of another class of that name."""
    if not isinstance(value, cls):
        return namesake(value, cls)
    return ", a subclass, which would arrive without what is its own: declare it, or a union of tagged Structs"


def refuses_extra(name: str, cls: type, fields: Sequence[str]) -> Callable[[Any], None] | None:
    """Makes a function that raises :class:`MisfitError` if an object holds more than its fields; ``None`` if the class
    gives its objects no more.
    """
    extra_of = extra_names(cls, fields)
    if extra_of is None:
        return None

    def refuse(value: Any) -> None:
        if (extra := extra_of(value)) is not None:
            raise MisfitError(
                f"{name} holds '{extra}', which is no field and would be lost: make it one, or compute it when it is "
                "asked for, in a property or functools.cached_property"
            )

    return refuse


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
        return _look_at_all(self.item, items, count() if isinstance(items, collections.abc.Sequence) else None)

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        rewrite, made = self.item.rewrite, list[Any]()
        for item in value:
            try:
                made.append(rewrite(item))
            except MisfitError as problem:
                is_in_order = isinstance(value, collections.abc.Sequence)
                problem.within(f"[{len(made) if is_in_order else shown(short_repr(item))}]")
                raise
        return tuple(made)


def _is_collection(value: Any) -> bool:
    return isinstance(value, (collections.abc.Sequence, collections.abc.Set)) and not isinstance(value, (str, bytes))


def _look_at_all(item: Sender, values: Iterable[Any], names: Iterable[Any] | None) -> bool:
    """``names``: indices or keys of the values, for messages; ``None`` if they have none."""
    kinds = item.kinds
    try:
        if kinds is not None and not all_of_kinds(values, kinds):
            for value in values:
                if type(value) not in kinds:
                    item.fit(value)
        if not item.deep or (item.expected is not None and item.expected.fit_all(values)):
            return False
        look, found = item.look, False
        for value in values:
            if look(value):
                found = True
    except MisfitError as problem:
        problem.within(_place_of(item, values, names))
        raise
    return found


def _rewritten(part: Sender, value: Any, place: str, name: object) -> Any:
    """What to encode for a part of a value. ``place`` is where it is, with ``{}`` for its name: only an error puts the
    two together.
    """
    try:
        return part.rewrite(value)
    except MisfitError as problem:
        problem.within(place.format(name))
        raise


def _place_of(item: Sender, values: Iterable[Any], names: Iterable[Any] | None) -> str:
    """Where the first value is that must not be sent. It is looked for once more: only an error needs to know."""
    for name, value in zip(names or (), values, strict=False):
        try:
            item.check(value)
        except MisfitError:
            return f"[{shown(short_repr(name))}]"
    # The items of a set have no place: it is told by what it is.
    for value in values:
        try:
            item.check(value)
        except MisfitError:
            return f"{{{shown(short_repr(value))}}}"
    return "[...]"


class TupleSender(_Exact):
    """A tuple whose items each have a type of their own."""

    def __init__(self, items: list[Sender | None]) -> None:
        super().__init__("tuple", tuple)
        self.items = [item or Sender() for item in items]
        self.parts = [(index, item) for index, item in enumerate(items) if item is not None]
        self.deep = bool(self.parts)

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        found = False
        for index, item in self.parts:
            try:
                if index < len(value) and item.check(value[index]):
                    found = True
            except MisfitError as problem:
                problem.within(f"[{index}]")
                raise
        return found

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        pairs = enumerate(zip(self.items, value, strict=False))
        known = [_rewritten(item, part, "[{}]", i) for i, (item, part) in pairs]
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
        keys = _look_at_all(self.key, mapping, mapping)
        return _look_at_all(self.item, mapping.values(), mapping) or keys

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        made: dict[Any, Any] = {}
        for key, item in value.items():
            try:
                made[self.key.rewrite(key)] = self.item.rewrite(item)
            except MisfitError as problem:
                problem.within(f"[{shown(short_repr(key))}]")
                raise
        return made


class FieldsSender(_Exact):
    """A dataclass, a Struct or a NamedTuple."""

    def __init__(self, shape: Any, cls: type) -> None:
        super().__init__(type_name(cls), cls)
        self.fields: list[tuple[str, str, Sender]] = []
        """Name, name on the wire, and sender of each field."""
        self.parts: list[tuple[str, Sender]] = []
        self.by_position = getattr(shape, "array_like", isinstance(shape, shapes.NamedTupleType))
        self.tag = (shape.tag_field, shape.tag) if getattr(shape, "tag", None) is not None else None
        config = getattr(cls, "__struct_config__", None)
        # Such a class leaves out fields that equal their default, and the receiver's default may differ.
        self.always = config is not None and config.omit_defaults and not self.by_position
        # msgspec's encoder leaves out what attrs calls private.
        self.always |= hasattr(cls, "__attrs_attrs__") and any(field.name.startswith("_") for field in shape.fields)
        self.unset = _defaults_in_class(cls)
        self.refuse_extra = refuses_extra(self.name, cls, [field.name for field in shape.fields])

    def complete(self, fields: list[tuple[str, str, Sender | None]]) -> None:
        """Sets the fields. They are set later, because a class may be the type of one of its own fields."""
        self.fields = [(name, wire, part or Sender()) for name, wire, part in fields]
        self.parts = [(name, part) for name, _, part in fields if part is not None]
        own = self.always or bool(self.unset) or self.refuse_extra is not None
        self.deep = bool(self.parts) or own
        kinds = [part.kinds or () for _, part in self.parts]
        shallow = not own and not any(part.deep for _, part in self.parts)
        if shallow and kinds and all(kinds):
            # Only the types of the fields are checked, all at once.
            names = [name for name, _ in self.parts]
            self.expected = Attributes([(name, list(kind)) for name, kind in zip(names, kinds, strict=True)])

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        if self.expected is not None and self.expected.fit(value):
            return False
        if self.refuse_extra is not None:
            self.refuse_extra(value)
        # A decoder leaves a field that was not received to the class attribute, and the encoder leaves out what the
        # instance does not have: so copy the value into the instance.
        for name in self.unset:
            if name not in value.__dict__:
                value.__dict__[name] = getattr(value, name)
        found = self.always
        for name, part in self.parts:
            try:
                held = getattr(value, name, None)
                if held is not msgspec.UNSET and part.check(held):
                    found = True
            except MisfitError as problem:
                problem.within(f".{name}")
                raise
        return found

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        if self.by_position:
            fields = tuple([_rewritten(part, getattr(value, name), ".{}", name) for name, _, part in self.fields])
            return fields if self.tag is None else (self.tag[1], *fields)
        mapping: dict[str, Any] = {} if self.tag is None else {self.tag[0]: self.tag[1]}
        for name, wire, part in self.fields:
            field = getattr(value, name, msgspec.UNSET)
            if field is not msgspec.UNSET:
                mapping[wire] = _rewritten(part, field, ".{}", name)
        return mapping


def _defaults_in_class(cls: type) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(cls) or not cls.__dictoffset__:
        return ()
    held = construction_of(cls).descriptors  # these have no place of their own in the instance
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if field.default is not dataclasses.MISSING and field.name not in held
    )


class TypedDictSender(Sender):
    """A TypedDict: keys that it does not declare would be lost."""

    kinds = frozenset({dict})
    deep = True

    def __init__(self, cls: Any) -> None:
        self.name = type_name(cls)
        self.known: frozenset[str] = frozenset()
        self.fields: dict[str, Sender] = {}

    def complete(self, fields: list[tuple[str, str, Sender | None]]) -> None:
        """Sets the keys."""
        self.known = frozenset(name for name, _, _ in fields)
        self.fields = {name: part for name, _, part in fields if part is not None}

    def fit(self, value: Any) -> None:
        """See :class:`Sender`."""
        _Exact(self.name, dict).fit(value)

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        if not self.known.issuperset(value):
            key = next(key for key in value if key not in self.known)
            raise MisfitError(f"{self.name} has no key {key!r}, which would be lost: declare it, or leave it out")
        found = False
        for name, part in self.fields.items():
            try:
                if name in value and part.check(value[name]):
                    found = True
            except MisfitError as problem:
                problem.within(f".{name}")
                raise
        return found

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        trusted = Sender()
        return {name: _rewritten(self.fields.get(name, trusted), item, ".{}", name) for name, item in value.items()}


class _Misplaced(Sender):
    """Refuses values that the decoder would take for something else."""

    deep = True

    def __init__(self, expected: str) -> None:
        self._expected = expected

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        raise MisfitError(f"expected {self._expected}, got {describe_value(value)}")


class UnionSender(Sender):
    """One of several types."""

    deep = True

    def __init__(self, members: list[Sender], *, optional: bool = False) -> None:
        self.members = members
        # An int is given for a float only where there is no int.
        in_order = sorted(members, key=lambda member: isinstance(member, IntSender))
        self.by_kind = {kind: member for member in in_order for kind in member.kinds or ()}
        if optional:
            self.by_kind[type(None)] = _TRUSTED
        # Objects that are sent as dicts have no other dict in their union, so a dict itself would arrive as such an
        # object.
        classes = [member.cls for member in members if isinstance(member, FieldsSender) and not member.by_position]
        if classes:
            self.by_kind[dict] = _Misplaced(" or ".join(map(type_name, classes)))
        self._fits: Callable[[Any], bool] | None = None
        self._name = ""

    def refuse(self, fits: Callable[[Any], bool] | None, name: str) -> None:
        """Lets only values through that fit; ``name`` is that of the union."""
        self._fits, self._name = fits, name

    def look(self, value: Any) -> bool:
        """See :class:`Sender`."""
        member = self.member(value)
        return member.deep and member.look(value)

    def rewrite(self, value: Any) -> Any:
        """See :class:`Sender`."""
        return self.member(value).rewrite(value)

    def member(self, value: Any) -> Sender:
        """The sender of the member whose type the value has. A value of a subclass must fit its base's sender."""
        if (member := self.by_kind.get(cast(Any, type(value)))) is not None:
            return member
        for kind, member in self.by_kind.items():
            if isinstance(value, kind):
                member.fit(value)
                return member
        if self._fits is not None and not self._fits(value):
            raise MisfitError(f"expected {self._name}, got {describe_value(value)}")
        return next((member for member in self.members if member.kinds is None), _TRUSTED)
