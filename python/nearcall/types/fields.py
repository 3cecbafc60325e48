"""Finds fields that the reader of a value does not know. Their values would be lost, so they may only hold their
defaults.

The client looks for them, in what it sends and in what it receives, because it knows both declarations. It searches
encoded values, because they show what is sent; and only where the declarations allow such fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from .differences import Types
from .guards import is_dict, is_list
from .schema import opened_schema, show

__all__ = ["Finder", "UnknownField", "field_finder"]

_MOST_TRIED: Final = 50_000
"""Pairs of schemas that are compared for one value: a peer may describe many types."""

Decoded: TypeAlias = Any
Finder: TypeAlias = "Callable[[bytes], UnknownField | None]"


class UnknownField(msgspec.Struct, frozen=True):
    """A field of a value that the reader does not know."""

    path: str
    """``[3].y``"""
    name: str
    type_name: str | None
    """Its type as the writer declares it; ``None`` if the writer does not."""
    reader: str
    """The reader's type that does not have it."""

    def __str__(self) -> str:
        return self.name if self.type_name is None else f"{self.name}: {self.type_name}"


def field_finder(written: Any, written_types: Types, read: Any, read_types: Types) -> Finder | None:
    """Makes a function that finds the first field in an encoded value that would be lost; ``None`` if there can be
    none.

    Args:
        written: The writer's schema.
        written_types: The named types that it refers to.
        read: The reader's schema.
        read_types: The named types that it refers to.

    Raises:
        ValueError: there are too many ways to try.
    """
    search = _Search(written_types, read_types)
    if (written == read and written_types == read_types) or not search.possible(written, read, set()):
        return None
    decode: Callable[[bytes], Decoded] = msgspec.msgpack.Decoder(ext_hook=_no_matter).decode
    return lambda encoded: search.find(decode(encoded), written, read, "")


class _Search:
    def __init__(self, written_types: Types, read_types: Types) -> None:
        self.written_types = written_types
        self.read_types = read_types
        self.tried = 0

    def possible(self, written: Any, read: Any, seen: set[tuple[object, str]]) -> bool:
        """Whether a value can hold a field that the reader does not know."""
        self.tried += 1
        if self.tried > _MOST_TRIED:
            raise ValueError("the types refer to each other in too many ways to be compared")
        written, read = opened_schema(written), opened_schema(read)
        kind, inner = _kind(read)
        if kind == "union":
            return any(self.possible(written, member, seen) for member in inner)
        if _kind(written)[0] == "union":
            return any(self.possible(member, read, seen) for member in written["union"])
        if kind == "ref":
            described = self.read_types.get(inner, {})
            writer = self._writer(written, described)
            pair = _identity(written), inner
            if pair in seen or (writer is None and written != "any"):
                return False  # in another layout, which the decoder refuses
            seen.add(pair)
            known = {field["name"] for field in described.get("fields", ())}
            leaves_out = described.get("layout") != "map" or described.get("open")
            if not leaves_out and (writer is None or any(name not in known for name in writer)):
                return True
            return any(
                self.possible(_type_of(writer, field["name"]), field["type"], seen)
                for field in described.get("fields", ())
            )
        return any(self.possible(theirs, ours, seen) for theirs, ours in _inside(written, read))

    def find(self, value: Decoded, written: Any, read: Any, path: str) -> UnknownField | None:
        """The first field that the reader does not know. The decoder refuses values that do not fit the schema."""
        written, read = opened_schema(written), opened_schema(read)
        kind, inner = _kind(read)
        if kind == "union":
            meant = next((member for member in inner if _is_meant(value, member, self.read_types)), None)
            return None if meant is None else self.find(value, written, meant, path)
        if _kind(written)[0] == "union":
            members: list[Any] = written["union"]
            meant = next((member for member in members if _is_meant(value, member, self.written_types)), "any")
            return self.find(value, meant, read, path)
        if kind == "ref":
            return self._in_fields(value, written, inner, path)
        items: Iterable[tuple[Any, Any]] = ()
        if kind in ("list", "set", "tuple") and is_list(value):
            items = enumerate(value)
        elif kind == "dict" and is_dict(value):
            items = value.items()
        pairs = _inside(written, read)
        if not pairs:
            return None
        for number, (key, item) in enumerate(items):
            theirs, ours = pairs[min(number, len(pairs) - 1)] if kind == "tuple" else pairs[-1]
            if found := self.find(item, theirs, ours, f"{path}[{key!r}]"):
                return found
        return None

    def _in_fields(self, value: Decoded, written: Any, name: str, path: str) -> UnknownField | None:
        described = self.read_types.get(name, {})
        fields = {field["name"]: field for field in described.get("fields", ())}
        writer = self._writer(written, described)
        if described.get("layout") == "array" and is_list(value):
            given: Iterable[tuple[Any, Any]] = zip(fields, value, strict=False)
        elif described.get("layout") == "map" and is_dict(value):
            given = value.items()
        else:
            return None
        tag = described.get("tag")
        for key, item in given:
            field = fields.get(key)
            if field is not None:
                found = self.find(item, _type_of(writer, key), field["type"], f"{path}.{key}")
                if found:
                    return found
            elif not (described.get("open") or (tag and key == tag[0])):
                known = (writer or {}).get(key)
                if known is None or not _is_default(item, known):
                    type_name = None if known is None else show(known["type"])
                    return UnknownField(f"{path}.{key}", str(key), type_name, name)
        return None

    def _writer(self, written: Any, reader: Any) -> dict[str, Any] | None:
        """The writer's fields by name, if it declares the value in the reader's layout."""
        kind, inner = _kind(opened_schema(written))
        described = self.written_types.get(inner) if kind == "ref" else None
        if not described or described.get("layout") != reader.get("layout"):
            return None
        return {field["name"]: field for field in described["fields"]}


