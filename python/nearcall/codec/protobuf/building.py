"""Makes messages of type hints."""

from __future__ import annotations

import enum
import typing
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..._core import ProtobufCodec, ProtobufMessages
from ...types.arrays import dtype_of_annotation
from ...types.carried import CarriedShape
from ...types.declared import is_function, service_class
from ...types.hints import UNION_ORIGINS, applied, field_hints, opened, type_name, unwrap
from ...types.numbers import FLOATS, INTEGERS, FieldOptions, field_options
from ..arriving import checker, maker
from ..carrying import CarriedSender, object_maker
from ..choices import Same, StandIn
from ..inspection import UnsupportedTypeError, inspect_type
from ..senders import refuses_extra
from . import hooks
from .enums import enum_type, is_open
from .errors import CodingError
from .messages import REQUIRED, ZERO, Element, EnumType, Field, Message, own_doc
from .names import check_name, json_name, title, upper_snake
from .options import NOT_IMPLICIT, inner_options, no_number
from .single import buffer, lengths, limited, literal
from .well_known import in_json

__all__ = ["Builder", "Declared", "codec_by_itself", "is_class"]

ARRAY: Final = "NdArray"
"""The message of a numpy array."""
_CONTAINERS: dict[type, tuple[str, tuple[type, ...]]] = {
    shapes.ListType: ("list", (list, tuple)),
    shapes.VarTupleType: ("tuple", (tuple, list)),
    shapes.SetType: ("set", (set, frozenset)),
    shapes.FrozenSetType: ("frozenset", (frozenset, set)),
}
_EXACT: dict[type, tuple[type, ...]] = {list: (list,), tuple: (tuple,), set: (set,), frozenset: (frozenset,)}
_TEXTS: dict[type, str] = {
    shapes.DateType: "date",
    shapes.TimeType: "time",
    shapes.UUIDType: "UUID",
    shapes.DecimalType: "Decimal",
}


class Declared(NamedTuple):
    """A field or a parameter as it is declared."""

    name: str
    annotation: Any
    shape: Any
    """msgspec's description of the annotation."""
    required: bool = True
    default: Any = msgspec.NODEFAULT
    """``NODEFAULT`` if there is none, if a factory makes it, or if the interface leaves it to the implementation."""
    factory: Any = msgspec.NODEFAULT
    fallback: Any = msgspec.NODEFAULT
    """The value of an absent field if it has no other default; it must not change what the ``.proto`` declares."""
    may_lack: bool = False
    """A dict may lack it."""
    proto_name: str | None = None


def codec_by_itself(cls: type, format: Literal["binary", "json"]) -> ProtobufCodec:
    """The codec of a class by itself."""
    builder = Builder()
    place = builder.element(inspect_type(cls), cls, FieldOptions()).kind
    assert isinstance(place, int)
    return ProtobufMessages(builder.messages, CodingError).codec(place, format=format)


def numbered(declared: Sequence[Declared], owner: str) -> list[int]:
    """The number of each field: the number it is pinned to, or else its place, from 1.

    Raises:
        UnsupportedTypeError: two fields have the same number.
    """
    numbers: dict[int, str] = {}
    for place, each in enumerate(declared, 1):
        number = field_options(each.annotation).number or place
        if number in numbers:
            raise UnsupportedTypeError(
                f"'{numbers[number]}' and '{each.name}' of {owner} both have the number {number}: pin one with "
                "Annotated[..., nearcall.field(...)]"
            )
        numbers[number] = each.name
    return list(numbers)


def is_class(shape: Any) -> bool:
    """Whether a type is a class with fields, which is a message by itself."""
    carried = shape.carried if isinstance(shape, CarriedShape) else None
    return hasattr(shape, "fields") or (isinstance(carried, StandIn) and not carried.members)


