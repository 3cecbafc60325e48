"""Messages of Protobuf on the command line: written and shown as JSON.

The classes are those that ``nearcall stub`` writes. Fields have the names of the ``.proto``, or those of Protobuf's
JSON (``userId`` for ``user_id``); values of enums are written by name or number, 64-bit integers as numbers or strings.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from ..codec.protobuf.names import json_name
from ..types.guards import is_dict, is_list
from ..types.shown import shown
from . import UsageError
from .written_bytes import to_bytes

__all__ = ["fields_of", "to_message"]

_LONGEST = 60
"""Characters of a wrong value that an error shows."""


def to_message(value: Any, kind: Any) -> Any:
    """The message for a value of JSON.

    Args:
        value: As decoded.
        kind: The message's class.

    Raises:
        UsageError: the value does not fit; the message says which field, and what it takes.
    """
    return _made(value, kind, kind.__name__)


def fields_of(value: Any) -> Iterator[tuple[str, Any]] | None:
    """The fields of a message that are set, by their names in the ``.proto``; ``None`` if it is no message."""
    kind = cast(Any, type(value))
    if not _is_message(kind):
        return None
    fields = ((field.name, getattr(value, field.attribute)) for field in _fields(kind).values())
    return ((name, each) for name, each in fields if each is not None)


class _Field:
    def __init__(self, name: str, attribute: str, kind: Any) -> None:
        self.name = name
        self.attribute = attribute
        self.kind = kind


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))


@cache
def _fields(kind: type) -> dict[str, _Field]:
    """The fields of a message, by their names in the ``.proto``."""
    hints = get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        names = [(field.encode_name, field.name) for field in msgspec.structs.fields(kind)]
    else:
        names = [(field.name, field.name) for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return {name: _Field(name, attribute, hints[attribute]) for name, attribute in names}


def _made(value: Any, kind: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):  # with None, which stands for a field that is not set
        whole = next(part for part in get_args(kind) if part is not type(None))
        return None if value is None else _made(value, whole, where)
    if origin is list:
        if not is_list(value):
            raise _wrong(where, "a list", value)
        (inner,) = get_args(kind)
        return [_made(each, inner, f"{where}[{place}]") for place, each in enumerate(value)]
    if origin is dict:
        return _map(value, kind, where)
    if _is_message(kind):
        return _message(value, kind, where)
    if issubclass(kind, enum.IntEnum):
        return _member(value, kind, where)
    return _single(value, kind, where)


def _message(value: Any, kind: Any, where: str) -> Any:
    if not is_dict(value):
        raise _wrong(where, "an object with fields", value)
    fields = _fields(kind)
    in_json = {json_name(name): name for name in fields}
    given: dict[str, Any] = {}
    for key, each in value.items():
        field = fields.get(key) or fields.get(in_json.get(key, ""))
        if field is None:
            close = difflib.get_close_matches(cast(str, key), fields, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(fields) or 'none'}"
            raise UsageError(f"{where} has no field '{shown(key, _LONGEST)}': {hint}")
        if each is not None or field.kind is Any:
            given[field.attribute] = _made(each, field.kind, f"{where}.{field.name}")
    return _told(where, lambda: kind(**given))


def _map(value: Any, kind: Any, where: str) -> Any:
    if not is_dict(value):
        raise _wrong(where, "an object", value)
    key_kind, inner = get_args(kind)
    made: dict[Any, Any] = {}
    for key, each in value.items():
        read: Any = {"true": True, "false": False}.get(key, key) if key_kind is bool else key
        made[_single(read, key_kind, f"a key of {where}")] = _made(each, inner, f"{where}[{shown(key, _LONGEST)!r}]")
    return made


def _member(value: Any, kind: type[enum.IntEnum], where: str) -> Any:
    if isinstance(value, str):
        if value in kind.__members__:
            return kind[value]
        raise _wrong(where, f"one of {', '.join(kind.__members__)}", value)
    return _told(where, lambda: kind(msgspec.convert(value, int)))


def _single(value: Any, kind: Any, where: str) -> Any:
    if kind is bytes:
        value = _told(where, lambda: to_bytes(value))
    return _told(where, lambda: msgspec.convert(value, kind, strict=not isinstance(value, str)))


def _told(where: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise UsageError(f"{where}: {shown(str(error))}") from None


def _wrong(where: str, wanted: str, value: Any) -> UsageError:
    return UsageError(f"{where} takes {wanted}, not {shown(msgspec.json.encode(value).decode(), _LONGEST)}")
