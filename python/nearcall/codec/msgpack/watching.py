"""Looks for fields in encoded values that their reader does not know: with them a value would change without a word.

What is looked at is what was encoded, not the value: a reference that is encoded once more is given away once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from ...types.fields import Finder, UnknownField
from ..hashed import ANYTHING, together
from ..protocol import BUFFER_FORMS, PARTS, ArgumentsCoding, Parts, ValueCoding

__all__ = ["Refuse", "watch_arguments", "watch_named", "watch_received", "watch_sent"]

Refuse: TypeAlias = "Callable[[str, UnknownField], NoReturn]"
"""Takes the argument's name, or what else the value is, and the field that was found."""


def watch_sent(coding: ValueCoding, what: str, find: Finder, refuse: Refuse) -> ValueCoding:
    """Looks at each value that leaves."""
    encode = coding.encode
    if encode is None:
        return coding

    def encode_watched(value: Any) -> Any:
        encoded = encode(value)
        if found := find(encoded[0] if coding.form == PARTS else encoded):
            refuse(what, found)
        return encoded

    return msgspec.structs.replace(coding, encode=encode_watched)


def watch_received(coding: ValueCoding, what: str, find: Finder, refuse: Refuse) -> ValueCoding:
    """Looks at each value that comes."""
    decode = coding.decode
    if decode is None:
        return coding

    def decode_watched(body: Any, *buffers: Any) -> Any:
        value = decode(body, *buffers)
        if found := find(body):
            refuse(what, found)
        return value

    # What finds fields decodes without a type.
    return msgspec.structs.replace(coding, decode=decode_watched, hashed=together([coding.hashed, ANYTHING]))


def watch_named(
    encode: Callable[[Any], Parts], finders: Mapping[str, Finder], refuse: Refuse
) -> Callable[[Any], Parts]:
    """Looks at the arguments that leave by name."""
    if not finders:
        return encode

    def encode_watched(bound: Any) -> Parts:
        encoded = encode(bound)
        _look(_by_name(encoded[0]), finders, refuse)
        return encoded

    return encode_watched


def watch_arguments(coding: ArgumentsCoding, finders: Mapping[str, Finder], refuse: Refuse) -> ArgumentsCoding:
    """Looks at the arguments that come."""
    group = [name for name, form in zip(coding.names, coding.forms, strict=True) if form not in BUFFER_FORMS]
    decode_all, decode_some = coding.decode, coding.decode_named

    def decode(body: Any, *buffers: Any) -> Any:
        values = decode_all(body, *buffers)
        _look(dict(zip(group, _in_order(body), strict=False)), finders, refuse)
        return values

    def decode_named(body: Any, *buffers: Any) -> Any:
        values = decode_some(body, *buffers)  # type: ignore[misc]
        _look(_by_name(body), finders, refuse)
        return values

    return msgspec.structs.replace(
        coding, decode=decode, decode_named=decode_named, hashed=together([coding.hashed, ANYTHING])
    )


def _look(parts: Mapping[str, msgspec.Raw], finders: Mapping[str, Finder], refuse: Refuse) -> None:
    for name, find in finders.items():
        if name in parts and (found := find(bytes(parts[name]))):
            refuse(f"argument '{name}'", found)


_in_order = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_by_name = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