class Builder:
    """Makes the messages and enums of one service, each type once."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.enums: dict[Any, EnumType] = {}
        self._classes: dict[Any, int] = {}
        self._wrappers: dict[Any, int] = {}
        self.imports: set[str] = set()

    def add(self, message: Message) -> int:
        """Adds a message, and returns its place."""
        self.messages.append(message)
        return len(self.messages) - 1

    def fill(self, message: Message, declared: Sequence[Declared], method: str | None = None) -> Message:
        """Gives a message its fields; if ``method`` is given, these are the parameters of that method.

        Raises:
            UnsupportedTypeError: a type has no counterpart in Protobuf, or two fields have one number or one name.
        """
        names: dict[str, str] = {}
        for number, each in zip(numbered(declared, method or message.name), declared, strict=True):
            what = f"a field of {message.name}" if method is None else f"a parameter of {method}"
            name = check_name(each.proto_name or each.name, what)
            in_json = field_options(each.annotation).json_name or json_name(name)
            if (other := names.setdefault(in_json.lower(), name)) != name:
                raise UnsupportedTypeError(f"fields '{other}' and '{name}' of {message.name} have one name in JSON")
            try:
                message.fields.append(self.field(number, each._replace(proto_name=name)))
            except UnsupportedTypeError as problem:
                where = f"{message.name}.{each.name}" if method is None else f"parameter '{each.name}'"
                raise UnsupportedTypeError(f"{where}: {problem}") from None
        return message

    def field(self, number: int, declared: Declared) -> Field:
        """The field of a message for a declared field or parameter."""
        found = self._field(number, declared)
        found.own_json_name = field_options(declared.annotation).json_name
        return found

    def _field(self, number: int, declared: Declared) -> Field:
        shape, hint, optional, unset = _bare(declared.shape, declared.annotation)
        options = field_options(declared.annotation)
        defaults = not declared.required or declared.may_lack or unset
        # Whether ``None`` and absence mean different things.
        apart = optional and (unset or declared.may_lack or (not declared.required and declared.default is not None))
        contained = type(shape) in _CONTAINERS or isinstance(shape, shapes.DictType)
        if contained and options.type is not None:
            raise no_number(options, hint)
        if contained and options.implicit:
            raise UnsupportedTypeError(NOT_IMPLICIT)
        if not apart and not optional and contained:
            empty = declared.default in ((), frozenset()) if _is_plain(declared.default) else False
            factory: Any = get_origin(declared.factory) or declared.factory  # list[int] makes an empty list as well
            empty = empty or factory in (list, dict, set, frozenset, tuple)
            if not declared.may_lack and not unset and (declared.required or empty):
                return self._container(number, declared, shape, hint, ZERO)
        if apart:
            element = self.wrapper(declared.shape, declared.annotation)
        elif contained:
            element = self.wrapper(shape, hint)
        else:
            element = self.element(shape, hint, options)
        found = Field(number, declared.name, declared.proto_name or declared.name, "presence", element)
        found.accepts = element.accepts
        found.required = declared.required and not (declared.may_lack or optional or unset)
        if unset:
            found.left_out, found.absent = [msgspec.UNSET], ("value", msgspec.UNSET)
        elif declared.may_lack:
            found.absent = ("omit", None)
        elif optional and not apart:
            found.left_out, found.absent = [None], ("value", None)
        elif declared.factory is not msgspec.NODEFAULT:
            found.absent = ("factory", declared.factory)
        elif declared.default is not msgspec.NODEFAULT:
            found.absent = ("value", declared.default)
        elif declared.fallback is not msgspec.NODEFAULT:
            found.absent = ("value", declared.fallback)
        elif element.kind == "any":
            found.absent = ("value", None)
        elif element.is_message or (element.from_ is not None and element.kind != "bytes"):
            # No text is no UUID, but no bytes are an empty buffer.
            found.absent = REQUIRED
        if options.implicit and element.kind == "any" and declared.default is None:
            found.left_out = [None]
        elif options.implicit:
            if not defaults or optional or element.is_message or not _is_zero(declared.default):
                raise UnsupportedTypeError(NOT_IMPLICIT)
            found.shape = "implicit"
        elif not defaults and not optional and not element.is_message:
            found.shape = "implicit"
        return found

    def _container(self, number: int, declared: Declared, shape: Any, hint: Any, absent: Any) -> Field:
        name, args = declared.proto_name or declared.name, get_args(hint)
        if isinstance(shape, shapes.DictType):
            key = self._key(shape.key_type, args[0] if len(args) == 2 else None)
            value = self.alone(shape.value_type, args[1] if len(args) == 2 else None)
            found = Field(number, declared.name, name, "map", value, key, absent, accepts=(dict,))
        else:
            kind, accepts = _CONTAINERS[type(shape)]
            accepts = _EXACT.get(get_origin(hint) or hint, accepts)
            element = self.alone(shape.item_type, args[0] if args else None)
            found = Field(number, declared.name, name, kind, element, None, absent, accepts=accepts)
        found.required = declared.required
        if limits := lengths(shape):
            found.check, found.limits = hooks.within(**limits), limits
        return found

    def _key(self, shape: Any, hint: Any) -> Element:
        bare = _bare(shape, hint)[0]
        meant = bare.inner if isinstance(bare, CarriedShape) else bare
        if isinstance(meant, (shapes.StrType, shapes.IntType, shapes.BoolType)):
            return self.element(bare, hint, inner_options(hint))
        raise UnsupportedTypeError("the keys of a dict are str, int or bool in Protobuf: send a list of pairs")

    def alone(self, shape: Any, hint: Any, *, numbered: bool = False) -> Element:
        """An element for a place that cannot hold a container or ``None``, such as an item of a list: these are wrapped
        in a message.

        Args:
            shape: The type.
            hint: Its annotation.
            numbered: Whether the place has a number, as a member of a union has.
        """
        options = inner_options(hint, numbered=numbered)
        bare, bare_hint, optional, _ = _bare(shape, hint)
        if optional or type(bare) in _CONTAINERS or isinstance(bare, shapes.DictType):
            return self.wrapper(shape, hint)
        return self.element(bare, bare_hint, options)

    def element(self, shape: Any, hint: Any, options: FieldOptions) -> Element:  # noqa: PLR0911 - one for each type
        """A single value of a type."""
        kind = cast(Any, type(shape))
        if isinstance(shape, shapes.IntType):
            number = options.type or "int64"
            if number not in INTEGERS:
                raise UnsupportedTypeError(f"an int cannot be a {number}: write one of {', '.join(sorted(INTEGERS))}")
            return limited(Element(number, "int", number, (int,)), shape, int)
        if isinstance(shape, shapes.FloatType):
            number = options.type or "double"
            if number not in FLOATS:
                raise UnsupportedTypeError(f"a float cannot be a {number}: write float or double")
            return limited(Element(number, "float", number, (float,)), shape, float)
        if options.type is not None:
            raise no_number(options, hint)
        if isinstance(shape, shapes.BoolType):
            return Element("bool", "bool", "bool", (bool,))
        if isinstance(shape, shapes.StrType):
            return limited(Element("string", "str", "string", (str,)), shape, str)
        if isinstance(shape, (shapes.BytesType, shapes.ByteArrayType, shapes.MemoryViewType)):
            return buffer(shape)
        if isinstance(shape, shapes.DateTimeType):
            if shape.tz is False:
                raise UnsupportedTypeError("a datetime without a time zone is no point in time: send it as str")
            import datetime

            return self._google("timestamp", "datetime", "google.protobuf.Timestamp", (datetime.datetime,))
        if isinstance(shape, shapes.TimeDeltaType):
            import datetime

            return self._google("duration", "timedelta", "google.protobuf.Duration", (datetime.timedelta,))
        if isinstance(shape, shapes.AnyType):
            return self._google("any", "Any", "google.protobuf.Value", (object,))
        if kind in _TEXTS:
            name = _TEXTS[kind]
            cls = next(cls for cls in hooks.TEXTS if cls.__name__ == name)
            to, back = hooks.TEXTS[cls]
            return Element("string", name, "string", (cls,), to=to, from_=back, note=f"a {name} as text")
        if isinstance(shape, shapes.LiteralType):
            return literal(shape)
        if isinstance(shape, shapes.EnumType):
            return self._enum(shape.cls)
        if isinstance(shape, CarriedShape):
            return self._carried(shape)
        if isinstance(shape, shapes.CustomType):
            return self._custom(shape, hint)
        if isinstance(shape, (shapes.UnionType, shapes.TupleType, shapes.NoneType)):
            return self.wrapper(shape, hint)
        if hasattr(shape, "fields"):
            return self._object(shape)
        raise UnsupportedTypeError(f"{type_name(hint)} has no counterpart in Protobuf")

    def _google(self, kind: str, name: str, proto: str, accepts: tuple[type, ...]) -> Element:
        file = {"any": "struct"}.get(kind, kind)
        self.imports.add(f"google/protobuf/{file}.proto")
        return Element(kind, name, proto, accepts)

    def _carried(self, shape: CarriedShape) -> Element:
        """What travels in the place of an object."""
        carried, travels = shape.carried, cast(Any, shape.inner)
        if isinstance(carried, StandIn) and carried.members:
            kinds = [field.type for field in travels.fields]
            return self._one_of(("union", shape.cls), carried.name, kinds, carried.members)
        if isinstance(carried, StandIn):
            return self._object(travels, carried.written)
        inner = self.alone(shape.inner, shape.to)
        sender, make = CarriedSender(shape, None), object_maker(shape)
        to, back, check = inner.to, inner.from_, inner.check

        def give(value: Any) -> Any:
            sender.check(value)
            given = sender.rewrite(value)
            if check is not None:
                check(given)
            return given

        def made(sent: Any) -> Any:
            if check is not None:
                check(sent)
            return make(sent)

        name = type_name(shape.cls)
        found = msgspec.structs.replace(inner, name=name, accepts=shape.carried.kinds, from_list=None, open_class=None)
        found.to = give if to is None else lambda value: to(give(value))
        found.from_ = made if back is None else lambda sent: made(back(sent))
        found.check = None  # it is of what travels
        found.note = f"a {name}" if inner.note is None else f"a {name}, as {inner.note}"
        return found

    def _custom(self, shape: Any, hint: Any) -> Element:
        if (service := service_class(shape.cls)) is not None:
            if is_function(service):
                raise UnsupportedTypeError("gRPC cannot pass functions: stream what they would be called with")
            raise UnsupportedTypeError(
                f"{type_name(service)} is a service, and gRPC has no references to objects: serve it by itself"
            )
        import numpy as np

        scalar = dtype_of_annotation(unwrap(hint if hint is not None else shape.cls))
        place = self._wrappers.get(ARRAY)
        if place is None:
            parts = [
                Declared(name, annotation, inspect_type(annotation))
                for name, annotation in (("dtype", str), ("shape", tuple[int, ...]), ("data", bytes))
            ]
            doc = "An array of numpy: its dtype such as <f8, the length of each dimension, the elements in C order."
            place = self._wrappers[ARRAY] = self.add(Message(ARRAY, "ndarray", "tuple", doc=doc))
            self.fill(self.messages[place], parts)
        to, back = hooks.array_to(scalar), hooks.array_from(scalar)
        lists = hooks.array_of_lists(scalar)
        return Element(place, "ndarray", ARRAY, (np.ndarray,), to=to, from_=back, from_list=lists)

    def _enum(self, cls: Any) -> Element:
        if cls not in self.enums:
            self.enums[cls] = enum_type(cls)
        found = self.enums[cls]
        open_class = cls if is_open(cls) and all(isinstance(member.value, int) for member in cls) else None
        return Element(
            found.members, type_name(cls), found.name, (cls,), member_names=found.member_names, open_class=open_class
        )

    def _object(self, shape: Any, written: Any = None) -> Element:
        """An object with fields. ``written``: the class for which that of the shape stands."""
        written = shape.cls if written is None else written
        cls = get_origin(written) or written
        place = self._classes.get(shape.cls)
        if place is None:
            name = check_name(title(type_name(written)), "a class")
            message = Message(name, type_name(written), "object", cls=cls, doc=own_doc(cls))
            place = self._classes[shape.cls] = self.add(message)
            _form(message, shape, cls)
            self.fill(message, _declared(shape))
            message.in_json = in_json(cls, codec_by_itself)
        message = self.messages[place]
        accepts = (dict,) if message.form == "dict" else (cls,)
        return Element(place, message.name, message.proto_name, accepts)

    def wrapper(self, shape: Any, hint: Any) -> Element:
        """A message around a value that cannot be a field by itself: in a list, in a dict, or where ``None`` differs
        from absence.
        """
        bare, bare_hint, optional, _ = _bare(shape, hint)
        name = "None" if isinstance(shape, shapes.NoneType) else type_name(hint if hint is not None else bare)
        if optional:
            inner = Declared("value", hint, shape)
            return self._only(("optional", hint, shape), name, inner, _optional_title)
        if isinstance(bare, shapes.UnionType):
            return self._union(bare, bare_hint)
        if isinstance(bare, shapes.TupleType):
            return self._tuple(bare, bare_hint)
        if isinstance(bare, shapes.NoneType):
            place = self._wrappers.setdefault("none", len(self.messages))
            if place == len(self.messages):
                self.add(Message("Nothing", "None", "nothing"))
            return Element(place, "None", "Nothing", (type(None),))
        declared = Declared("value", bare_hint, bare)
        names = {"set": "Set", "frozenset": "Set"}

        def named(made: Field) -> str:
            if made.key is not None:
                return f"{_title(made.key)}{_title(made.element)}Map"
            return f"{_title(made.element)}{names.get(made.shape, 'List')}"

        return self._only(("container", bare_hint, bare), name, declared, named)

    def _only(self, key: Any, name: str, declared: Declared, named: Any) -> Element:
        key = _key(key)
        if key not in self._wrappers:
            # Other options are those of the field that holds it.
            message = Message("", name, "only", [self._field(1, declared)])
            message.proto_name = named(message.fields[0])
            self._wrap(key, message)
        place = self._wrappers[key]
        message = self.messages[place]
        accepts = message.fields[0].accepts
        return Element(
            place, name, message.proto_name, (*accepts, type(None)) if message.fields[0].left_out else accepts
        )

    def _wrap(self, key: Any, message: Message) -> None:
        """Adds a message around values. It is complete: what refers to it needs its name. But a class in its fields may
        hold the same values, and then it was added meanwhile.
        """
        if key not in self._wrappers:
            self._wrappers[key] = self.add(message)

    def _union(self, shape: Any, hint: Any) -> Element:
        args = [arg for arg in get_args(hint) if arg is not type(None)] if get_origin(hint) in UNION_ORIGINS else []
        # The members are in the order in which they are written, which msgspec keeps.
        members = [member for member in shape.types if not isinstance(member, shapes.NoneType)]
        hints: list[Any] = args if len(args) == len(members) else [None] * len(members)
        if hints is not args and any(field_options(arg) != FieldOptions() for arg in args):
            raise UnsupportedTypeError(f"some members of {type_name(hint)} are one: nearcall.field has no place there")
        return self._one_of(_key(("union", hint, shape)), type_name(hint), members, hints)

    def _one_of(self, key: Any, name: str, members: Sequence[Any], hints: Sequence[Any]) -> Element:
        if key not in self._wrappers:
            elements = [self.alone(member, each, numbered=True) for member, each in zip(members, hints, strict=True)]
            titles: list[str] = []
            for element in elements:
                # A name depends on the members before it alone, so that one more at the end changes none.
                called = _member_title(element)
                titles.append(called if called not in titles else title(element.name))
            names = [check_name(upper_snake(each).lower(), f"a member of {name}") for each in titles]
            if len(set(names)) < len(names):
                raise UnsupportedTypeError(f"two members of {name} are alike in Protobuf: make each a class")
            declared = [Declared(each, hint, None) for each, hint in zip(titles, hints, strict=True)]
            message = Message("Or".join(titles), name, "oneof")
            message.fields = [
                Field(number, each, each, "presence", element, absent=REQUIRED, accepts=element.accepts)
                for number, each, element in zip(numbered(declared, name), names, elements, strict=True)
            ]
            self._wrap(key, message)
        place = self._wrappers[key]
        message = self.messages[place]
        accepts = tuple(dict.fromkeys(cls for field in message.fields for cls in field.accepts))
        return Element(place, message.name, message.proto_name, accepts)

    def _tuple(self, shape: Any, hint: Any) -> Element:
        key = _key(("tuple", hint, shape))
        if key not in self._wrappers:
            args = get_args(hint) if len(get_args(hint)) == len(shape.item_types) else [None] * len(shape.item_types)
            items = [
                Declared(f"item_{number}", arg, item)
                for number, (item, arg) in enumerate(zip(shape.item_types, args, strict=True), 1)
            ]
            message = self.fill(Message("", type_name(hint), "tuple"), items)
            message.proto_name = "".join(_field_title(field) for field in message.fields) + "Tuple"
            self._wrap(key, message)
        place = self._wrappers[key]
        return Element(place, self.messages[place].name, self.messages[place].proto_name, (tuple,))


def _key(parts: tuple[str, Any, Any]) -> Any:
    """A key for a type. It uses ``repr``, because not all annotations can be hashed."""
    kind, hint, shape = parts
    if hint is None:
        return kind, repr(shape)
    # The limits of a container are around its annotation, and not in it.
    return kind, repr(hint), repr(getattr(shape, "cls", "")), tuple(lengths(shape).items())


def _bare(shape: Any, hint: Any) -> tuple[Any, Any, bool, bool]:
    """A type without ``None``, ``UNSET`` and limits around it: shape, annotation, and whether ``None`` and ``UNSET``
    were among its types.
    """
    hint = None if hint is None else unwrap(hint)
    args = get_args(hint) if get_origin(hint) in UNION_ORIGINS else ()
    unset = msgspec.UnsetType in args
    optional = False
    if isinstance(shape, shapes.UnionType):
        left = [each for each in shape.types if not isinstance(each, shapes.NoneType)]
        optional = len(left) < len(shape.types)
        if len(left) == 1:
            shape = left[0]
        elif optional:
            shape = shapes.UnionType(tuple(left))
    if isinstance(shape, shapes.LiteralType) and None in shape.values:
        optional = True
        shape = shapes.LiteralType(tuple(value for value in shape.values if value is not None))
    rest = [arg for arg in args if arg not in (type(None), msgspec.UnsetType)]
    if args and len(rest) < len(args):
        hint = rest[0] if len(rest) == 1 else cast(Any, typing.Union)[tuple(rest)]
    return shape, hint, optional, unset


def _is_zero(default: Any) -> bool:
    """Whether a default is the zero that Protobuf takes an absent number, text, bytes or enum for."""
    value: Any = default.value if isinstance(default, enum.Enum) else default
    return isinstance(value, (bool, int, float, str, bytes)) and not value


def _is_plain(default: Any) -> bool:
    return isinstance(default, (tuple, frozenset))


def _title(element: Element) -> str:
    return title(element.proto.rpartition(".")[2])


def _member_title(element: Element) -> str:
    """What a member of a union is called: after its class, where the type does not say what it is. A ``Path`` is a
    string.
    """
    return _title(element) if element.to is None else title(element.name)


def _optional_title(field: Field) -> str:
    return f"Optional{_title(field.element)}"


def _field_title(field: Field) -> str:
    if field.key is not None:
        return f"{_title(field.key)}{_title(field.element)}Map"
    if field.shape in ("list", "tuple", "set", "frozenset"):
        return f"{_title(field.element)}List"
    return f"Optional{_title(field.element)}" if field.left_out else _title(field.element)


def _form(message: Message, shape: Any, cls: Any) -> None:
    if isinstance(shape, shapes.TypedDictType):
        message.form = "dict"
        return
    if hasattr(cls, "__struct_fields__"):
        message.form = "call"
    elif isinstance(shape, shapes.NamedTupleType):
        message.form = "tuple"
    names = [field.name for field in shape.fields]
    message.make, message.check = maker(cls, names), checker(cls, names)
    message.look = refuses_extra(message.name, cls, names)


def _declared(shape: Any) -> list[Declared]:
    try:
        hints = field_hints(shape.cls)
    except Exception:  # of any class: evaluating annotations runs code. msgspec has accepted them
        hints = {}
    fields: list[Any] = list(shape.fields)
    is_dict = isinstance(shape, shapes.TypedDictType)
    if is_dict:  # msgspec sorts its fields
        order = list(hints)
        fields.sort(key=lambda field: order.index(field.name) if field.name in order else len(order))
    found: list[Declared] = []
    for field in fields:
        hint = hints.get(field.name)
        # Compared by name: in older versions of Python they come from typing_extensions.
        while getattr(get_origin(hint), "_name", None) in ("Required", "NotRequired"):
            hint = get_args(hint)[0]
        name, default, factory = field.name, field.default, field.default_factory
        if isinstance(factory, Same):
            default, factory = factory.default, msgspec.NODEFAULT
        found.append(
            Declared(
                name,
                _closed(hint),
                field.type,
                required=field.required or is_dict,
                default=default,
                factory=factory,
                may_lack=is_dict and not field.required,
                proto_name=field.encode_name,
            )
        )
    return found


def _closed(hint: Any) -> Any:
    """A hint with the bounds of the type variables that are left in it, or ``Any``."""
    variables = (hint,) if isinstance(hint, typing.TypeVar) else getattr(hint, "__parameters__", ())
    return applied(hint, {each: opened(each) for each in variables})
