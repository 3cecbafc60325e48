"""The shape of a type as plain data, so that two sides can compare what they declare.

A schema is what a description carries instead of the Python types, which only exist on the server. It says how a value
looks on the wire and leaves out whatever does not matter there, such as a dataclass's name:

- a string for a plain type: ``"int"``, ``"str"``, ``"datetime"``, ..., ``"any"``;
- ``{"list": T}`` (also for ``tuple[T, ...]``), ``{"set": T}``, ``{"dict": [K, V]}``, ``{"tuple": [T, ...]}``;
- ``{"union": [T, ...]}``, ``{"array": dtype or null}`` (numpy);
- ``{"values": [...]}`` (a ``Literal``), and for an enum also ``"names"``, in the same order;
- ``{"reference": "Listener"}``, an object of that service, which stays in its process;
- ``{"carried": "Path", "as": T}``, a class of the user's that travels as another type; with
  ``"class": "torch.Tensor"`` if it is one of a library;
- ``{"ref": "Point"}``, a type with fields, described once in the service's ``types`` table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import inspect as shapes

from .arrays import dtype_name
from .carried import NO_TYPES, CarriedShape, CarriedTypes
from .declared import name_of, service_class
from .functions import is_function_name, show_function
from .guards import is_dict
from .hints import type_name

__all__ = ["OPEN", "SchemaBuilder", "opened_schema", "show"]

_MOST_SHOWN = 200
"""Parts of a schema that are shown; a peer's may have many thousands."""

_PLAIN: dict[type, str] = {
    shapes.AnyType: "any",
    shapes.NoneType: "none",
    shapes.BoolType: "bool",
    shapes.IntType: "int",
    shapes.FloatType: "float",
    shapes.StrType: "str",
    shapes.BytesType: "bytes",
    shapes.ByteArrayType: "bytes",
    shapes.MemoryViewType: "bytes",
    shapes.DateTimeType: "datetime",
    shapes.DateType: "date",
    shapes.TimeType: "time",
    shapes.TimeDeltaType: "timedelta",
    shapes.UUIDType: "uuid",
    shapes.DecimalType: "decimal",
    shapes.RawType: "any",
    shapes.ExtType: "ext",
}


OPEN: Final = "__nearcall_open__"
"""Set to true on a class with fields whose readers leave out fields that they do not know. For what only grows, and
whose values are looked at and not sent on.
"""


