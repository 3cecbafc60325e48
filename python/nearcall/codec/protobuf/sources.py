"""``.proto`` files as protoc has read them: ``google.protobuf.FileDescriptorSet``, with comments and places. Or as a
server describes them.

:mod:`.descriptor` writes nearcall's own files. This module reads any file, so it knows more of descriptor.proto.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...types.numbers import field as numbered  # DescriptorProto's fields include one called field
from .descriptor import codec_of

__all__ = [
    "EnumSource",
    "FieldSource",
    "FileSource",
    "MessageSource",
    "MethodSource",
    "Place",
    "ServiceSource",
    "read_source",
    "read_sources",
]

_MOST_VALUES = 10_000_000


class EnumValueSource(msgspec.Struct):
    """A value of an enum."""

    name: Annotated[str, numbered(1)] = ""
    number: Annotated[int, numbered(2, type="int32")] = 0


class EnumSource(msgspec.Struct):
    """An enum."""

    name: Annotated[str, numbered(1)] = ""
    value: Annotated[list[EnumValueSource], numbered(2)] = []


class Features(msgspec.Struct):
    """What a file with an edition says in place of ``optional``, ``required`` and groups."""

    field_presence: Annotated[int, numbered(1, type="int32")] = 0
    """1: explicit, 2: implicit, 3: required."""
    message_encoding: Annotated[int, numbered(5, type="int32")] = 0
    """2: as a group."""


class FieldSettings(msgspec.Struct):
    """The options of a field."""

    features: Annotated[Features | None, numbered(21)] = None


class FieldSource(msgspec.Struct):
    """A field of a message, or an extension."""

    name: Annotated[str, numbered(1)] = ""
    extendee: Annotated[str, numbered(2)] = ""
    """The message that an extension extends."""
    number: Annotated[int, numbered(3, type="int32")] = 0
    label: Annotated[int, numbered(4, type="int32")] = 1
    type: Annotated[int, numbered(5, type="int32")] = 0
    type_name: Annotated[str, numbered(6)] = ""
    default_value: Annotated[str | None, numbered(7)] = None
    options: Annotated[FieldSettings | None, numbered(8)] = None
    oneof_index: Annotated[int | None, numbered(9, type="int32")] = None
    json_name: Annotated[str | None, numbered(10)] = None
    proto3_optional: Annotated[bool, numbered(17)] = False


class OneofSource(msgspec.Struct):
    """A ``oneof``."""

    name: Annotated[str, numbered(1)] = ""


class MessageOptions(msgspec.Struct):
    """What protoc says of a message."""

    map_entry: Annotated[bool, numbered(7)] = False


class ReservedRange(msgspec.Struct):
    """Numbers that no field may have."""

    start: Annotated[int, numbered(1, type="int32")] = 0
    end: Annotated[int, numbered(2, type="int32")] = 0
    """Behind the last of them."""


class MessageSource(msgspec.Struct):
    """A message, and those declared in it."""

    name: Annotated[str, numbered(1)] = ""
    field: Annotated[list[FieldSource], numbered(2)] = []
    nested_type: Annotated[list[MessageSource], numbered(3)] = []
    enum_type: Annotated[list[EnumSource], numbered(4)] = []
    extension: Annotated[list[FieldSource], numbered(6)] = []
    options: Annotated[MessageOptions | None, numbered(7)] = None
    oneof_decl: Annotated[list[OneofSource], numbered(8)] = []
    reserved_range: Annotated[list[ReservedRange], numbered(9)] = []


class MethodOptions(msgspec.Struct):
    """What a file says of a method."""

    idempotency_level: Annotated[int, numbered(34, type="int32")] = 0
    """1: it changes nothing; 2: twice is as good as once."""


class MethodSource(msgspec.Struct):
    """A method of a service."""

    name: Annotated[str, numbered(1)] = ""
    input_type: Annotated[str, numbered(2)] = ""
    output_type: Annotated[str, numbered(3)] = ""
    options: Annotated[MethodOptions | None, numbered(4)] = None
    client_streaming: Annotated[bool, numbered(5)] = False
    server_streaming: Annotated[bool, numbered(6)] = False


class ServiceSource(msgspec.Struct):
    """A service."""

    name: Annotated[str, numbered(1)] = ""
    method: Annotated[list[MethodSource], numbered(2)] = []


class Place(msgspec.Struct):
    """Where something stands in the file, and what is written about it."""

    path: Annotated[list[Annotated[int, numbered(type="int32")]], numbered(1)] = []
    span: Annotated[list[Annotated[int, numbered(type="int32")]], numbered(2)] = []
    leading: Annotated[str, numbered(3)] = ""
    trailing: Annotated[str, numbered(4)] = ""


class Places(msgspec.Struct):
    """All places of a file."""

    location: Annotated[list[Place], numbered(1)] = []


class FileSettings(msgspec.Struct):
    """The options of a file."""

    features: Annotated[Features | None, numbered(50)] = None


class FileSource(msgspec.Struct):
    """A ``.proto``."""

    name: Annotated[str, numbered(1)] = ""
    package: Annotated[str, numbered(2)] = ""
    dependency: Annotated[list[str], numbered(3)] = []
    """The names of the files that it imports."""
    message_type: Annotated[list[MessageSource], numbered(4)] = []
    enum_type: Annotated[list[EnumSource], numbered(5)] = []
    service: Annotated[list[ServiceSource], numbered(6)] = []
    extension: Annotated[list[FieldSource], numbered(7)] = []
    options: Annotated[FileSettings | None, numbered(8)] = None
    source_code_info: Annotated[Places | None, numbered(9)] = None
    syntax: Annotated[str, numbered(12)] = "proto2"


class _Files(msgspec.Struct):
    file: Annotated[list[FileSource], numbered(1)] = []


def read_sources(encoded: bytes) -> list[FileSource]:
    """The files of a descriptor set, each after the files that it imports.

    Raises:
        ValueError: ``encoded`` is no descriptor set.
    """
    found: _Files = codec_of(_Files).decode(encoded, _MOST_VALUES)
    return found.file


def read_source(encoded: bytes) -> FileSource:
    """One file: a ``google.protobuf.FileDescriptorProto``.

    Raises:
        ValueError: ``encoded`` is none.
    """
    found: FileSource = codec_of(FileSource).decode(encoded, _MOST_VALUES)
    return found
