"""Unions whose members look alike in a message, such as ``str | bytes`` or two dataclasses: the member is named.

msgspec refuses such a union, and each class that has one in a field. So another annotation takes its place. A class
that stands for the union travels as a map of one entry, the member's name and the value; one that stands for a class
with such fields travels as these fields. All else is as for any class that travels as another type.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..types.carried import CarriedType
from ..types.declared import service_class
from ..types.hints import UNION_ORIGINS, describe_value, field_hints, opened, type_name
from .arriving import check_of, maker
from .checks import OuterType, outer_type
from .construction import empty_object
from .inspection import UnsupportedTypeError
from .senders import refuses_extra

__all__ = ["Same", "StandIn", "told_apart"]


def told_apart(annotation: Any, types: dict[type, CarriedType]) -> Any:
    """A type that msgspec supports, in which unions name their members; the annotation itself if that does not help.

    Args:
        annotation: A type that msgspec does not support.
        types: The classes that travel as another type in the service; those that stand for others are added.

    Raises:
        UnsupportedTypeError: nothing tells the members of a union apart.
    """
    return _Rewriter(types).rewritten(annotation)


def _is_supported(annotation: Any) -> bool:
    try:
        shapes.type_info(annotation)
    except (TypeError, NotImplementedError):  # the second for ints that are too long in an enum
        return False
    return True


class _Stands(type):
    """A class that stands for a type: what is of the type is an instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        fits: Callable[[Any], bool] = cast(Any, cls).fits
        return fits(instance)


class StandIn(CarriedType):
    """How values of a type travel for which a class stands."""

    __slots__ = ("_fits", "members", "written")

    def __init__(self, written: Any, outer: OuterType, to: Any, *, give: Any, make: Any) -> None:
        fits: Any = outer.fits
        name = type_name(written)
        super().__init__(_Stands(name, (), {"fits": staticmethod(fits)}), to, give=give, make=make)
        self.kinds = outer.accepts
        self.is_named = self.shows_sent = False
        self.written = written
        """The type: a union, or a class with one in its fields."""
        self.members: tuple[Any, ...] = ()
        """The types of the union's members; for each the type that travels has a field. Empty for a class."""
        self._fits = fits

    def fits(self, value: Any) -> bool:
        """See :class:`~nearcall.types.carried.CarriedType`."""
        return bool(self._fits(value))


class _Rewriter:
    """Finds what takes the place of types, of each class once: a class may refer to itself."""

    def __init__(self, types: dict[type, CarriedType]) -> None:
        self._types = types

    def rewritten(self, annotation: Any) -> Any:
        if annotation is None or annotation is Ellipsis or _is_supported(annotation):
            return annotation
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return Annotated[(self.rewritten(args[0]), *args[1:])]
        if (meant := opened(annotation)) is not annotation:
            return self.rewritten(meant)
        if origin in UNION_ORIGINS:
            return self._union(annotation, args)
        cls: Any = origin or annotation
        if isinstance(cls, type) and _has_fields(cls):
            return self._class(annotation, cls)
        generic: Any = cls
        return generic[tuple(map(self.rewritten, args))] if args else annotation

    def _union(self, annotation: Any, args: Sequence[Any]) -> Any:
        unset, union = msgspec.UNSET, cast(Any, typing.Union)
        optional: Any = typing.Optional
        members = [arg for arg in args if arg is not type(None)]
        if any(service_class(member) is not None for member in members):
            return annotation
        inside = [self.rewritten(member) for member in members]
        none = [None] if len(members) < len(args) else []
        made = union[(*inside, *none)]
        if _is_supported(made):
            return made
        bare = union[tuple(members)]
        if (known := self._known(bare)) is not None:
            return optional[known] if none else known
        tests = [outer_type(member, self._types) for member in members]
        _check_apart(members, tests)
        names = _names(members)
        fields = [(name, union[each, msgspec.UnsetType], unset) for name, each in zip(names, inside, strict=True)]
        name = "Or".join(part[:1].upper() + part[1:] for part in names)
        data: Any = msgspec.defstruct(name, fields, kw_only=True)

        def give(value: Any) -> Any:
            return data(**{names[_member(tests, value)]: value})

        def make(sent: Any) -> Any:
            given = [value for value in map(sent.__getattribute__, names) if value is not unset]
            if len(given) != 1:
                raise ValueError(f"it has {len(given)} of {', '.join(names)}, not one")
            return given[0]

        carried = StandIn(bare, outer_type(bare, self._types), data, give=give, make=make)
        carried.form = " or ".join(f"{{'{name}': ...}}" for name in names)
        carried.members = tuple(inside)
        stand_in = self._add(carried)
        return optional[stand_in] if none else stand_in

    def _class(self, annotation: Any, cls: Any) -> Any:
        if (known := self._known(annotation)) is not None:
            return known
        fields = _fields(cls)
        if fields is None:
            return annotation
        outer = OuterType((cls,), partial(_is_exactly, cls))
        carried = StandIn(annotation, outer, object, give=None, make=None)
        # Before the fields, which may be of the class itself.
        stand_in = self._add(carried)
        hints = field_hints(annotation)
        declared: list[Any] = []
        for name, field in fields.items():
            kind = self.rewritten(hints[name])
            declared.append((name, kind, field.declared(is_same=kind is hints[name])))
        data: Any = msgspec.defstruct(re.sub(r"\W+", "_", type_name(annotation)), declared, kw_only=True)
        refuse_more = refuses_extra(carried.name, cls, list(fields))

        def give(value: Any) -> Any:
            if refuse_more is not None:
                refuse_more(value)
            return data(**{name: getattr(value, name) for name in fields})

        carried.to, carried.give, carried.make = data, give, _remaker(cls, list(fields))
        return stand_in

    def _known(self, annotation: Any) -> Any | None:
        """The class that stands for a type already."""
        stand_ins = (each for each in self._types.values() if isinstance(each, StandIn))
        return next((each.cls for each in stand_ins if each.written == annotation), None)

    def _add(self, carried: CarriedType) -> Any:
        self._types[carried.cls] = carried
        return carried.cls


