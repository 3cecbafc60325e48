"""Messages of ``google.protobuf`` that JSON has in forms of their own: ``"a,b"`` for a field mask, a number for a
wrapped number, ``{"@type": ...}`` for an ``Any``.

The rules are those of the `JSON mapping <https://protobuf.dev/programming-guides/json/>`_. Modules that ``nearcall
stub`` writes say in ``__protobuf_name__`` which message a class is.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import typing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from ...types.hints import short_repr

__all__ = ["FULL_NAME", "MOST_VALUES", "OWN_FORMS", "InJson", "MakesCodec", "in_json"]

FULL_NAME: Final = "__protobuf_name__"
"""The attribute of a class that says its message: ``"shop.v1.Item"``."""

InJson: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Any]] | typing.Literal["value"]
"""From a value to what JSON has (``None``, bool, number, text, list or dict), and back; or that it is its field."""


class Codec(Protocol):
    """Encodes and decodes objects of one class."""

    def encode(self, value: Any, /) -> bytes: ...
    def decode(self, body: bytes, max_values: int, /) -> Any: ...


MakesCodec: TypeAlias = Callable[[type, typing.Literal["binary", "json"]], Codec]

MOST_VALUES: Final = 2_000_000
"""Values that a message within an ``Any`` may hold."""
_DEEPEST: Final = 32
"""How deep ``Any`` may lie in ``Any``, whose messages nothing else counts."""
_GOOGLE: Final = "google.protobuf."
_OWN_FORM: Final[dict[str, Any]] = {
    "google.protobuf.Timestamp": datetime.datetime,
    "google.protobuf.Duration": datetime.timedelta,
    "google.protobuf.Value": Any,
}
"""Messages that modules have no class for."""
_NUMBERS: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS: Final = frozenset(f"{_GOOGLE}{kind}Value" for kind in _NUMBERS)
_OTHERS: Final = frozenset(f"{_GOOGLE}{name}" for name in ("FieldMask", "Struct", "ListValue", "Any"))
OWN_FORMS: Final = _WRAPPERS | _OTHERS | _OWN_FORM.keys()
"""The full names of all these messages."""


_depth: ContextVar[int] = ContextVar("nearcall_any_depth", default=0)


def in_json(cls: type, make_codec: MakesCodec) -> InJson | None:
    """The form that JSON has for a class, if it is another one than an object with its fields.

    Args:
        cls: A class of objects that are sent.
        make_codec: Makes the codec of a class.
    """
    full = vars(cls).get(FULL_NAME)
    if full in _WRAPPERS:
        return "value"
    if full == f"{_GOOGLE}FieldMask":
        return lambda mask: _mask(mask.paths), lambda text: cls(paths=_paths(text))
    if full == f"{_GOOGLE}Struct":
        return lambda struct: struct.fields, lambda given: cls(fields=_of(dict, given, "an object"))
    if full == f"{_GOOGLE}ListValue":
        return lambda values: values.values, lambda given: cls(values=_of(list, given, "a list"))
    if full == f"{_GOOGLE}Any":
        return lambda packed: _unpacked(packed, cls, make_codec), lambda given: _packed(given, cls, make_codec)
    return None


def _of(kind: type, given: Any, what: str) -> Any:
    if not isinstance(given, kind):
        raise TypeError(f"expected {what}, got {short_repr(given)}")
    return given


class _Holder:
    """Codes what is in the field of the number 1: messages, and values that are none."""

    def __init__(self, annotation: Any, make_codec: MakesCodec) -> None:
        self._class = msgspec.defstruct("Held", [("value", annotation)])
        self._make_codec = make_codec

    def to_json(self, value: Any) -> Any:
        return json.loads(self._make_codec(self._class, "json").encode(self._class(value)))["value"]

    def from_json(self, given: Any) -> Any:
        return self._make_codec(self._class, "json").decode(json.dumps({"value": given}).encode(), MOST_VALUES).value

    def from_bytes(self, body: bytes) -> Any:
        head, length = bytearray(b"\x0a"), len(body)
        while length > 127:
            head.append(length & 127 | 128)
            length >>= 7
        return self._make_codec(self._class, "binary").decode(bytes([*head, length]) + body, MOST_VALUES).value

    def to_bytes(self, value: Any) -> bytes:
        encoded = self._make_codec(self._class, "binary").encode(self._class(value))
        at = 1
        while encoded[at : at + 1] > b"\x7f":
            at += 1
        return encoded[at + 1 :]


def _mask(paths: list[str]) -> str:
    text = ",".join(re.sub("_([a-z])", lambda found: found[1].upper(), path) for path in paths)
    if "_" in text or _paths(text) != paths:
        raise ValueError(f"the paths {short_repr(paths)} of a FieldMask cannot be written in JSON")
    return text


def _snake(path: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", path)


def _paths(text: Any) -> list[str]:
    text = _of(str, text, "a text such as 'a,bC'")
    paths: list[str] = text.split(",") if text else []
    for path in paths:
        if "_" in path:
            raise ValueError(f"the path {short_repr(path)} of a FieldMask has an underscore: JSON has camelCase")
    return list(map(_snake, paths))


@contextmanager
def _deeper() -> Generator[None, None, None]:
    depth = _depth.get()
    if depth == _DEEPEST:
        raise ValueError(f"an Any lies in more than {_DEEPEST} others")
    token = _depth.set(depth + 1)
    try:
        yield
    finally:
        _depth.reset(token)


def _class_of(url: Any, any_class: type) -> tuple[str, Any]:
    """The full name in a type's URL, and the class for it in the module of an Any's class."""
    if not isinstance(url, str) or "/" not in url:
        raise ValueError(f"an Any needs a type such as type.googleapis.com/shop.v1.Item, got {short_repr(url)}")
    full = url.rpartition("/")[2]
    if full in _OWN_FORM:
        return full, _OWN_FORM[full]
    named: dict[str, Any] = getattr(sys.modules.get(any_class.__module__), "__dict__", {})
    for each in named.values():
        if isinstance(each, type) and vars(each).get(FULL_NAME) == full:
            return full, each
    raise ValueError(
        f"an Any holds a {short_repr(full)}, for which {any_class.__module__} has no class: so it has no form in JSON"
    )


def _unpacked(packed: Any, any_class: type, make_codec: MakesCodec) -> dict[str, Any]:
    if not packed.type_url and not packed.value:
        return {}
    full, cls = _class_of(packed.type_url, any_class)
    with _deeper():
        holder = _Holder(cls, make_codec)
        found = holder.to_json(holder.from_bytes(packed.value))
    return {"@type": packed.type_url, **({"value": found} if full in OWN_FORMS else found)}


def _packed(given: Any, any_class: Any, make_codec: MakesCodec) -> Any:
    fields = dict(cast("dict[str, Any]", _of(dict, given, "an object with '@type'")))
    if not fields:
        return any_class()
    if "@type" not in fields:
        raise ValueError("an Any has no '@type'")
    url = fields.pop("@type")
    full, cls = _class_of(url, any_class)
    if full in OWN_FORMS:
        if fields.keys() != {"value"}:
            raise ValueError(f"an Any that holds a {full} has '@type' and 'value', and nothing else")
        fields = fields["value"]
    with _deeper():
        holder = _Holder(cls, make_codec)
        return any_class(type_url=url, value=holder.to_bytes(holder.from_json(fields)))
