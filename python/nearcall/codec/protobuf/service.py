"""The messages of a service: one for the arguments of each method, one for its result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from ..._core import ProtobufMessages
from ...types.hints import type_name
from ..inspection import UnsupportedTypeError
from ..protocol import (
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
from .building import Builder, Declared, is_class
from .errors import ArgumentErrors, CodingError, value_error
from .messages import REQUIRED, Element, Field, Message
from .names import camel_case, check_name
from .options import whole_options

__all__ = ["Format", "Protobuf", "Rpc", "ServiceMessages"]

Format: TypeAlias = Literal["binary", "json", "strict json"]
"""How messages are written."""

ARGUMENTS: Final = "arguments"
"""The field of a stream's first message that holds the arguments beside the stream."""


class Rpc(NamedTuple):
    """A method, as a ``.proto`` declares it."""

    name: str
    """``"ScaleAll"``"""
    method: MethodTypes
    request: int
    """The place of the request's message, or of an item's message if the request is a stream."""
    direct: bool
    """Whether the method has one parameter, which is the message itself."""
    response: int
    arguments: int | None
    """The place of the message that begins a stream, if the method has parameters beside the stream."""
    declared: int
    """The place of the request as the ``.proto`` declares it."""

    @property
    def streams_in(self) -> bool:
        """Whether the client sends a stream of requests."""
        return self.method.stream is not None


class ServiceMessages:
    """A service in Protobuf.

    Args:
        name: The service's name; dots divide it from its package.
        methods: The types of its methods, in order.
        doc: Its docstring.

    Raises:
        TypeError: something has no counterpart in gRPC; the message is one line that names the method and the
            parameter.
    """

    def __init__(self, name: str, methods: Sequence[MethodTypes], doc: str | None = None) -> None:
        self.full_name = name
        self.package, _, self.name = name.rpartition(".")
        self.doc = doc
        self.builder = Builder()
        self.rpcs: list[Rpc] = []
        taken: dict[str, str] = {}
        for method in methods:
            where = f"{name}.{method.name}()"
            rpc = camel_case(method.name)
            if (other := taken.setdefault(rpc, method.name)) != method.name:
                raise TypeError(f"{where} and {other}() are both called {rpc} in Protobuf: rename one")
            try:
                if method.stream is not None and method.parameters:
                    declared, arguments, request = self._mixed_stream(rpc, method, method.stream)
                    direct = False
                else:
                    request, direct = self._request(rpc, method)
                    declared, arguments = request, None
                self.rpcs.append(Rpc(rpc, method, request, direct, self._response(rpc, method), arguments, declared))
            except UnsupportedTypeError as problem:
                raise TypeError(f"{where} cannot be served over gRPC and HTTP: {problem}") from None
        self._check_names()

    @property
    def messages(self) -> list[Message]:
        """All messages, each once, in the order in which the methods use them."""
        named = list(filter(_is_named, self.builder.messages))
        return list({message.proto_name: message for message in reversed(named)}.values())[::-1]

    def _request(self, rpc: str, method: MethodTypes) -> tuple[int, bool]:
        builder, name = self.builder, f"{self.name}{rpc}Request"
        if method.stream is not None:
            return self._value(name, method.stream.name, method.stream.type, "parameter")
        shown = [_declared(parameter) for parameter in method.parameters]
        if len(shown) == 1 and shown[0].required and is_class(shown[0].shape):
            found = builder.element(shown[0].shape, shown[0].annotation, whole_options(shown[0].annotation))
            return int(found.kind), True  # type: ignore[arg-type]
        return self._arguments(name, method, shown), False

    def _arguments(self, name: str, method: MethodTypes, shown: list[Declared]) -> int:
        message = Message(name, f"the arguments of {method.name}()", "arguments")
        place = self.builder.add(message)
        self.builder.fill(message, shown, f"{method.name}()")
        return place

    def _mixed_stream(self, rpc: str, method: MethodTypes, stream: ParameterType) -> tuple[int, int, int]:
        """For a stream with parameters beside it, the places of three messages: the request as declared, the one that
        codes the stream's first message, and the one for the others.
        """
        name = f"{self.name}{rpc}"
        doc = "The first message of the stream holds the arguments, each other one an item."
        declared = Message(f"{name}Request", "the stream", "oneof", doc=doc)
        place = self.builder.add(declared)
        arguments = self._arguments(f"{name}Arguments", method, [_declared(each) for each in method.parameters])
        element = Element(arguments, "the arguments", f"{name}Arguments", (tuple, dict))
        begin = Field(1, ARGUMENTS, ARGUMENTS, "presence", element, absent=REQUIRED)
        try:
            inner = self.builder.alone(stream.type.shape, stream.type.annotation)
        except UnsupportedTypeError as problem:
            raise UnsupportedTypeError(f"parameter '{stream.name}': {problem}") from None
        item_name = stream.name if stream.name != ARGUMENTS else "item"
        item = Field(2, item_name, check_name(item_name, "a parameter"), "presence", inner, absent=REQUIRED)
        item.accepts = inner.accepts
        declared.fields = [begin, item]
        first = self.builder.add(Message("", "the arguments", "only", [begin]))
        others = self.builder.add(Message("", stream.type.name, "only", [item]))
        return place, first, others

    def _response(self, rpc: str, method: MethodTypes) -> int:
        name = f"{self.name}{rpc}Response"
        if method.result.annotation is None:
            return self.builder.add(Message(name, "None", "nothing"))
        return self._value(name, "value", method.result, "result")[0]

    def _value(self, name: str, field: str, type_: ValueType, what: str) -> tuple[int, bool]:
        annotation, shape = type_.annotation, type_.shape
        label = f"parameter '{field}'" if what == "parameter" else f"the {what} '{type_.name}'"
        try:
            if is_class(shape):
                element = self.builder.element(shape, annotation, whole_options(annotation))
                return cast(int, element.kind), True
            message = Message(name, type_.name, "only")
            place = self.builder.add(message)
            message.fields.append(self.builder.field(1, Declared(field, annotation, shape)))
        except UnsupportedTypeError as problem:
            raise UnsupportedTypeError(f"{label}: {problem}") from None
        return place, False

    def _check_names(self) -> None:
        known: dict[str, Message] = {}
        for message in filter(_is_named, self.builder.messages):
            other = known.setdefault(message.proto_name, message)
            if not other.same_as(message):
                raise TypeError(
                    f"{self.full_name} has two types that are called {message.proto_name} in Protobuf: rename one"
                )
        enums = {each.name for each in self.builder.enums.values()}
        clash = (enums & known.keys()) | ({self.name} & (enums | known.keys()))
        if clash or len(enums) < len(self.builder.enums):
            name = min(clash) if clash else "one name"
            raise TypeError(f"{self.full_name}: two things are called {name} in Protobuf: rename one")

    def codings(self, format: Format = "binary") -> dict[str, MethodCoding]:
        """The coding of each method, by its name.

        Args:
            format: How messages are written; ``"strict json"`` is JSON that must be complete and without unknown names.
        """
        compiled = ProtobufMessages(self.builder.messages, CodingError)
        found: dict[str, MethodCoding] = {}
        for rpc in self.rpcs:
            method, stream = rpc.method, rpc.method.stream
            where = f"{self.full_name}.{method.name}"
            errors = ArgumentErrors(where, method.parameters[0].name if rpc.direct and stream is None else None)
            item = codec = None
            if stream is None:
                codec = compiled.codec(rpc.request, single=rpc.direct, format=format)
            else:
                roles = Roles.of_stream(where, stream.name)
                item = _value_coding(compiled.codec(rpc.request, format=format), CODED, roles)
                if rpc.arguments is not None:
                    codec = compiled.codec(rpc.arguments, format=format)
            names = tuple(parameter.name for parameter in method.parameters)
            # In Protobuf a message without fields has no bytes; in JSON it is ``{}``.
            form = NOTHING if method.result.annotation is None and format == "binary" else CODED
            reply = compiled.codec(rpc.response, format=format)
            found[method.name] = MethodCoding(
                ArgumentsCoding(names, (CODED,) * len(names), codec, codec, errors.encoding, errors.decoding),
                item=item,
                reply=_value_coding(reply, form, Roles.of_result(where, items=method.streams_out)),
                path=f"/{self.full_name}/{rpc.name}",
            )
        return found