def _is_exactly(cls: type, value: object) -> bool:
    return type(value) is cls


def _has_fields(cls: Any) -> bool:
    return any(hasattr(cls, mark) for mark in ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__"))


class Same:
    """Makes the very object each time: a default that is as in the class, and that msgspec would copy or refuse."""

    __slots__ = ("default",)

    def __init__(self, default: Any) -> None:
        self.default = default

    def __call__(self) -> Any:
        """The default."""
        return self.default


class _Field(NamedTuple):
    """A field of a class, with what msgspec has of it."""

    default: Any = msgspec.NODEFAULT
    factory: Any = msgspec.NODEFAULT
    sent_as: str | None = None
    """Its name in a message, if that is another one."""

    def declared(self, *, is_same: bool) -> Any:
        """The field of what takes the place of the class. ``is_same``: it is of the same type."""
        default: Any = self.default
        if self.factory is not msgspec.NODEFAULT:
            return msgspec.field(default_factory=self.factory, name=self.sent_as)
        if default is msgspec.NODEFAULT:
            return msgspec.field(name=self.sent_as)
        if default is None or (is_same and not isinstance(default, _CHANGEABLE)):
            return msgspec.field(default=default, name=self.sent_as)
        return msgspec.field(default_factory=Same(default), name=self.sent_as)


_CHANGEABLE: Final = (list, dict, set, bytearray, msgspec.Struct)
"""Classes of defaults of which msgspec makes copies, or which it refuses."""


def _fields(cls: Any) -> dict[str, _Field] | None:
    """The fields of a class by their names; ``None`` if these are not all there is."""
    found: dict[str, _Field] = {}
    if hasattr(cls, "__struct_fields__"):
        config = cls.__struct_config__
        if config.tag is not None or config.array_like:
            return None
        for field in msgspec.structs.fields(cls):
            sent_as = None if field.encode_name == field.name else field.encode_name
            found[field.name] = _Field(field.default, field.default_factory, sent_as)
        return found
    if hasattr(cls, "__attrs_attrs__"):
        for field in cls.__attrs_attrs__:
            factory = getattr(field.default, "factory", None)
            if factory is not None and field.default.takes_self:
                return None
            if factory is not None:
                found[field.name] = _Field(factory=factory)
            else:
                found[field.name] = _Field() if repr(field.default) == "NOTHING" else _Field(field.default)
        return found
    plain = dataclasses.fields(cls)
    if len(plain) < len([each for each in cls.__dataclass_fields__.values() if "ClassVar" not in str(each.type)]):
        return None  # InitVar
    for each in plain:
        default, factory = (
            msgspec.NODEFAULT if part is dataclasses.MISSING else part for part in (each.default, each.default_factory)
        )
        found[each.name] = _Field(default, factory)
    return found


def _remaker(cls: Any, names: list[str]) -> Callable[[Any], Any]:
    """Makes a function from the fields that arrived to the object, as it left."""
    make, check, is_struct = maker(cls, names), check_of(cls), hasattr(cls, "__struct_fields__")

    def remake(sent: Any) -> Any:
        values = {name: getattr(sent, name) for name in names}
        if check is not None:
            check(copy.deepcopy(values))
        if make is not None:
            return make(*values.values())
        if is_struct:
            return cls(**values)
        made = empty_object(cls)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    return remake


def _check_apart(members: Sequence[Any], tests: Sequence[OuterType]) -> None:
    seen: dict[Any, Any] = {}
    for member, test in zip(members, tests, strict=True):
        kinds: tuple[Any, ...] = test.accepts or ((get_origin(member) or member),)
        for kind in kinds:
            if test.fits is None or seen.setdefault(kind, member) is not member:
                other = seen.get(kind, member)
                raise UnsupportedTypeError(
                    f"{type_name(other)} and {type_name(member)} in a union could not be told apart, since values of "
                    f"both are of {type_name(kind)}: take one of them"
                )


def _names(members: Sequence[Any]) -> list[str]:
    """A name for each member, which a field can have."""
    found: list[str] = []
    for member in members:
        name = base = re.sub(r"\W+", "_", type_name(member)).strip("_")
        number = 2
        while name in found:
            name, number = f"{base}_{number}", number + 1
        found.append(name)
    return found


def _member(tests: Sequence[OuterType], value: Any) -> int:
    """The member of a union that a value is of."""
    for number, test in enumerate(tests):
        if type(value) in test.accepts:
            return number
    for number, test in enumerate(tests):
        if test.fits is not None and test.fits(value):
            return number
    raise TypeError(f"{describe_value(value)} is none of its members")
