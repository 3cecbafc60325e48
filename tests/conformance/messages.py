"""What the programs under test say to the runner, and the same messages as the service's own classes.

The runner speaks in messages of Protobuf, each behind its length. The classes of the service are those that ``nearcall
stub`` has made. ``sys.argv`` says where both are.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import struct
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message

folder = Path(sys.argv[1])
sys.path[:0] = [str(folder / "descriptors"), str(folder / "types")]

types: Any = import_module("service")
"""The service and its messages, as classes of Python."""
service_pb2: Any = import_module("connectrpc.conformance.v1.service_pb2")
server_pb2: Any = import_module("connectrpc.conformance.v1.server_compat_pb2")
client_pb2: Any = import_module("connectrpc.conformance.v1.client_compat_pb2")
config_pb2: Any = import_module("connectrpc.conformance.v1.config_pb2")

_LENGTH = struct.Struct(">I")
_PACKAGE = "connectrpc.conformance.v1."


def read(stream: IO[bytes], kind: type[Any]) -> Any:
    """The next message; ``None`` at the end."""
    prefix = stream.read(_LENGTH.size)
    return kind.FromString(stream.read(*_LENGTH.unpack(prefix))) if prefix else None


def write(stream: IO[bytes], message: Message) -> None:
    """Writes a message, at once."""
    body = message.SerializeToString()
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def to_typed(message: Any) -> Any:
    """The value of the service's class that stands for a message."""
    name = message.DESCRIPTOR.full_name
    kind = getattr(types, name.removeprefix(_PACKAGE).replace(".", "") if name.startswith(_PACKAGE) else "Any")
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.is_repeated:
            found[field.name] = [_typed_value(field, one) for one in value]
        else:
            found[field.name] = _typed_value(field, value)
    return kind(**found)


def _typed_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_typed(value)
    return value if field.enum_type is None else getattr(types, field.enum_type.name)(value)


def to_message(value: Any, message: Any) -> Any:
    """Fills a message with what a value of the service's class says."""
    for field in dataclasses.fields(value):
        held, kind = getattr(value, field.name), message.DESCRIPTOR.fields_by_name[field.name]
        if held is None or held == []:
            continue
        if kind.message_type is None:
            if isinstance(held, list):
                getattr(message, field.name).extend(held)
            else:
                setattr(message, field.name, held)
        elif isinstance(held, list):
            for each in held:
                to_message(each, getattr(message, field.name).add())
        else:
            getattr(message, field.name).SetInParent()
            to_message(held, getattr(message, field.name))
    return message


def packed(value: Any) -> Packed:
    """A message in an ``Any``."""
    message = getattr(service_pb2, type(value).__name__)()
    packed = Packed()
    packed.Pack(to_message(value, message))
    return packed


def unpacked(packed: Packed) -> Any:
    """The value in an ``Any``."""
    message = getattr(service_pb2, packed.TypeName().rpartition(".")[2])()
    assert packed.Unpack(message)
    return to_typed(message)


def metadata(headers: Iterable[Any]) -> list[tuple[str, str | bytes]]:
    """Metadata of the suite's headers, which hold bytes in base64."""
    return [
        (header.name.lower(), _bytes(value) if header.name.lower().endswith("-bin") else value)
        for header in headers
        for value in header.value
    ]


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return text.encode()


def headers(pairs: Iterable[tuple[str, str | bytes]]) -> list[Any]:
    """The suite's headers of metadata, as messages."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        text = value if isinstance(value, str) else base64.b64encode(value).decode().rstrip("=")
        found.setdefault(name, []).append(text)
    return [service_pb2.Header(name=name, value=values) for name, values in found.items()]