class Protobuf:
    """The codec of gRPC: see :class:`nearcall.codec.protocol.Codec`."""

    name = "protobuf"

    def service(self, name: str, methods: Sequence[MethodTypes]) -> Mapping[str, MethodCoding]:
        """See :meth:`nearcall.codec.protocol.Codec.service`."""
        return ServiceMessages(name, methods).codings()


def _value_coding(codec: Any, form: str, roles: Roles) -> ValueCoding:
    sending = value_error("cannot be sent", roles.noun, roles.sender_error)
    receiving = value_error("cannot be decoded", roles.noun, roles.receiver_error)
    return ValueCoding(form, codec, codec, sending, receiving)


def _declared(parameter: ParameterType) -> Declared:
    if parameter.type.services:
        raise UnsupportedTypeError(
            f"parameter '{parameter.name}' is a reference to a {type_name(parameter.type.services[0])}, and gRPC has "
            "none: send data"
        )
    default: Any = parameter.default
    fallback: Any = parameter.fallback
    factory: Any = msgspec.NODEFAULT
    if isinstance(default, (list, dict, set)):
        # Every call gets the very object in the signature, as in Python. An empty container need not be told from an
        # absent one.
        factory = msgspec.NODEFAULT if default else type(cast(object, default))
        fallback = cast(Any, default)
        default = msgspec.NODEFAULT
    elif default is ... or parameter.required:
        default = msgspec.NODEFAULT
    if fallback is ... or fallback is inspect.Parameter.empty:
        fallback = msgspec.NODEFAULT
    type_ = parameter.type
    return Declared(parameter.name, type_.annotation, type_.shape, parameter.required, default, factory, fallback)


def _is_named(message: Message) -> bool:
    return bool(message.proto_name)
