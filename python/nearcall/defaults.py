"""Fields that a server leaves out because they have their default: filled in for clients that do not have the class."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

__all__ = ["filler"]

Types = Mapping[str, Any]
Fill = Callable[[Any], None]


def filler(schema: Any, types: Types) -> Fill | None:
    """What puts the missing fields into a value of that schema, in place; ``None`` if none can be missing."""
    if not _leaves_out(schema, types, set()):
        return None
    return lambda value: _fill(value, schema, types)


def _leaves_out(schema: Any, types: Types, seen: set[str]) -> bool:
    """Whether a type that leaves fields out can be reached from the schema."""
    if not isinstance(schema, dict):
        return False
    (kind, inner), *_ = cast("dict[str, Any]", schema).items()
    if kind == "ref":
        if inner in seen or inner not in types:
            return False
        seen.add(inner)
        fields = types[inner].get("fields", ())
        return any("default" in field or _leaves_out(field["type"], types, seen) for field in fields)
    if kind in ("list", "set"):
        return _leaves_out(inner, types, seen)
    if kind in ("tuple", "dict", "union"):
        return any(_leaves_out(item, types, seen) for item in inner)
    return False


def _fill(value: Any, schema: Any, types: Types) -> None:
    if not isinstance(schema, dict):
        return
    (kind, inner), *_ = cast("dict[str, Any]", schema).items()
    if kind == "ref":
        _fill_fields(value, types.get(inner, {}), types)
    elif kind in ("list", "set"):
        for item in _items(value):
            _fill(item, inner, types)
    elif kind == "tuple":
        for item, item_schema in zip(_items(value), inner, strict=False):
            _fill(item, item_schema, types)
    elif kind == "dict":
        for item in (_fields(value) or {}).values():
            _fill(item, inner[1], types)
    elif kind == "union":
        for member in inner:
            if _is_meant(value, member, types):
                _fill(value, member, types)
                return


def _items(value: Any) -> list[Any]:
    return [*cast("Iterable[Any]", value)] if isinstance(value, list) else []


def _fields(value: Any) -> dict[Any, Any] | None:
    return value if type(value) is dict else None  # pyright: ignore[reportUnknownVariableType]


def _fill_fields(value: Any, described: Mapping[str, Any], types: Types) -> None:
    fields = described.get("fields", ())
    if described.get("layout") == "array":
        for item, field in zip(_items(value), fields, strict=False):
            _fill(item, field["type"], types)
    elif (held := _fields(value)) is not None:
        for field in fields:
            name = field["name"]
            if name not in held and "default" in field:
                held[name] = copy.deepcopy(field["default"])
            if name in held:
                _fill(held[name], field["type"], types)


def _is_meant(value: Any, schema: Any, types: Types) -> bool:
    """Whether this member of a union is the value's: types with fields have tags if there are several."""
    if not isinstance(schema, dict):
        return False
    kind, inner = next(iter(cast("dict[str, Any]", schema).items()))
    if kind == "ref":
        described = types.get(inner, {})
        if described.get("layout") == "array":
            return isinstance(value, list)
        tag, held = described.get("tag"), _fields(value)
        return held is not None and (tag is None or held.get(tag[0]) == tag[1])
    return isinstance(value, dict) if kind == "dict" else kind in ("list", "set", "tuple") and isinstance(value, list)
