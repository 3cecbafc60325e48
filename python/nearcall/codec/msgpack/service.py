"""The codings of a service's methods in msgpack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...types.functions import full_name
from .. import explain, sending
from ..protocol import MethodCoding, MethodTypes, Roles, ValueCoding
from .arguments import arguments_coding
from .crossing import Crossing, cross, decoded_again, decoder, encoder
from .functions import carried_readers
from .wide import decode_wide, encode_wide, may_be_wide, refused_twice, takes_wide

__all__ = ["Msgpack"]


class Msgpack:
    """The codec of nearcall's own transports: see :class:`nearcall.codec.protocol.Codec`."""

    name = "msgpack"

    def service(self, name: str, methods: Sequence[MethodTypes]) -> Mapping[str, MethodCoding]:
        """See :meth:`nearcall.codec.protocol.Codec.service`."""
        return {method.name: _method(full_name(name, method.name), method) for method in methods}


def _method(where: str, method: MethodTypes) -> MethodCoding:
    item = None
    if (stream := method.stream) is not None:
        item = _value(cross(stream.type), Roles.of_stream(where, stream.name), method.in_loop)
    return MethodCoding(
        arguments=arguments_coding(where, method.parameters, for_loop=method.in_loop),
        item=item,
        reply=_value(cross(method.result), Roles.of_result(where, items=method.streams_out), for_loop=False),
    )


def _value(crossing: Crossing, roles: Roles, for_loop: bool) -> ValueCoding:
    type_, form = crossing.type, crossing.form
    encode = encoder(form, [type_.shape])
    made: Any = partial(decoder, type_.annotation, form, carried_readers([type_.shape]))
    decode = made(references=bool(type_.services), for_loop=for_loop)
    make_uncounted: Any = partial(made, references=True, for_loop=for_loop, counted=False)
    again = decoded_again(decode, form, uncounted=make_uncounted if type_.services else None)
    wide = not type_.services and may_be_wide([type_.shape], crossing.hashed)
    takes = not type_.services and takes_wide([type_.shape])
    decode_again = None
    if wide:
        decode_again = decode_wide(partial(made, references=False, for_loop=for_loop, wide=True), crossing.hashed)
    return ValueCoding(
        form=form,
        encode=encode and sending.seen_to(encode, crossing.sender),
        decode=decode,
        encode_error=explain.explain_value_encode_error(roles.noun, roles.sender_error),
        decode_error=explain.explain_value_decode_error(
            roles.noun, type_.name, roles.receiver_error, refused_twice(again, decode_again, form)
        ),
        encode_again=encode_wide(
            lambda: sending.seen_to(encode, sending.sender(type_.shape, type_.annotation, again=True, wide=wide))
        )
        if encode is not None and (wide or takes)
        else None,
        decode_again=decode_again,
        hashed=crossing.hashed,
        weights=crossing.weights,
        references=bool(type_.services),
        remake=partial(_value, crossing, roles) if type_.services else None,
    )
