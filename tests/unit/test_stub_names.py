"""Whatever the names in a ``.proto`` file are, its module is refused with a reason, or it can be imported and used."""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest

from nearcall.codec.protobuf.descriptor import codec_of
from nearcall.codec.protobuf.module import CannotBeWritten, module_text
from nearcall.codec.protobuf.sources import read_source
from nearcall.service.service import plan_of

from ..turns import IS_WHOLE

descriptors: Any = pytest.importorskip("google.protobuf.descriptor_pb2")

USED_BY_PYTHON = """
    int str sum ValueError each nearcall typing dataclasses enum self class class_ None True mro name value X A B AB A_B
    Request Reply msgspec bytes bool list dict field match type object property collections datetime request Foo foo FOO
    keys count FOO_A FOO_B X_1 X_2 real bit_length _ __ _x __x _1 x_ __debug__ __class__ __init__ __post_init__ __doc__
    __slots__ __dict__ __module__ __qualname__ _generate_next_value_ _missing_ _ignore_ _order_
"""
NAMES = USED_BY_PYTHON.split()
PACKAGES = ["", "p", "p.q", "int", "None", "nearcall", "_", "__x", "_1"]
METHODS = ["Get", "List", "Exit", "Class", "Import", "Start"]


class File:
    """A file of random names. Nothing else about it is unusual."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        package = self._random.choice(PACKAGES)
        self.proto = descriptors.FileDescriptorProto(name="random.proto", package=package, syntax="proto3")
        self._messages: list[str] = []
        self._enums: list[str] = []
        scope = f".{package}" if package else ""
        for name in self._names(5):
            self._message(self.proto.message_type.add(), name, scope)
        for name in self._names(2):
            self._enum(self.proto.enum_type.add(), name, scope)
        for message in self._declared(self.proto.message_type):
            self._fill(message)
        # Python needs some of the names, and then the service is refused.
        service = self.proto.service.add(name=self._random.choice(["Service", *NAMES]))
        for name in self._random.sample(METHODS, 2):
            takes, gives = self._random.choices(self._messages, k=2)
            service.method.add(name=name, input_type=takes, output_type=gives)

    def _names(self, most: int) -> list[str]:
        return self._random.sample(NAMES, self._random.randint(1, most))

    def _message(self, message: Any, name: str, scope: str) -> None:
        message.name = name
        here = f"{scope}.{name}"
        self._messages.append(here)
        names = self._names(2)
        if here.count(".") < 5 and self._random.random() < 0.5:
            self._message(message.nested_type.add(), names[0], here)
        if len(names) > 1:
            self._enum(message.enum_type.add(), names[1], here)

    def _enum(self, enum: Any, name: str, scope: str) -> None:
        enum.name = name
        self._enums.append(f"{scope}.{name}")
        for number, value in enumerate(self._names(3)):
            enum.value.add(name=value, number=number)

    def _declared(self, messages: Any) -> Iterator[Any]:
        for message in messages:
            yield message
            yield from self._declared(message.nested_type)

    def _fill(self, message: Any) -> None:
        if has_oneof := self._random.random() < 0.3:
            message.oneof_decl.add(name=self._random.choice(NAMES))
        for number, name in enumerate(self._names(5), 1):
            field = message.field.add(name=name, number=number, type=self._random.choice([1, 3, 5, 8, 9, 11, 12, 14]))
            field.label = self._random.choice([1, 1, 3])
            if field.type in (11, 14):
                field.type_name = self._random.choice(self._messages if field.type == 11 else self._enums)
            if has_oneof and field.label == 1:
                field.oneof_index = 0


def imported(text: str) -> ModuleType:
    module = ModuleType("module_of_random_names")
    sys.modules[module.__name__] = module  # annotations are looked up there
    exec(compile(text, module.__name__, "exec", dont_inherit=True), vars(module))
    return module


def some(kind: type) -> Any:
    """A message with all its fields, though none of them is set."""
    message = kind()
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for name in names or [field.name for field in msgspec.structs.fields(kind)]:
        assert hasattr(message, name)
    return message


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600 if IS_WHOLE else 200, 100))
def test_any_names(first: int) -> None:
    usable = 0
    for seed in range(first, first + 100):
        proto = File(seed).proto
        try:
            text = module_text([read_source(proto.SerializeToString())], [proto.name])
        except CannotBeWritten:
            continue
        try:
            plan = plan_of(vars(imported(text))[proto.service[0].name])
            kinds = [method.types.result.annotation for method in plan.methods if method.types is not None]
            codecs = [(kind, codec_of(kind)) for kind in kinds]
        except TypeError as error:  # such as two fields that have one name in JSON
            if "have one name in JSON" in str(error):
                continue
            raise AssertionError(f"the file of seed {seed}") from error
        for kind, codec in codecs:
            assert codec.decode(codec.encode(some(kind)), 1000) == kind(), seed
        usable += 1
    assert usable > 20
