"""A union is a oneof of Protobuf, whether or not msgspec tells its members apart, and its members keep their names."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

import nearcall
from nearcall.codec.protobuf.text import proto_text

from .protoc import Peer, compiled
from .test_protobuf_rules import messages


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str
    friends: list[Cat | Dog] = field(default_factory=list["Cat | Dog"])


@dataclass
class Node:
    """A node of a tree."""

    children: list[Node | str] = field(default_factory=list["Node | str"])
    pairs: list[tuple[Node, int]] = field(default_factory=list["tuple[Node, int]"])
    rows: list[list[Node]] = field(default_factory=list["list[Node]"])


@dataclass
class Plain:
    value: str | int
    perhaps: int | None = None
    many: int = 3
    parts: list[Cat] = field(default_factory=list[Cat])


@dataclass
class Named:
    """The same, and a union whose members are named."""

    value: str | bytes
    perhaps: int | None = None
    many: int = 3
    parts: list[Cat] = field(default_factory=list[Cat])


class Camel(msgspec.Struct, rename="camel"):
    first_pet: Cat | Dog


def declared(annotation: Any) -> dict[str, list[str]]:
    """The messages of the ``.proto``, which protoc takes, each with its lines."""
    found = re.findall(r"^message (\w+) \{\n(.*?)\n?^\}", Peer(annotation).proto, re.MULTILINE | re.DOTALL)
    return {name: [line.partition("//")[0].strip() for line in lines.splitlines()] for name, lines in found}


@pytest.mark.parametrize(
    ("annotation", "name", "members"),
    [
        (Cat | Dog, "CatOrDog", ["Cat cat = 1;", "Dog dog = 2;"]),
        (Cat | Dog | str | int, "CatOrDogOrStringOrInt64", ["Cat cat = 1;", "Dog dog = 2;", "string string = 3;"]),
        (Cat | str, "CatOrString", ["Cat cat = 1;", "string string = 2;"]),
        (str | bytes, "StringOrBytes", ["string string = 1;", "bytes bytes = 2;"]),
        (Path | str, "PathOrString", ["string path = 1;", "string string = 2;"]),
        (
            ipaddress.IPv4Address | ipaddress.IPv6Address,
            "IPv4AddressOrIPv6Address",
            ["string i_pv4_address = 1;", "string i_pv6_address = 2;"],
        ),
        (np.ndarray | int, "NdarrayOrInt64", ["NdArray ndarray = 1;", "int64 int64 = 2;"]),
        (
            list[int] | set[int] | tuple[int, ...],
            "Int64ListOrInt64SetOrTupleInt",
            ["Int64List int64_list = 1;", "Int64Set int64_set = 2;", "Int64List tuple_int = 3;"],
        ),
        (
            Annotated[Cat, nearcall.field(7)] | Plain,
            "CatOrPlain",
            ["Cat cat = 7;", "Plain plain = 2;"],
        ),
    ],
)
def test_it_is_a_oneof(annotation: Any, name: str, members: list[str]) -> None:
    lines = declared(annotation)[name]
    assert lines[0] == "oneof value {"
    assert lines[1 : len(members) + 1] == members
    assert lines[-1] == "}"


@pytest.mark.parametrize("annotation", [Node | str, tuple[Node, int], list[list[Node]], Node, Cat | Dog, Dog])
def test_a_type_may_be_within_itself(annotation: Any) -> None:
    assert not any(
        re.match(r"(repeated )? ?\w+ = \d", line) for lines in declared(annotation).values() for line in lines
    )


def test_a_union_changes_nothing_beside_it() -> None:
    found = declared(tuple[Plain, Named])
    assert found["Plain"][1:] == found["Named"][1:]
    assert found["Named"][1:] == ["optional int64 perhaps = 2;", "optional int64 many = 3;", "repeated Cat parts = 4;"]
    assert declared(Camel)["Camel"] == ["CatOrDog firstPet = 1;"]


VALUES: list[tuple[Any, list[tuple[Any, str]]]] = [
    (Cat | Dog, [(Cat("a"), "cat"), (Dog("b", [Cat("c"), Dog("d")]), "dog")]),
    (str | bytes, [("", "string"), (b"\0", "bytes")]),
    (Path | str, [(Path("a/b"), "path"), ("c", "string")]),
    (list[int] | set[int] | tuple[int, ...], [([1], "int64_list"), ({1}, "int64_set"), ((1,), "tuple_int")]),
]


@pytest.mark.parametrize(("annotation", "values"), VALUES)
def test_values_arrive_as_they_left(annotation: Any, values: list[tuple[Any, str]]) -> None:
    peer = Peer(annotation)
    for value, member in values:
        message = peer.message.FromString(peer.encode(value))
        assert message.value.WhichOneof("value") == member
        text = peer.json.encode(value)
        found = [peer.decode(message.SerializeToString()), peer.json.decode(text, 100), peer.strict.decode(text, 100)]
        assert [(type(each), each) for each in found] == [(type(value), value)] * 3


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"value": {}}', "no member of Cat | Dog is there"),
        (b'{"value": {"cat": {"name": "a"}, "dog": {"name": "b"}}}', "two members of Cat | Dog are there"),
        (b'{"value": {"Cat": {"name": "a"}}}', "no field is called 'Cat' (known: cat, dog)"),
        (b'{"value": {"cat": {"name": 1}}}', "expected str, got a number"),
    ],
)
def test_json_that_names_no_member_is_refused(body: bytes, says: str) -> None:
    peer = Peer(Cat | Dog)
    with pytest.raises(ValueError, match=re.escape(says)):
        peer.strict.decode(body, 100)


def test_what_is_no_member_is_not_sent() -> None:
    class Kitten(Cat):
        pass

    peer = Peer(Cat | Dog)
    for wrong, says in ((3, r"expected Cat \| Dog, got int"), (Kitten("a"), "expected Cat, got .*Kitten")):
        with pytest.raises(ValueError, match=says):
            peer.encode(wrong)


def test_containers_with_limits_and_without_are_told_apart() -> None:
    peer = Peer(tuple[list[list[int]], list[Annotated[list[int], msgspec.Meta(max_length=1)]]])
    value = ([[1, 2]], [[3]])
    assert peer.through(value) == value
    with pytest.raises(ValueError, match="expected at most 1 items, got 2"):
        peer.encode(([[1, 2]], [[3, 4]]))


def test_a_class_with_a_union_is_a_request_and_a_result_by_itself() -> None:
    @nearcall.service(name="test.Names")
    class Names:
        def keep(self, given: Named) -> Named:
            return given

    text = proto_text(messages(Names))
    compiled(text)
    assert "rpc Keep(Named) returns (Named);" in text
    assert "// The same, and a union whose members are named.\nmessage Named {" in text
    with nearcall.Server(Names(), "grpc://127.0.0.1:0") as server, nearcall.connect(server.urls[0], Names) as names:
        for given in (Named("a"), Named(b"b", 3, 4, [Cat("c")])):
            assert names.keep(given) == given
