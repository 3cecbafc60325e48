"""Services as Protobuf describes them to programs: ``google.protobuf.FileDescriptorProto``.

It is made of the same messages as the ``.proto`` (:mod:`nearcall.codec.protobuf.text`).

The classes have those of descriptor.proto's fields that nearcall's proto3 files need, with the same names and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from ..._core import ProtobufCodec
from ...types.numbers import field as numbered  # DescriptorProto has an attribute called field
from .building import codec_by_itself
from .messages import Element, EnumType, Field, Message
from .names import json_name
from .service import Rpc, ServiceMessages

__all__ = ["FileDescriptorProto", "codec_of", "file_descriptors", "symbols"]

_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
"""The numbers of the types, as descriptor.proto has them."""
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3


class FieldDescriptorProto(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A field of a message."""

    name: Annotated[str, numbered(1)]
    number: Annotated[int, numbered(3, type="int32")]
    label: Annotated[int, numbered(4, type="int32")] = _OPTIONAL
    type: Annotated[int, numbered(5, type="int32")]
    type_name: Annotated[str | None, numbered(6)] = None
    """The name of the field's message or enum: ``".shop.v1.Item"``."""
    oneof_index: Annotated[int | None, numbered(9, type="int32")] = None
    json_name: Annotated[str | None, numbered(10)] = None
    proto3_optional: Annotated[bool | None, numbered(17)] = None


class OneofDescriptorProto(msgspec.Struct):
    """A ``oneof``, or what an optional field is in by itself."""

    name: Annotated[str, numbered(1)]


class EnumValueDescriptorProto(msgspec.Struct):
    """A value of an enum."""

    name: Annotated[str, numbered(1)]
    number: Annotated[int | None, numbered(2, type="int32")]
    """Always there, as a zero says something."""


class EnumDescriptorProto(msgspec.Struct):
    """An enum."""

    name: Annotated[str, numbered(1)]
    value: Annotated[list[EnumValueDescriptorProto], numbered(2)]


class MessageOptions(msgspec.Struct):
    """What a message is besides."""

    map_entry: Annotated[bool, numbered(7)]


class DescriptorProto(msgspec.Struct, kw_only=True):
    """A message."""

    name: Annotated[str, numbered(1)]
    field: Annotated[list[FieldDescriptorProto], numbered(2)] = []
    nested_type: Annotated[list[DescriptorProto], numbered(3)] = []
    enum_type: Annotated[list[EnumDescriptorProto], numbered(4)] = []
    options: Annotated[MessageOptions | None, numbered(7)] = None
    oneof_decl: Annotated[list[OneofDescriptorProto], numbered(8)] = []


class MethodDescriptorProto(msgspec.Struct):
    """A method of a service."""

    name: Annotated[str, numbered(1)]
    input_type: Annotated[str, numbered(2)]
    output_type: Annotated[str, numbered(3)]
    client_streaming: Annotated[bool | None, numbered(5)] = None
    server_streaming: Annotated[bool | None, numbered(6)] = None


class ServiceDescriptorProto(msgspec.Struct):
    """A service."""

    name: Annotated[str, numbered(1)]
    method: Annotated[list[MethodDescriptorProto], numbered(2)]


class FileDescriptorProto(msgspec.Struct, kw_only=True):
    """A ``.proto``."""

    name: Annotated[str, numbered(1)]
    package: Annotated[str, numbered(2)] = ""
    dependency: Annotated[list[str], numbered(3)] = []
    """The names of the files that it imports."""
    message_type: Annotated[list[DescriptorProto], numbered(4)] = []
    enum_type: Annotated[list[EnumDescriptorProto], numbered(5)] = []
    service: Annotated[list[ServiceDescriptorProto], numbered(6)] = []
    syntax: Annotated[str, numbered(12)] = "proto3"


def codec_of(cls: type) -> ProtobufCodec:
    """The codec for objects of a class, by the same rules as over gRPC."""
    return codec_by_itself(cls, "binary")


def file_descriptors(services: Sequence[ServiceMessages]) -> list[FileDescriptorProto]:
    """The files of some services: one for each package, because services of one package share their messages. A service
    with a different message of the same name gets a file of its own.
    """
    files: list[tuple[FileDescriptorProto, dict[str, Any]]] = []
    for service in services:
        parts = _parts(service)
        for file, known in files:
            if file.package == service.package and all(known.get(name, part) == part for name, part in parts.items()):
                break
        else:
            file, known = FileDescriptorProto(name=_file_name(service), package=service.package), dict[str, Any]()
            files.append((file, known))
        for name, part in parts.items():
            if name not in known:
                into: list[Any] = file.message_type if isinstance(part, DescriptorProto) else file.enum_type
                into.append(part)
        known.update(parts)
        file.service.append(_service(service))
        file.dependency = sorted({*file.dependency, *service.builder.imports})
    return [file for file, _ in files]


