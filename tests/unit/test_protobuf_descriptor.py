"""What we say of our messages to programs is what protoc makes of our ``.proto``."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcall.codec.protobuf.descriptor import FileDescriptorProto, codec_of, file_descriptors, symbols
from nearcall.codec.protobuf.service import ServiceMessages
from nearcall.codec.protobuf.text import proto_text
from nearcall.reflection.index import KNOWN
from nearcall.service.plan import ServicePlan
from nearcall.service.service import plan_of

from .protoc import compiled_files
from .test_protobuf_peer import Everything
from .test_protobuf_rules import Shop

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")

TOOL = Path(__file__).parents[2] / "tools/make_known_files.py"


def messages(plan: ServicePlan) -> ServiceMessages:
    return ServiceMessages(plan.name, [method.types for method in plan.methods if method.types is not None])


def services() -> list[ServicePlan]:
    import nearcall

    @nearcall.service(name="test.v1.Echo")
    class Echo:
        def echo(self, value: Everything) -> Everything: ...
        def either(self, value: int | str | None, more: list[list[int]]) -> dict[str, dict[int, float]]: ...

    return [plan_of(Shop), plan_of(Echo)]


@pytest.mark.parametrize("plan", services(), ids=lambda plan: str(plan.name))
def test_a_service_is_described_as_protoc_describes_its_proto(plan: ServicePlan) -> None:
    service = messages(plan)
    (made,) = file_descriptors([service])
    ours: Any = descriptor_pb2.FileDescriptorProto.FromString(codec_of(FileDescriptorProto).encode(made))
    theirs = compiled_files(proto_text(service)).file[-1]
    assert (ours.name, theirs.name) == (f"{plan.name.replace('.', '/')}.proto", "service.proto")
    theirs.name = ours.name
    assert ours == theirs


@pytest.mark.parametrize("plan", services(), ids=lambda plan: str(plan.name))
def test_every_name_of_a_file_is_found(plan: ServicePlan) -> None:
    (file,) = file_descriptors([messages(plan)])
    pool: Any = descriptor_pool.DescriptorPool()
    for each in compiled_files(proto_text(messages(plan))).file:
        pool.Add(each)
    known = pool.FindFileByName("service.proto")
    expected = [name for message in known.message_types_by_name.values() for name in in_message(message)]
    expected += [name for enum in known.enum_types_by_name.values() for name in in_enum(enum)]
    for service in known.services_by_name.values():
        expected += [service.full_name, *(method.full_name for method in service.methods)]
    found = list(symbols(file))
    assert len(found) == len(set(found)) > 20
    assert set(found) == set(expected)


def in_message(message: Any) -> Iterator[str]:
    yield message.full_name
    yield from (part.full_name for part in (*message.fields, *message.oneofs))
    for nested in message.nested_types:
        yield from in_message(nested)


def in_enum(enum: Any) -> Iterator[str]:
    yield enum.full_name
    yield from (f"{enum.file.package}.{value.name}" for value in enum.values)


def test_the_files_of_others_are_those_that_they_have() -> None:
    """If not: python tools/make_known_files.py"""
    pytest.importorskip("grpc_health.v1.health_pb2")
    pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2")
    current = runpy.run_path(str(TOOL))["known_files"]()
    ours = descriptor_pb2.FileDescriptorSet.FromString(KNOWN.read_bytes())
    assert [file.name for file in ours.file] == [file.name for file in current.file]
    for file, other in zip(ours.file, current.file, strict=True):
        assert file == other
