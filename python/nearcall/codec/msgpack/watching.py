"""Looks for fields in encoded values that the reader does not know, and would drop without an error.

It searches the encoded bytes and does not encode the value again, because each encoding of a reference gives the object
away once more.
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
"""Raises the error; takes a description of the value, such as the argument's name, and the field that was found."""


def _looked_at(run: Any, look: Callable[[Any, Any], None], place: int = 0) -> Any:
    """The same function; what it is given at a place is looked at, with what it makes of that. ``None`` stays."""
    if run is None:
        return None

    def run_and_look(*given: Any) -> Any:
        made = run(*given)
        look(given[place], made)
        return made

    return run_and_look


def watch_sent(coding: ValueCoding, what: str, find: Finder, refuse: Refuse) -> ValueCoding:
    """A coding that checks each value that is sent."""

    def look(_: Any, encoded: Any) -> None:
        if found := find(encoded[0] if coding.form == PARTS else encoded):
            refuse(what, found)

    return msgspec.structs.replace(
        coding, encode=_looked_at(coding.encode, look), encode_again=_looked_at(coding.encode_again, look)
    )


def watch_received(coding: ValueCoding, what: str, find: Finder, refuse: Refuse) -> ValueCoding:
    """A coding that checks each value that arrives."""

    def look(body: Any, _: Any) -> None:
        if found := find(body):
            refuse(what, found)

    # Searching for fields decodes the value as Any, so its keys must be checked like those of Any.
    return msgspec.structs.replace(
        coding,
        decode=_looked_at(coding.decode, look),
        decode_again=_looked_at(coding.decode_again, look, 1),
        hashed=together([coding.hashed, ANYTHING]),
    )


def watch_named(
    encode: Callable[[Any], Parts], finders: Mapping[str, Finder], refuse: Refuse
) -> Callable[[Any], Parts]:
    """An encoder that checks the arguments that are sent by name."""
    if not finders:
        return encode

    def encode_watched(bound: Any) -> Parts:
        encoded = encode(bound)
        _look(_by_name(encoded[0]), finders, refuse)
        return encoded

    return encode_watched


def watch_arguments(coding: ArgumentsCoding, finders: Mapping[str, Finder], refuse: Refuse) -> ArgumentsCoding:
    """A coding that checks the arguments that arrive."""
    group = [name for name, form in zip(coding.names, coding.forms, strict=True) if form not in BUFFER_FORMS]

    def look(body: Any, _: Any) -> None:
        _look(dict(zip(group, _in_order(body), strict=False)), finders, refuse)

    def look_by_name(body: Any, _: Any) -> None:
        _look(_by_name(body), finders, refuse)

    return msgspec.structs.replace(
        coding,
        decode=_looked_at(coding.decode, look),
        decode_again=_looked_at(coding.decode_again, look, 1),
        decode_named=_looked_at(coding.decode_named, look_by_name),
        hashed=together([coding.hashed, ANYTHING]),
    )


def _look(parts: Mapping[str, msgspec.Raw], finders: Mapping[str, Finder], refuse: Refuse) -> None:
    for name, find in finders.items():
        if name in parts and (found := find(bytes(parts[name]))):
            refuse(f"argument '{name}'", found)


_in_order = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_by_name = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
