"""The shape of a type as plain data, and whether what one side sends fits what the other expects.

A schema is what a description carries instead of the Python types, which only exist on the server. It says how a value
looks on the wire and leaves out what does not matter there, such as a dataclass's name:

- a string for a plain type: ``"int"``, ``"str"``, ``"datetime"``, ..., ``"any"``;
- ``{"list": T}`` (also for ``tuple[T, ...]``), ``{"set": T}``, ``{"dict": [K, V]}``, ``{"tuple": [T, ...]}``;
- ``{"union": [T, ...]}``, ``{"values": [...]}`` (an enum or ``Literal``), ``{"array": dtype or null}`` (numpy);
- ``{"ref": "Point"}``, a type with fields, described once in the service's ``types`` table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect as shapes

from .hints import type_name

__all__ = ["Mismatch", "SchemaBuilder", "find_mismatch", "show"]

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


class SchemaBuilder:
    """Makes the schemas of one service; ``types`` fills up with the named types met on the way."""

    def __init__(self) -> None:
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
            return {"values": [member.value for member in shape.cls]}
        if isinstance(shape, shapes.CustomType):
            return {"array": None}  # msgspec's description of a type leaves an array's dtype out
        return {"ref": self._reference(shape)}

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
        if not is_array and _omits_defaults(shape.cls):
            for field, described in zip(shape.fields, fields, strict=True):
                described.update(_default(field))
        self.types[name] = {"layout": "array" if is_array else "map", "fields": fields}
        if getattr(shape, "tag", None) is not None:
            self.types[name]["tag"] = [shape.tag_field, shape.tag]
        if getattr(shape, "forbid_unknown_fields", False):
            self.types[name]["closed"] = True
        return name


def _omits_defaults(cls: type) -> bool:
    config = getattr(cls, "__struct_config__", None)
    return config is not None and bool(config.omit_defaults)


def _default(field: shapes.Field) -> dict[str, Any]:
    """The value that a field has if it is not sent, as plain data: for clients that do not have the class."""
    try:
        if field.default is not msgspec.NODEFAULT:
            return {"default": msgspec.to_builtins(field.default)}
        if field.default_factory in (list, dict, set, frozenset, tuple):
            return {"default": {} if field.default_factory is dict else []}
    except (TypeError, ValueError, OverflowError):
        pass  # not plain data: then the field stays out, as it was sent
    return {}


class Mismatch(NamedTuple):
    """Where two schemas part, and how: ``.x``, ``int``, ``str``."""

    path: str
    sent: str
    expected: str


Types = Mapping[str, Any]


def find_mismatch(sent: Any, sent_types: Types, expected: Any, expected_types: Types) -> Mismatch | None:
    """The first place where values of one schema would not be accepted as values of the other; ``None`` if they are.

    A type with fields may have gained fields that the receiver does not require, and lost fields that it does not
    require; its name does not matter. ``int`` is accepted as ``float``, and ``any`` goes with everything.
    """
    return _Comparison(sent_types, expected_types).compare(sent, expected, "")


def show(schema: Any) -> str:
    """A schema for people: ``dict[str, Point]``."""
    if not isinstance(schema, dict):
        return {"any": "Any", "none": "None"}.get(schema, str(schema))
    (kind, inner), *_ = cast("dict[str, Any]", schema).items()
    if kind == "ref":
        return str(inner)
    if kind in ("list", "set"):
        return f"{kind}[{show(inner)}]"
    if kind in ("tuple", "dict"):
        return f"{kind}[{', '.join(show(item) for item in inner) or '()'}]"
    if kind == "union":
        return " | ".join(show(item) for item in inner)
    if kind == "values":
        return f"Literal[{', '.join(repr(item) for item in inner)}]"
    return f"NDArray[{inner}]" if inner else "ndarray"


class _Comparison:
    def __init__(self, sent_types: Types, expected_types: Types) -> None:
        self.sent_types = sent_types
        self.expected_types = expected_types
        # Pairs under comparison count as equal: that is what makes types that refer to themselves comparable.
        self.assumed: set[tuple[str, str]] = set()

    def compare(self, sent: Any, expected: Any, path: str) -> Mismatch | None:
        if sent == "any" or expected == "any" or (sent == "int" and expected == "float"):
            return None
        if isinstance(sent, dict) and "union" in sent:
            return next(filter(None, (self.compare(item, expected, path) for item in _inner(sent, "union"))), None)
        if isinstance(expected, dict) and "union" in expected:
            return self._to_union(sent, expected, path)
        if isinstance(sent, dict) and isinstance(expected, dict):
            return self._structures(cast("dict[str, Any]", sent), cast("dict[str, Any]", expected), path)
        if isinstance(sent, dict) and "values" in sent and expected in ("int", "str"):
            fits = all(type(value).__name__ == expected for value in _inner(sent, "values"))
            return None if fits else Mismatch(path, show(sent), show(expected))
        return None if sent == expected else Mismatch(path, show(sent), show(expected))

    def _to_union(self, sent: Any, expected: Any, path: str) -> Mismatch | None:
        problems = [self.compare(sent, item, path) for item in _inner(expected, "union")]
        if None in problems:
            return None
        # A difference deep inside one member tells more than "is none of these".
        deep = [problem for problem in problems if problem is not None and problem.path != path]
        return deep[0] if len(deep) == 1 else Mismatch(path, show(sent), show(expected))

    def _structures(self, sent: dict[str, Any], expected: dict[str, Any], path: str) -> Mismatch | None:
        kind = next(iter(sent))
        if kind not in expected:
            return Mismatch(path, show(sent), show(expected))
        left, right = sent[kind], expected[kind]
        if kind == "ref":
            return self._references(left, right, path)
        if kind in ("list", "set"):
            return self.compare(left, right, path + "[]")
        if kind == "dict":
            return self.compare(left[0], right[0], path + ".keys()") or self.compare(left[1], right[1], path + "[]")
        if kind == "tuple":
            if len(left) != len(right):
                return Mismatch(path, show(sent), show(expected))
            pairs = enumerate(zip(left, right, strict=True))
            return next(filter(None, (self.compare(a, b, f"{path}[{i}]") for i, (a, b) in pairs)), None)
        if kind == "values":
            fits = all(any(type(a) is type(b) and a == b for b in right) for a in left)
        else:  # array: a dtype may be left open on either side
            fits = left is None or right is None or left == right
        return None if fits else Mismatch(path, show(sent), show(expected))

    def _references(self, left: str, right: str, path: str) -> Mismatch | None:
        if (left, right) in self.assumed:
            return None
        self.assumed.add((left, right))
        sent, expected = self.sent_types.get(left), self.expected_types.get(right)
        if not sent or not expected:
            return None  # described by a later version in a way unknown to this one: left to the decoder
        if sent["layout"] != expected["layout"] or sent.get("tag") != expected.get("tag"):
            return Mismatch(path, f"{left} ({_layout(sent)})", f"{right} ({_layout(expected)})")
        if sent["layout"] == "array":
            return self._by_position(sent["fields"], expected["fields"], path)
        return self._by_name(sent["fields"], expected, path)

    def _by_name(self, fields: list[Any], expected: Any, path: str) -> Mismatch | None:
        given = {field["name"]: field for field in fields}
        for field in expected["fields"]:
            name = field["name"]
            if name not in given:
                if field["required"]:
                    return Mismatch(f"{path}.{name}", "no such field", f"{show(field['type'])}, which is required")
                continue
            if problem := self.compare(given[name]["type"], field["type"], f"{path}.{name}"):
                return problem
        if expected.get("closed"):
            known = {field["name"] for field in expected["fields"]}
            for name in given:
                if name not in known:
                    return Mismatch(f"{path}.{name}", show(given[name]["type"]), "no such field")
        return None

    def _by_position(self, sent: list[Any], expected: list[Any], path: str) -> Mismatch | None:
        for position, field in enumerate(expected):
            if position >= len(sent):
                if field["required"]:
                    what = f"{show(field['type'])}, which is required"
                    return Mismatch(f"{path}.{field['name']}", "no such field", what)
                continue
            if problem := self.compare(sent[position]["type"], field["type"], f"{path}.{field['name']}"):
                return problem
        return None


def _inner(schema: Any, kind: str) -> list[Any]:
    members: list[Any] = schema[kind]
    return members


def _layout(described: Any) -> str:
    tag = described.get("tag")
    return str(described["layout"]) + (f", tagged {tag[0]}={tag[1]!r}" if tag else "")
