"""The codings of a user's codec."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ..errors import RpcError
from ..types.carried import CarriedShape
from ..types.functions import full_name
from ..types.hints import type_name
from .checks import outer_type, problem_with
from .decoders import make_decoder
from .named import arguments_type
from .protobuf.errors import ArgumentErrors, value_error
from .protocol import (
    CODED,
    NOTHING,
    ArgumentsCoding,
    MethodCoding,
    MethodTypes,
    ParameterType,
    Roles,
    ValueCoding,
    ValueType,
)
from .shape import walk
from .values import ValueCodec

__all__ = ["OfValues"]

_SELF_EXPLAINING = (
    *(RpcError, MemoryError, RecursionError, BufferError, OverflowError, TypeError, ValueError),
    msgspec.MsgspecError,
)
"""Exceptions whose text says what is wrong, without their name."""


def _with_cause(explain: Callable[[BaseException], RpcError]) -> Callable[[BaseException], RpcError]:
    """The same, with the user's own exception as the cause: its traceback says which line of the codec it was."""

    def explained(error: BaseException) -> RpcError:
        # The words of a KeyError, among others, say nothing without its name.
        said = error if isinstance(error, _SELF_EXPLAINING) else ValueError(f"{type(error).__name__}: {error}")
        failure = explain(said)
        if failure is not error:
            failure.__cause__ = error
        return failure

    return explained


class OfValues:
    """The codings that a codec of values makes: see :class:`nearcall.codec.protocol.Codec`."""

    def __init__(self, codec: ValueCodec) -> None:
        self._codec = codec
        self.name = codec.name

    def service(self, name: str, methods: Sequence[MethodTypes]) -> Mapping[str, MethodCoding]:
        """See :meth:`nearcall.codec.protocol.Codec.service`."""
        return {method.name: self._method(full_name(name, method.name), method) for method in methods}

    def _method(self, where: str, method: MethodTypes) -> MethodCoding:
        stream, item = method.stream, None
        types = {f"parameter '{each.name}'": each.type for each in method.parameters} | {"the result": method.result}
        types |= {f"parameter '{stream.name}'": stream.type} if stream else {}
        for what, type_ in types.items():
            if type_.services:
                raise TypeError(f"{where}(): {what} holds objects that are passed, and only msgpack does: send data")
            for node in walk(type_.shape):
                if isinstance(node, CarriedShape):
                    name, to = type_name(node.cls), type_name(node.to)
                    raise TypeError(f"{where}(): {what} holds {name}, which travels in msgpack and JSON: declare {to}")
        if stream is not None:
            item = self._value(stream.type, Roles.of_stream(where, stream.name))
        reply = self._value(method.result, Roles.of_result(where, items=method.streams_out))
        return MethodCoding(self._arguments(where, method.parameters), item, reply)

    def _arguments(self, where: str, parameters: Sequence[ParameterType]) -> ArgumentsCoding:
        names = tuple(parameter.name for parameter in parameters)
        errors = ArgumentErrors(where, None)
        sending = _with_cause(lambda error: errors.encoding(error, None))
        receiving = _with_cause(errors.decoding)
        made = functools.cache(lambda: self._decoder(arguments_type(parameters)))  # when it is first needed

        def encode(values: tuple[Any, ...] | dict[str, Any]) -> bytes:
            return self._encode(values if isinstance(values, dict) else dict(zip(names, values, strict=True)))

        def decode(body: bytes) -> tuple[Any, ...]:
            return msgspec.structs.astuple(made()(body))

        return ArgumentsCoding(names, (CODED,) * len(names), encode, decode, lambda error, _: sending(error), receiving)

    def _value(self, type_: ValueType, roles: Roles) -> ValueCoding:
        sending = _with_cause(value_error("cannot be sent", roles.noun, roles.sender_error))
        receiving = _with_cause(value_error("cannot be decoded", roles.noun, roles.receiver_error))
        form = NOTHING if type_.annotation is None else CODED
        return ValueCoding(form, self._encode, self._decoder(type_.annotation), sending, receiving)

    def _encode(self, value: Any) -> bytes:
        written = cast(object, self._codec.encode(value))
        if not isinstance(written, bytes):
            raise TypeError(f"the codec {self.name} has made {type(written).__name__} of it, and not bytes")
        return written

    def _decoder(self, annotation: Any) -> Callable[[bytes], Any]:
        make_decoder(annotation)  # so that msgspec knows the type before several threads convert to it
        decode, fits = self._codec.decode, outer_type(annotation).fits

        def decoded(body: bytes) -> Any:
            value = decode(body, annotation)
            if fits is not None and not fits(value):
                raise TypeError(f"what the codec {self.name} has made of it {problem_with(value, annotation)}")
            return value

        return decoded
