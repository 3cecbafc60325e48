"""Objects that travel as values of another type, in msgpack: msgspec's decoder asks for them by their class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import inspect as shapes

from ...types.carried import CarriedShape
from ...types.hints import describe_value, type_name
from ..carrying import object_maker
from ..decoders import make_decoder
from ..refused import RefusedError, users_error
from ..shape import walk

__all__ = ["NO_READERS", "Hook", "Readers", "read_by", "readers"]

Readers = Mapping[Any, Callable[[Any], Any]]
"""For each class that travels as another type, what makes an object of what arrived, decoded without a type."""
Hook = Callable[[Any, Any], Any]
"""msgspec's ``dec_hook``: from an annotation and a value without a type to the object."""
NO_READERS: Final[Readers] = {}

_UNCHANGED: Final = frozenset({str, bytes, int, bool})
"""Types that a decoder without types makes as well."""
_BUFFERS: Final = (bytes, bytearray, memoryview)
"""Types whose values arrive as such: no text stands for one."""
_PLACE: Final = re.compile(r" - at `?\$?(?P<where>.*?)`?$")


def readers(types: Iterable[shapes.Type], accepted_first: Any, otherwise: Hook) -> Readers:
    """The readers of all classes in some types that travel as another type.

    Args:
        types: The descriptions of the types.
        accepted_first: Makes a decoder of a type whose classes may refuse values.
        otherwise: Reads what is of no such class.
    """
    found: dict[Any, Callable[[Any], Any]] = {}
    hook = read_by(found, otherwise)
    for shape in types:
        for node in walk(shape):
            if isinstance(node, CarriedShape) and node.cls not in found:
                found[node.cls] = _reader(node, accepted_first, hook)
    return found


def read_by(found: Readers, otherwise: Hook) -> Hook:
    """The hook for a decoder of types with such classes."""

    def read(annotation: Any, value: Any) -> Any:
        reader = found.get(annotation)
        return otherwise(annotation, value) if reader is None else reader(value)

    return read


def _reader(node: CarriedShape, accepted_first: Any, hook: Hook) -> Callable[[Any], Any]:
    make, to, name, form = object_maker(node), node.to, type_name(node.carried.cls), node.carried.form
    if to in _UNCHANGED:

        def read_plain(value: Any) -> Any:
            if type(value) is not to:
                raise ValueError(f"expected {to.__name__}, as which {name} travels, got {describe_value(value)}")
            return make(value)

        return read_plain
    if to is memoryview:

        def read_view(value: Any) -> Any:
            if not isinstance(value, (memoryview, bytes)):
                raise ValueError(f"expected bytes, got {describe_value(value)}")
            return make(memoryview(cast(Any, value)))

        return read_view
    make_decoder(to)  # so that msgspec knows the type before several threads convert to it

    def converter(type_: Any) -> Callable[[Any], Any]:
        return partial(msgspec.convert, type=type_, dec_hook=hook, builtin_types=_BUFFERS)

    convert = accepted_first(to, converter)

    def read(value: Any) -> Any:
        try:
            carried = convert(value)
        except msgspec.ValidationError as problem:
            if form is not None and not isinstance(value, dict):
                raise RefusedError(f"expected {form}, as which {name} travels, got {describe_value(value)}") from None
            if not node.carried.is_named:
                # Nobody has declared that it travels. Here ends a path, and msgspec puts the one before it behind.
                raise RefusedError(str(problem)) from users_error(problem)
            # msgspec puts the place in the message behind what this says.
            text = re.sub(_PLACE, lambda found: f", at {found['where']} of it", str(problem))
            raise RefusedError(f"what {name} travels as: {text[:1].lower()}{text[1:]}") from users_error(problem)
        return make(carried)

    return read
