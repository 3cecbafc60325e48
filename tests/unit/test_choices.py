"""Unions whose members look alike in a message: the member is named."""

from __future__ import annotations

import inspect
import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, cast

import attrs
import msgspec
import numpy as np
import pytest

import nearcall
from nearcall.errors import FailedPrecondition, InvalidArgument

from .loopback import Loopback

T = TypeVar("T")


@dataclass
class A:
    x: int


@dataclass
class B:
    x: int
    children: list[A | B] = field(default_factory=list["A | B"])


@dataclass
class Deep:
    value: str | bytes
    b: B | None = None
    number: Annotated[int, msgspec.Meta(le=100)] = 3

    def __post_init__(self) -> None:
        if self.number == 9:
            raise ValueError("nine is refused")


@attrs.frozen
class Frozen:
    value: Path | int = 3
    _hidden: str | bytes = b""


class Record(msgspec.Struct, frozen=True):
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    names: tuple[str, ...] = ()


class Row(NamedTuple):
    value: str | bytes


class Pair(Generic[T]):
    """A generic class that is registered."""

    def __init__(self, items: list[T]) -> None:
        self.items = items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and self.items == other.items

    __hash__ = None  # type: ignore[assignment]


nearcall.register_type(Pair, to=cast(Any, list[T]), give=lambda pair: pair.items)  # type: ignore[valid-type]


@nearcall.service
class Choices:
    def text(self, value: str | bytes) -> str | bytes:
        return value

    def node(self, value: A | B | None = None) -> A | B | None:
        return value

    def array(self, value: np.ndarray | int | None) -> np.ndarray | int | None:  # type: ignore[type-arg]
        return value

    def paths(self, value: list[Path | int]) -> dict[str, Path | int]:
        return dict(zip("abc", value, strict=False))

    def deep(self, value: list[Deep]) -> Deep:
        return value[0]

    def frozen(self, value: Frozen) -> Frozen:
        return value

    def record(self, value: Record) -> Record:
        return value

    def counts(self, value: Counter[int] | Pair[int] | A) -> Counter[int] | Pair[int] | A:
        return value

    def kinds(self, value: list[int] | set[int] | tuple[int, ...]) -> str:
        return type(value).__name__

    def stream(self, values: Iterator[str | bytes]) -> Iterator[str | bytes]:
        return values


@pytest.fixture(params=["msgpack", "json"])
def choices(request: pytest.FixtureRequest) -> Iterator[Any]:
    url = f"inproc://choices-{request.param}"
    with (
        nearcall.Server(Choices(), url, codecs=["json"]),
        nearcall.connect(url, Choices, codec=request.param) as client,
    ):
        yield client


def test_what_arrives_is_what_left(choices: Any) -> None:
    assert [choices.text("a"), choices.text(b"a")] == ["a", b"a"]
    for node in (A(1), B(2, [A(3), B(4)]), None):
        assert choices.node(node) == node
    assert choices.node() is None
    assert choices.array(None) is None
    assert choices.array(3) == 3
    assert choices.array(np.arange(3)).tolist() == [0, 1, 2]
    assert choices.paths([Path("x"), 3]) == {"a": Path("x"), "b": 3}
    deep = Deep(b"x", B(1, [A(2)]))
    assert choices.deep([deep, Deep("y")]) == deep
    for frozen in (Frozen(), Frozen(Path("x"), "h")):
        assert choices.frozen(frozen) == frozen
    record = Record(ipaddress.ip_address("::1"), ("a",))
    assert choices.record(record) == record
    for counts in (Counter({1: 2}), Pair([1, 2]), A(1)):
        assert choices.counts(counts) == counts
    assert [choices.kinds(kind([1])) for kind in (list, set, tuple)] == ["list", "set", "tuple"]
    assert list(choices.stream(iter(["a", b"b"]))) == ["a", b"b"]


def test_others_are_refused_with_their_place(choices: Any) -> None:
    refused = Deep("a")
    refused.number = 9
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: choices.text(3), "argument 'value' must be str | bytes, got int"),
        (lambda: choices.node("a"), "argument 'value' must be A | B | None, got str"),
        (lambda: choices.paths(["a"]), "argument 'value' at [0]: expected Path | int, got str"),
        (
            lambda: choices.deep([Deep("a", B(1, [A(1), 3]))]),  # type: ignore[list-item]
            "argument 'value' at [0].b.children[1]: expected A | B, got int",
        ),
        (lambda: choices.deep([refused]), "nine is refused"),
        (
            lambda: choices.deep([Deep("a"), Deep("b", number=101)]),
            "argument 'value' at [1].number: expected int <= 100",
        ),
    ]
    for call, message in calls:
        with pytest.raises(InvalidArgument) as caught:
            call()
        assert message in str(caught.value)


def test_a_client_without_the_class_names_the_member() -> None:
    plain = Loopback(Choices())
    assert list(plain.description["services"][0]["types"]).count("StrOrBytes") == 1
    assert "StrOrBytes#2" not in plain.description["services"][0]["types"]
    assert plain.text({"str": "a"}) == {"str": "a"}
    assert plain.node({"B": {"x": 1, "children": [{"A": {"x": 2}}]}}) == {"B": {"x": 1, "children": [{"A": {"x": 2}}]}}
    for sent, message in (
        ("a", "expected {'str': ...} or {'bytes': ...}, as which str | bytes travels, got str"),
        ({}, "it has 0 of str, bytes, not one"),
        ({"str": "a", "bytes": b"b"}, "it has 2 of str, bytes, not one"),
        ({"str": 3}, "argument 'value' at .str: expected str, got int"),
        (
            {"bytes": "eA=="},
            "argument 'value' at .bytes: expected bytes, got str",
        ),  # no text stands for bytes, in base64 or otherwise
    ):
        with pytest.raises(InvalidArgument) as caught:
            plain.text(sent)
        assert message in str(caught.value)
    with pytest.raises(InvalidArgument, match="nine is refused"):
        plain.deep([{"value": {"str": "a"}, "number": 9}])


def test_a_member_that_one_side_lacks_is_refused_where_it_comes_along() -> None:
    @nearcall.service(name="Choices")
    class Later:
        def text(self, value: str | bytes | Path) -> str | bytes | Path:
            return value

    client = Loopback(Choices(), Later)
    assert client.text("a") == "a"
    with pytest.raises(FailedPrecondition, match="has the field 'Path"):
        client.text(Path("a"))


def test_callers_see_the_union_as_it_is_written() -> None:
    with nearcall.Server(Choices(), "inproc://seen"), nearcall.connect("inproc://seen", Choices) as client:
        assert inspect.signature(client.text).parameters["value"].annotation == str | bytes


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (list[int] | list[str], "list[int] and list[str] in a union could not be told apart, since values of both are"),
        (bytes | bytearray, "bytes and bytearray in a union could not be told apart"),
        (Choices | int, "may not be a union: beside a service or an array only None may stand"),
        (Row, "the members of str | bytes are sent as text or bytes"),
        (dict[Path, int] | A, "within dict[Path, int] | A, a dict cannot have keys of Path: declare str"),
        (Counter[Path], "within Counter[Path], a dict cannot have keys of Path"),
        (OrderedDict[Path | None, int], "a dict cannot have keys of Path"),
    ],
)
def test_what_nothing_tells_apart(annotation: Any, message: str) -> None:
    def method(self: object, value: Any) -> None: ...

    method.__annotations__ = {"value": annotation, "return": None}
    with pytest.raises(TypeError) as caught:
        nearcall.service(type("Refused", (), {"method": method, "__module__": __name__}))
    assert message in str(caught.value)
