"""protoc and google.protobuf, as peers of our own Protobuf."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from nearcall.codec.protobuf.service import ServiceMessages
from nearcall.codec.protobuf.text import proto_text

from .echo import echo_types

pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc


def compiled_files(proto: str) -> descriptor_pb2.FileDescriptorSet:
    """What protoc makes of a .proto, which comes last; fails if it finds anything to complain of."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "service.proto"), Path(folder, "service.bin")
        source.write_text(proto, encoding="utf-8")
        includes = [f"-I{folder}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
        status = protoc.main(["protoc", *includes, f"--descriptor_set_out={out}", "--include_imports", str(source)])
        assert status == 0, f"protoc refuses\n{proto}"
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def compiled(proto: str) -> descriptor_pool.DescriptorPool:
    """The same for use."""
    pool = descriptor_pool.DescriptorPool()
    for file in compiled_files(proto).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    return pool


class Peer:
    """One type in our Protobuf and in Google's."""

    def __init__(self, annotation: Any) -> None:
        self.service = ServiceMessages("test.Echo", [echo_types(annotation)])
        self.proto = proto_text(self.service)
        self.codec = self.service.codings()["echo"].reply.encode
        self.json = self.service.codings("json")["echo"].reply.encode
        self.strict = self.service.codings("strict json")["echo"].reply.encode
        name = self.service.builder.messages[self.service.rpcs[0].response].proto_name
        found = compiled(self.proto).FindMessageTypeByName(f"test.{name}")  # type: ignore[no-untyped-call]
        self.message: Any = message_factory.GetMessageClass(found)

    def encode(self, value: Any) -> bytes:
        """The bytes of a value, by us."""
        return bytes(self.codec.encode(value))

    def decode(self, body: bytes, max_values: int = 1_000_000) -> Any:
        """The value of some bytes, by us."""
        return self.codec.decode(body, max_values)

    def through(self, value: Any) -> Any:
        """A value that went to Google's message and back: what we read of what they write of what they read of ours."""
        return self.decode(self.message.FromString(self.encode(value)).SerializeToString())
