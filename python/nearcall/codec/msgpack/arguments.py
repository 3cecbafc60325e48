"""How the arguments of a method are sent in msgpack: in order as an array, or by name as a map."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

from .. import explain, sending, weights
from ..checks import outer_type
from ..hashed import together
from ..named import arguments_type
from ..protocol import BUFFER_FORMS, CODED, NOTHING, PARTS, ArgumentsCoding, ParameterType, Parts, ValueType
from ..senders import Sender
from .carried import Readers
from .crossing import Crossing, cross, decoded_again, decoder, encoder
from .functions import carried_readers, encode_parts
from .wide import decode_wide, encode_wide, may_be_wide, or_again, refused_twice, takes_wide

__all__ = ["UNKNOWN", "arguments_coding"]

UNKNOWN: Final = msgspec.UNSET
"""In place of an argument that the caller declares and the receiver does not know: the argument was not given."""


def arguments_coding(method: str, parameters: Sequence[ParameterType], *, for_loop: bool) -> ArgumentsCoding:
    """The coding of all parameters but the streaming one.

    Args:
        method: The method's full name.
        parameters: The parameters in order.
        for_loop: Whether the handler awaits methods of the objects that it gets.
    """
    crossings = [cross(parameter.type) for parameter in parameters]
    names = tuple(parameter.name for parameter in parameters)
    by_name = dict(zip(names, crossings, strict=True))
    # An argument without a payload is encoded with the group like the others.
    forms = tuple(CODED if crossing.form == NOTHING else crossing.form for crossing in crossings)
    group = [(name, each) for name, each, form in zip(names, crossings, forms, strict=True) if form not in BUFFER_FORMS]
    coded = tuple(name for name, _ in group)
    annotation: Any = tuple[tuple(each.type.annotation for _, each in group)]  # type: ignore[misc]
    form = PARTS if PARTS in forms else CODED
    references = any(parameter.type.services for parameter in parameters)
    # Only data can be encoded a second time, to find the argument that cannot be encoded.
    data = {
        parameter.name: crossing.sender
        for parameter, crossing in zip(parameters, crossings, strict=True)
        if not parameter.type.services
    }

    def remake(names: Sequence[str], for_loop: bool) -> ArgumentsCoding:
        known = {parameter.name: parameter for parameter in parameters}
        return arguments_coding(method, [known.get(name) or _unknown(name) for name in names], for_loop=for_loop)

    encode: Any = encoder(form, [parameter.type.shape for parameter in parameters])
    carried = carried_readers(parameter.type.shape for parameter in parameters)
    hashed = together(crossing.hashed for crossing in crossings)
    types = [parameter.type.shape for parameter in parameters]
    wide = not references and may_be_wide(types, hashed)
    second = wide or (not references and takes_wide(types))
    second_senders = functools.cache(lambda: _second_senders(parameters, wide=wide))
    made: Any = functools.partial(decoder, annotation, form, carried)
    decode = made(references=references, for_loop=for_loop)
    uncounted: Any = functools.partial(made, references=True, for_loop=for_loop, counted=False)
    again = decoded_again(
        decode,
        form,
        _named_decoder(parameters, carried, references=references, for_loop=for_loop, counted=False),
        uncounted=uncounted if references else None,
    )
    encode_named = _named_encoder(by_name, {name: each.sender for name, each in by_name.items()})
    decode_named = _named_decoder(parameters, carried, references=references, for_loop=for_loop)
    decode_again = None
    if second:
        encode_named = or_again(encode_named, encode_wide(lambda: _named_encoder(by_name, second_senders())))
    if wide:
        decode_again = decode_wide(lambda: made(references=False, for_loop=for_loop, wide=True), hashed)
        wide_named: Any = functools.partial(_named_decoder, parameters, carried, wide=True)
        decode_named = or_again(
            decode_named, decode_wide(lambda: wide_named(references=False, for_loop=for_loop), hashed)
        )

    def second_encoder() -> Any:
        return sending.group_seen_to(encode, coded, [second_senders()[name] for name in coded])

    return ArgumentsCoding(
        names=names,
        forms=forms,
        encode=sending.group_seen_to(encode, coded, [each.sender for _, each in group]),
        decode=decode,
        encode_named=encode_named,
        decode_named=decode_named,
        encode_error=lambda error, values: explain.explain_encode_error(
            method,
            coded if len(values) == len(coded) else names,
            error,
            values,
            second_senders() if second else data,
        ),
        decode_error=functools.partial(
            explain.explain_decode_error, method, coded, decode=refused_twice(again, decode_again, form)
        ),
        encode_again=encode_wide(second_encoder) if second else None,
        decode_again=decode_again,
        hashed=hashed,
        weights=weights.together(crossing.weights for crossing in crossings),
        references=references,
        remake=remake,
    )


def _unknown(name: str) -> ParameterType:
    return ParameterType(
        name, ValueType(Any, shapes.AnyType(), "Any", "any", outer_type(Any), described=True), False, UNKNOWN
    )


def _second_senders(parameters: Sequence[ParameterType], *, wide: bool) -> dict[str, Sender | None]:
    return {
        each.name: sending.sender(each.type.shape, each.type.annotation, again=True, wide=wide) for each in parameters
    }


def _named_encoder(
    crossings: dict[str, Crossing], found: Mapping[str, Sender | None]
) -> Callable[[dict[str, Any]], Parts]:
    buffers = {name for name, crossing in crossings.items() if crossing.form in BUFFER_FORMS}
    senders = {name: sender for name, sender in found.items() if sender is not None}

    def encode_named(values: dict[str, Any]) -> Parts:
        # Any object with the buffer protocol may be passed for a buffer. An array among them must not be sent as an
        # array.
        views = {name: memoryview(value) for name, value in values.items() if name in buffers}
        seen = {
            name: sending.seen_argument(name, values[name], senders[name]) for name in senders.keys() & values.keys()
        }
        return encode_parts({**values, **views, **seen} if views or seen else values)

    return encode_named


def _named_decoder(
    parameters: Sequence[ParameterType],
    carried: Readers,
    *,
    references: bool,
    for_loop: bool,
    counted: bool = True,
    wide: bool = False,
) -> Callable[..., tuple[Any, ...]]:
    """A decoder from a map to the tuple of all parameters, which knows their defaults."""

    # Most methods are never called by name, so the decoder is made when first needed.
    @functools.cache
    def made() -> Callable[..., Any]:
        found: Any = decoder(
            arguments_type(parameters),
            PARTS,
            carried,
            references=references,
            for_loop=for_loop,
            counted=counted,
            wide=wide,
        )
        return found  # type: ignore[no-any-return]

    def decode_named(body: Any, buffers: list[memoryview]) -> tuple[Any, ...]:
        return msgspec.structs.astuple(made()(body, buffers))

    return decode_named
