"""Values on the command line: JSON in, JSON out, with forms for values that JSON lacks.

Bytes are written as a string, which stands for its UTF-8 encoding, or as ``{"base64": "..."}``; arrays as nested
lists; the keys of a dict as strings. Times, UUIDs and decimals are strings, which the server reads by itself. An object
that the server passes is shown as ``{"reference": "..."}`` with its class's name, and let go of when the command ends.
"""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from ..references.reference import is_reference
from ..types.declared import name_of
from ..types.guards import is_dict, is_list
from ..types.schema import opened_schema
from .messages import fields_of
from .written_bytes import to_bytes

__all__ = ["example", "from_json", "has_fields", "to_json"]

_DEEPEST = 3
"""Types within types that an example shows."""
_MOST_FIELDS = 12
"""Fields of one type that an example shows."""
_EXAMPLES: dict[str, Any] = {
    "bool": False,
    "int": 0,
    "float": 0.0,
    "str": "...",
    "bytes": "...",
    "datetime": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00",
    "timedelta": "PT1S",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "decimal": "0.5",
}


def from_json(value: Any, schema: Any, types: Mapping[str, Any]) -> Any:
    """The value to send for a JSON value, given the schema that the server expects.

    A value that does not fit the schema is passed as it is, because the server's own message is better.

    Raises:
        ValueError: a base64 text is malformed.
    """
    schema = opened_schema(schema)
    if schema == "bytes":
        return to_bytes(value)
    if not is_dict(schema):
        return value
    (kind, inner), *_ = schema.items()
    if kind == "array":
        return _to_array(value, inner)
    if kind == "union":
        return _to_union(value, inner, types)
    if kind == "ref":
        return _to_fields(value, types.get(inner) or {}, types)
    if kind in ("list", "set") and is_list(value):
        return [from_json(item, inner, types) for item in value]
    if kind == "tuple" and is_list(value):
        items = value
        return [from_json(item, part, types) for item, part in zip(items, inner, strict=False)] + items[len(inner) :]
    if kind == "dict" and is_dict(value):
        pairs = value.items()
        return {_to_key(key, inner[0]): from_json(item, inner[1], types) for key, item in pairs}
    return value


def has_fields(schema: Any) -> bool:
    """Whether values of a schema are objects with fields, or lists of them."""
    schema = opened_schema(schema)
    if not is_dict(schema):
        return False
    (kind, inner), *_ = schema.items()
    if kind == "union":
        return any(has_fields(member) for member in inner)
    return kind == "ref" or (kind == "list" and has_fields(inner))


def example(schema: Any, types: Mapping[str, Any], within: tuple[str, ...] = ()) -> Any:
    """A value in JSON that fits a schema, with values that show their types.

    Args:
        schema: The schema.
        types: The types with fields, by name.
        within: Those around the value.
    """
    schema = opened_schema(schema)
    if not is_dict(schema):
        return _EXAMPLES.get(schema) if isinstance(schema, str) else None
    (kind, inner), *_ = schema.items()
    if kind == "ref":
        return _example_of_fields(inner, types, within)
    if kind in ("list", "set"):
        item = example(inner, types, within)
        return [] if item == {} else [item]
    if kind == "tuple":
        return [example(part, types, within) for part in inner[:_MOST_FIELDS]]
    if kind == "dict":
        return {_key(example(inner[0], types, within)): example(inner[1], types, within)}
    if kind == "union":
        return next((example(member, types, within) for member in inner if member != "none"), None)
    if kind == "array":
        return [0]
    return inner[0] if kind == "values" and inner else None


def _example_of_fields(name: str, types: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Any]:
    if name in within or len(within) == _DEEPEST:
        return {}
    described: dict[str, Any] = types.get(name) or {}
    fields: list[Any] = described.get("fields") or []
    # Those that must be there come first.
    shown = sorted(fields, key=lambda field: not field["required"])[:_MOST_FIELDS]
    if not any(field["required"] or "default" in field for field in fields):
        shown = shown[:1]  # each may be left out, and of the members of a union there is one
    tag: list[Any] = described.get("tag") or []
    found: dict[str, Any] = {tag[0]: tag[1]} if tag else {}
    return found | {field["name"]: example(field["type"], types, (*within, name)) for field in shown}


def to_json(value: Any) -> bytes:
    """A value that arrived as one line of JSON."""
    return msgspec.json.encode(_plain(value))


def _to_array(value: Any, dtype: str | None) -> Any:
    if not (is_list(value) or type(value) in (int, float)):
        return value
    try:
        import numpy as np
    except ImportError:
        raise ValueError("the method takes a numpy array, and numpy is not installed here: pip install numpy") from None
    try:
        found: Any = np.array(cast(Any, value), dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not an array of {dtype or 'numbers'}: {error}") from None
    if dtype is not None and found.dtype.kind in "biu" and found.tolist() != value:
        raise ValueError(f"not an array of {dtype}: another number would arrive")
    return found


def _to_union(value: Any, members: list[Any], types: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return value.encode() if "bytes" in members and "str" not in members else value
    if value is None and "none" in members:
        return None
    structured = [member for member in members if is_dict(member) or member == "bytes"]
    # If there are several candidates, it is unknown which is meant, and the value is sent as it is.
    return from_json(value, structured[0], types) if len(structured) == 1 else value


def _to_fields(value: Any, described: Mapping[str, Any], types: Mapping[str, Any]) -> Any:
    fields: list[Any] = described.get("fields") or []
    if is_dict(value):
        given = value
        known = {field["name"]: field["type"] for field in fields}
        if described.get("layout") == "array":
            present = [field["name"] for field in fields if field["name"] in given]
            return [from_json(given[name], known[name], types) for name in present]
        return {name: from_json(item, known.get(name, "any"), types) for name, item in given.items()}
    if is_list(value) and described.get("layout") == "array":
        items = value
        return [from_json(item, field["type"], types) for item, field in zip(items, fields, strict=False)] + items[
            len(fields) :
        ]
    return value


def _to_key(key: str, schema: Any) -> Any:
    if schema in ("int", "float"):
        try:
            return int(key) if schema == "int" else float(key)
        except ValueError:
            return key
    return to_bytes(key) if schema == "bytes" else key


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(cast(Any, value))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
    if is_dict(value):
        pairs: Iterable[tuple[Any, Any]] = value.items()
        return {_key(key): _plain(item) for key, item in pairs}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in cast(Any, value)]
    if is_reference(value):
        return {"reference": name_of(value._nearcall_cls)}
    if type(value) is float and not math.isfinite(value):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.name
    if (fields := fields_of(value)) is not None:
        return {name: _plain(each) for name, each in fields}
    to_list = getattr(value, "tolist", None)  # a numpy array or scalar
    return value if to_list is None else _plain(to_list())


def _key(key: Any) -> str:
    text = _plain(key)
    return text if isinstance(text, str) else msgspec.json.encode(text).decode()