def _identity(schema: Any) -> object:
    """A key for a schema: types of the same name are the same."""
    kind, inner = _kind(schema)
    return inner if kind == "ref" else id(schema) if is_dict(schema) else (kind,)


def _kind(schema: Any) -> tuple[str, Any]:
    if not is_dict(schema) or not schema:
        return str(schema), None
    return next(iter(schema.items()))


def _inside(written: Any, read: Any) -> list[tuple[Any, Any]]:
    """The schemas of what a value contains, in pairs of the writer's and the reader's."""
    kind, ours = _kind(read)
    its, theirs = _kind(written)
    if kind in ("list", "set"):
        return [(theirs if its == kind else "any", ours)]
    if kind in ("dict", "tuple"):
        known = theirs if its == kind and len(theirs) == len(ours) else ["any"] * len(ours)
        return list(zip(known, ours, strict=True))
    return []


def _type_of(writer: dict[str, Any] | None, name: str) -> Any:
    return writer[name]["type"] if writer is not None and name in writer else "any"


def _is_default(item: Decoded, field: Any) -> bool:
    if "default" not in field:
        return False
    try:
        plain = msgspec.to_builtins(item)
    except (TypeError, ValueError, OverflowError):  # an array, for example
        return False
    default = field["default"]
    return bool(plain == default) and isinstance(plain, bool) == isinstance(default, bool)


def _is_meant(value: Decoded, schema: Any, types: Types) -> bool:
    """Whether a value is of this member of a union. If several members have fields, they have tags."""
    kind, inner = _kind(opened_schema(schema))
    if kind == "ref":
        described = types.get(inner, {})
        if described.get("layout") == "array":
            return is_list(value)
        tag = described.get("tag")
        return is_dict(value) and (tag is None or value.get(tag[0]) == tag[1])
    return is_dict(value) if kind == "dict" else kind in ("list", "set", "tuple") and is_list(value)


def _no_matter(code: int, data: memoryview) -> object:
    return object()
