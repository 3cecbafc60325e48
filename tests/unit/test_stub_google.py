"""Random messages of Google's own files are the same in Google's Protobuf and in the module of ``nearcall stub``."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nearcall import cli
from nearcall.codec.protobuf.building import codec_by_itself
from nearcall.codec.protobuf.descriptor import codec_of

from .test_stub import imported

pytest.importorskip("google.protobuf")
tools: Any = pytest.importorskip("grpc_tools")
json_format: Any = pytest.importorskip("google.protobuf.json_format")
from google.protobuf import any_pb2, api_pb2, field_mask_pb2, struct_pb2, type_pb2, wrappers_pb2  # noqa: E402

MODULES: list[Any] = [api_pb2, any_pb2, field_mask_pb2, struct_pb2, type_pb2, wrappers_pb2]
ROUNDS = int(os.environ.get("NEARCALL_STUB_ROUNDS", "50"))
"""Messages of each type; more of them are a longer search."""
DEEPEST = 4
INTEGERS = {1: [0, 1, -1, 2**31 - 1, -(2**31)], 2: [0, 5, 2**63 - 1, -(2**63)], 3: [0, 2**32 - 1], 4: [0, 2**64 - 1]}
"""By the numbers that descriptors have for types of C++."""


def single(field: Any, chance: random.Random) -> Any:
    if field.enum_type is not None:
        return chance.choice(field.enum_type.values).number
    if field.cpp_type in INTEGERS:
        return chance.choice(INTEGERS[field.cpp_type])
    if field.type == field.TYPE_BYTES:
        return chance.choice([b"", b"\xff\x00a"])
    if field.type == field.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == field.TYPE_STRING:
        return chance.choice(["", "é", "a/b"])
    return chance.choice([0.0, -0.0, 1.5, float("inf")])


def fill(message: Any, chance: random.Random, depth: int = 0) -> Any:
    if message.DESCRIPTOR.full_name == "google.protobuf.Value":  # empty ones are nothing in JSON, and refused
        message.string_value = single(message.DESCRIPTOR.fields_by_name["string_value"], chance)
        return message
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.4 or (field.message_type is not None and depth > DEEPEST):
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fill(value["é"], chance, depth + 1)
        elif field.message_type is not None:
            inner = value.add() if field.is_repeated else value
            if not field.is_repeated:
                inner.SetInParent()
            fill(inner, chance, depth + 1)
        elif field.is_repeated:
            value.extend(single(field, chance) for _ in range(chance.randrange(3)))
        else:
            setattr(message, field.name, single(field, chance))
    return message


@pytest.mark.parametrize("google", MODULES, ids=lambda google: google.DESCRIPTOR.name)
def test_messages_are_the_same_there(google: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(tools.__file__).parent / "_proto"
    assert cli.main(["stub", f"-I{folder}", str(folder / google.DESCRIPTOR.name)]) == 0
    module: ModuleType = imported(capsys.readouterr().out, tmp_path)
    chance = random.Random(google.DESCRIPTOR.name)
    compared = 0
    for name in google.DESCRIPTOR.message_types_by_name:
        if not hasattr(module, name):  # Value is typing.Any
            continue
        theirs, codec = getattr(google, name), codec_of(getattr(module, name))
        for _ in range(ROUNDS):
            message = fill(theirs(), chance)
            ours = codec.decode(message.SerializeToString(), 100_000)
            # repr() tells 0.0 from -0.0.
            assert repr(theirs.FromString(codec.encode(ours))) == repr(message)
            compared += 1
    assert compared >= ROUNDS


@pytest.mark.parametrize("google", MODULES, ids=lambda google: google.DESCRIPTOR.name)
def test_messages_are_the_same_in_json(google: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(tools.__file__).parent / "_proto"
    assert cli.main(["stub", f"-I{folder}", str(folder / google.DESCRIPTOR.name)]) == 0
    module: ModuleType = imported(capsys.readouterr().out, tmp_path)
    chance = random.Random(google.DESCRIPTOR.name)
    compared = 0
    for name in google.DESCRIPTOR.message_types_by_name:
        if not hasattr(module, name):
            continue
        theirs, kind = getattr(google, name), getattr(module, name)
        binary, codec = codec_by_itself(kind, "binary"), codec_by_itself(kind, "json")
        for _ in range(ROUNDS):
            message = fill(theirs(), chance)
            try:
                text = json_format.MessageToJson(message)
            except (json_format.Error, TypeError, ValueError):
                continue  # an Any of no type, a path of a mask that is none: ours need not write it either
            if repr(json_format.Parse(text, theirs())) != repr(message):
                continue  # what Google's own JSON loses, as a mask's empty path
            ours = codec.decode(text.encode(), 100_000)
            assert repr(theirs.FromString(binary.encode(ours))) == repr(message), text
            assert repr(json_format.Parse(codec.encode(ours), theirs())) == repr(message), text
            compared += 1
    assert compared or google is any_pb2