class SchemaBuilder:
    """Makes the schemas of one service; ``types`` fills up with the named types met on the way.

    Args:
        carried: The classes that travel as another type in this service.
    """

    def __init__(self, carried: CarriedTypes = NO_TYPES) -> None:
        self.carried = dict(carried)
        self.types: dict[str, Any] = {}
        self._names: dict[Any, str] = {}

    def schema(self, shape: shapes.Type) -> Any:
        """The schema of a type that msgspec has described."""
        plain = _PLAIN.get(type(shape))
        if plain is not None:
            return plain
        if isinstance(shape, (shapes.ListType, shapes.VarTupleType)):
            return {"list": self.schema(shape.item_type)}
        if isinstance(shape, (shapes.SetType, shapes.FrozenSetType)):
            return {"set": self.schema(shape.item_type)}
        if isinstance(shape, shapes.TupleType):
            return {"tuple": [self.schema(item) for item in shape.item_types]}
        if isinstance(shape, shapes.DictType):
            return {"dict": [self.schema(shape.key_type), self.schema(shape.value_type)]}
        if isinstance(shape, shapes.UnionType):
            return {"union": [self.schema(item) for item in shape.types]}
        if isinstance(shape, shapes.LiteralType):
            return {"values": sorted(shape.values, key=lambda value: (str(type(value)), value))}
        if isinstance(shape, shapes.EnumType):
            return {"values": [member.value for member in shape.cls], "names": [member.name for member in shape.cls]}
        if isinstance(shape, CarriedShape):
            return self._carried(shape)
        if isinstance(shape, shapes.CustomType) and (service := service_class(shape.cls)) is not None:
            return {"reference": name_of(service)}
        if isinstance(shape, shapes.CustomType):
            return {"array": dtype_name(shape.cls)}
        return {"ref": self._reference(shape)}

    def _carried(self, shape: CarriedShape) -> Any:
        inner = self.schema(shape.inner)
        if not shape.carried.is_named:
            return inner
        known = {} if shape.carried.library_class is None else {"class": shape.carried.library_class}
        return {"carried": shape.carried.name, "as": inner, **known}

    def _reference(self, shape: Any) -> str:
        known = self._names.get(shape.cls)
        if known is not None:
            return known
        name = base = type_name(shape.cls)
        number = 2
        while name in self.types:
            name, number = f"{base}#{number}", number + 1
        self._names[shape.cls] = name
        self.types[name] = {}  # holds the name while the fields, which may refer back to it, are described
        is_array = getattr(shape, "array_like", type(cast(object, shape)) is shapes.NamedTupleType)
        fields = [
            {"name": field.encode_name, "required": field.required, "type": self.schema(field.type)}
            for field in shape.fields
        ]
        if not is_array:
            for field, described in zip(shape.fields, fields, strict=True):
                described.update(_default(field))
        self.types[name] = {"layout": "array" if is_array else "map", "fields": fields}
        if getattr(shape, "tag", None) is not None:
            self.types[name]["tag"] = [shape.tag_field, shape.tag]
        if getattr(shape, "forbid_unknown_fields", False):
            self.types[name]["closed"] = True
        if getattr(shape.cls, OPEN, False):
            self.types[name]["open"] = True
        return name


def _default(field: shapes.Field) -> dict[str, Any]:
    """The default of a field as plain data, for a side that does not have the field or the class."""
    try:
        if field.default is not msgspec.NODEFAULT:
            return {"default": msgspec.to_builtins(field.default)}
        if field.default_factory in (list, dict, set, frozenset, tuple):
            return {"default": {} if field.default_factory is dict else []}
    except (TypeError, ValueError, OverflowError):
        pass  # not plain data: the description has no default
    return {}


def opened_schema(schema: Any) -> Any:
    """How a value looks on the wire: for a class that travels as another type, the schema of that type."""
    while is_dict(schema) and "carried" in schema:
        schema = schema.get("as", "any")
    return schema


def show(schema: Any) -> str:
    """A schema for people: ``dict[str, Point]``. A schema of very many parts is shortened."""
    return _show(schema, [_MOST_SHOWN])


def _show(schema: Any, left: list[int]) -> str:
    """``left``: parts that may still be shown."""
    left[0] -= 1
    if not isinstance(schema, dict):
        return {"any": "Any", "none": "None"}.get(schema, str(schema))
    if left[0] <= 0:
        return "..."
    (kind, inner), *_ = cast("dict[str, Any]", schema).items()
    if kind == "reference" and is_function_name(str(inner)):
        return show_function(str(inner))
    if kind in ("ref", "reference"):
        return str(inner)
    if kind in ("list", "set"):
        return f"{kind}[{_show(inner, left)}]"
    if kind in ("tuple", "dict"):
        return f"{kind}[{', '.join(_shown(inner, left)) or '()'}]"
    if kind == "union":
        return " | ".join(_shown(inner, left))
    if kind == "carried":
        return f"{inner} (as {_show(opened_schema(schema), left)})"
    if kind == "values":
        return f"Literal[{', '.join(_shown(inner, left, repr))}]"
    if kind == "array":
        return f"NDArray[{inner}]" if inner else "ndarray"
    return f"{kind}[...]"  # a later version's


def _shown(parts: list[Any], left: list[int], how: Callable[[Any], str] | None = None) -> Iterator[str]:
    for part in parts:
        if left[0] <= 0:
            yield "..."
            return
        if how is None:
            yield _show(part, left)
        else:
            left[0] -= 1
            yield how(part)
