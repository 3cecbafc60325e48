"""How values of a type are sent in msgpack, worked out once, for results, items and arguments alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from msgspec import inspect as shapes

from .. import inspection, sending
from ..explain import Again
from ..hashed import ANYTHING, HashedKeys, hashed_keys
from ..protocol import BUFFER_FORMS, CODED, NOTHING, PARTS, ValueType, buffer_form
from ..senders import Sender
from ..weights import Weights, weights
from . import functions
from .carried import NO_READERS, Readers

__all__ = ["Crossing", "cross", "decoded_again", "decoder", "encoder"]


class Crossing(NamedTuple):
    """How values of a type are sent."""

    type: ValueType
    form: str
    """One of the forms of :mod:`nearcall.codec.protocol`."""
    sender: Sender | None = None
    """Makes sure that values arrive as they were sent; ``None`` if that needs no check."""
    hashed: HashedKeys | None = None
    """Keys that must be checked before a value is decoded; ``None`` if there are none."""
    weights: Weights = Weights()
    """What the values take in memory."""


def cross(type_: ValueType) -> Crossing:
    """How values of a type are sent."""
    shape = type_.shape
    if isinstance(shape, shapes.NoneType):
        return Crossing(type_, NOTHING)
    if (form := buffer_form(shape)) is not None:
        return Crossing(type_, form)
    if type_.described:
        return Crossing(type_, PARTS, type_.sender, ANYTHING, weights(shape))
    form = PARTS if inspection.holds_arrays(shape) else CODED
    return Crossing(type_, form, sending.sender(shape, type_.annotation), hashed_keys(shape), weights(shape))


def encoder(form: str, types: Iterable[shapes.Type]) -> Callable[[Any], Any] | None:
    """The function that encodes values of some types in a form; ``None`` if the form needs none."""
    if form == PARTS and any(map(inspection.holds_tables, types)):
        return functions.encode_aligned
    return {CODED: functions.encode, PARTS: functions.encode_parts}.get(form)


def decoder(
    annotation: Any,
    form: str,
    carried: Readers = NO_READERS,
    *,
    references: bool,
    for_loop: bool,
    counted: bool = True,
    wide: bool = False,
) -> Callable[..., Any] | None:
    """The function that decodes values of a type in a form; ``None`` if the form needs none.

    Args:
        annotation: The type.
        form: The form; a buffer's needs no decoder.
        carried: For classes that travel as another type.
        references: Whether the type holds references.
        for_loop: Whether the methods of the objects that arrive are to be awaited.
        counted: Whether references are counted, so that what is decoded can be used.
        wide: Also ints beyond 64 bits are decoded; not for a type that holds references.
    """
    if form == NOTHING or form in BUFFER_FORMS:
        return None
    if references:
        return functions.reference_decoder(annotation, carried, for_loop=for_loop, counted=counted)
    if form == PARTS:
        return functions.parts_decoder(annotation, carried, wide=wide)
    return functions.coded_decoder(annotation, carried, wide=wide)


def decoded_again(
    decode: Callable[..., Any] | None,
    form: str,
    decode_named: Callable[..., Any] | None = None,
    *,
    uncounted: Callable[[], Callable[..., Any]] | None = None,
) -> Again | None:
    """What decodes a message once more that was refused, to find out why.

    Args:
        decode: The decoder, in that form.
        form: The form.
        decode_named: For arguments, the decoder of those that come by name.
        uncounted: Makes a decoder that counts no references, for a type that holds some.
    """
    if decode is None:
        return None
    made = None if uncounted is None else cache(uncounted)

    def again(body: bytes, /, *, buffers: list[memoryview]) -> Any:
        if decode_named is not None and (body[0] >> 4 == 8 or body[0] in (0xDE, 0xDF)):  # a map
            return decode_named(body, buffers)
        if made is not None:
            return made()(body, buffers)
        return decode(body, buffers) if form == PARTS else decode(body)

    return again