def symbols(file: FileDescriptorProto) -> Iterator[str]:
    """The full names of everything that a file declares."""
    scope = f"{file.package}." if file.package else ""
    for message in file.message_type:
        yield from _in_message(scope, message)
    for enum in file.enum_type:
        yield from _in_enum(scope, enum)
    for service in file.service:
        yield scope + service.name
        yield from (f"{scope}{service.name}.{method.name}" for method in service.method)


def _in_message(scope: str, message: DescriptorProto) -> Iterator[str]:
    yield scope + message.name
    inner = f"{scope}{message.name}."
    yield from (inner + field.name for field in message.field)
    yield from (inner + oneof.name for oneof in message.oneof_decl)
    for nested in message.nested_type:
        yield from _in_message(inner, nested)
    for enum in message.enum_type:
        yield from _in_enum(inner, enum)


def _in_enum(scope: str, enum: EnumDescriptorProto) -> Iterator[str]:
    yield scope + enum.name
    # The names of values are in the scope around their enum, as in C++.
    yield from (scope + value.name for value in enum.value)


def _file_name(service: ServiceMessages) -> str:
    return service.full_name.replace(".", "/") + ".proto"


def _parts(service: ServiceMessages) -> dict[str, DescriptorProto | EnumDescriptorProto]:
    """The messages and enums of a service, by name."""
    scope = f".{service.package}." if service.package else "."
    found: dict[str, DescriptorProto | EnumDescriptorProto] = {
        message.proto_name: _message(scope, message) for message in service.messages
    }
    return found | {enum.name: _enum(enum) for enum in service.builder.enums.values()}


def _service(service: ServiceMessages) -> ServiceDescriptorProto:
    scope = f".{service.package}." if service.package else "."

    def method(rpc: Rpc) -> MethodDescriptorProto:
        request, response = (service.builder.messages[place].proto_name for place in (rpc.declared, rpc.response))
        return MethodDescriptorProto(
            rpc.name, scope + request, scope + response, rpc.streams_in or None, rpc.method.streams_out or None
        )

    return ServiceDescriptorProto(service.name, list(map(method, service.rpcs)))


def _enum(enum: EnumType) -> EnumDescriptorProto:
    return EnumDescriptorProto(enum.name, [EnumValueDescriptorProto(name, number) for name, number in enum.values])


def _message(scope: str, message: Message) -> DescriptorProto:
    made = DescriptorProto(name=message.proto_name)
    if message.form == "oneof":
        made.oneof_decl.append(OneofDescriptorProto(message.oneof))
    for each in message.fields:
        described = _field(scope, each)
        if message.form == "oneof":
            described.oneof_index = 0
        elif each.key is not None:
            entry = _entry(scope, each, each.key)
            made.nested_type.append(entry)
            described.type, described.type_name = _MESSAGE, f"{scope}{message.proto_name}.{entry.name}"
        elif described.label == _OPTIONAL and each.shape == "presence" and not each.element.is_message:
            described.oneof_index, described.proto3_optional = len(made.oneof_decl), True
            made.oneof_decl.append(OneofDescriptorProto(f"_{each.proto_name}"))
        made.field.append(described)
    return made


def _field(scope: str, each: Field) -> FieldDescriptorProto:
    type, type_name = _type(scope, each.element)
    is_one = each.shape in ("implicit", "presence")
    return FieldDescriptorProto(
        name=each.proto_name,
        number=each.number,
        label=_OPTIONAL if is_one else _REPEATED,
        type=type,
        type_name=type_name,
        json_name=json_name(each.proto_name),
    )


def _entry(scope: str, each: Field, key: Element) -> DescriptorProto:
    """The message of one entry of a map, with the names that protoc uses."""
    fields: list[FieldDescriptorProto] = []
    for number, (name, element) in enumerate((("key", key), ("value", each.element)), 1):
        type, type_name = _type(scope, element)
        fields.append(FieldDescriptorProto(name=name, number=number, type=type, type_name=type_name, json_name=name))
    name = "".join(part[:1].upper() + part[1:] for part in each.proto_name.split("_")) + "Entry"
    return DescriptorProto(name=name, field=fields, options=MessageOptions(True))


def _type(scope: str, element: Element) -> tuple[int, str | None]:
    if (scalar := _SCALARS.get(element.proto)) is not None:
        return scalar, None
    if element.proto.startswith("google.protobuf."):
        return _MESSAGE, f".{element.proto}"
    return _ENUM if isinstance(element.kind, dict) else _MESSAGE, scope + element.proto
