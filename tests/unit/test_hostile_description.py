"""What a server says of itself may be anything: a client takes it, or says in one line that it is malformed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcall.client.agreements import Agreements
from nearcall.codec import inspection  # noqa: F401 - so that its import counts for no example
from nearcall.errors import FailedPrecondition
from nearcall.service.describing import describe
from nearcall.service.reading import DEEPEST
from nearcall.service.service import plan_of, service


class Point(msgspec.Struct, omit_defaults=True, tag="p"):
    x: int
    near: list[Point] = []


@service
class Calculator:
    def add(self, a: int, b: int = 2) -> int: ...
    def shift(self, points: Iterator[Point], /, *, by: dict[str, tuple[float, str]]) -> Iterator[Point | None]: ...
    def read(self, name: str) -> bytes: ...


VALID: Any = json.loads(json.dumps(describe([plan_of(Calculator)])))


def read(data: bytes) -> str | None:
    """What connecting to a server that describes itself so comes to, and meeting it later: ``None`` if well, else the
    message.
    """
    messages: list[str] = []
    for cls in (None, Calculator):
        described = data.decode("utf-8", "replace")
        later = Agreements("inproc://hostile", 1000)
        kept = later.add(cls, json.dumps(VALID))
        for meet in (partial(Agreements("inproc://hostile", 1000).add, cls), later.renew):
            try:
                meet(described)
            except FailedPrecondition as error:
                messages.append(error.message)
        del kept
    for message in messages:
        assert message.isprintable()
        assert len(message) < 3000
    return messages[0] if messages else None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the parts of plain data are."""
    yield path
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from places(inner, (*path, index))


PLACES = [path for path in places(VALID) if path]


def changed(path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(VALID)
    at = result
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return result


def test_a_good_one_is_taken() -> None:
    assert read(json.dumps(VALID).encode()) is None


@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything(data: bytes) -> None:
    assert read(data) is not None


@settings(max_examples=400, deadline=None)
@given(st.tuples(st.sampled_from(PLACES), JSON))
def test_a_part_is_anything(change: tuple[tuple[Any, ...], Any]) -> None:
    read(json.dumps(changed(*change)).encode())


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(PLACES))
def test_a_part_is_another_part(to: tuple[Any, ...], origin: tuple[Any, ...]) -> None:
    value: Any = VALID
    for step in origin:
        value = value[step]
    read(json.dumps(changed(to, value)).encode())


METHOD = ("services", 0, "methods", 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((*METHOD, "name"), "__class__", "a method of Calculator is called '__class__'"),
        ((*METHOD, "name"), "a b", "called 'a b'"),
        ((*METHOD, "name"), "\x1b[2J", r"called '\\x1b\[2J'"),
        ((*METHOD, "name"), "x" * 5000, "characters more"),
        ((*METHOD, "name"), "shift", "two methods of Calculator are called 'shift'"),
        ((*METHOD, "kind"), "telepathy", "of the kind 'telepathy'"),
        ((*METHOD, "kind"), "client_stream", "has no streaming parameter"),
        ((*METHOD, "parameters", 1, "name"), "a", "two parameters of Calculator.add are called 'a'"),
        ((*METHOD, "parameters", 1, "name"), "", "is called ''"),
        ((*METHOD, "parameters", 1, "schema"), {}, "has a schema that is empty"),
        ((*METHOD, "parameters", 1, "schema"), {"dict": ["int"]}, "'dict' has no list of schemas"),
        ((*METHOD, "parameters", 1, "schema"), {"ref": {}}, "'ref' is no name"),
        ((*METHOD, "returns", "schema"), {"tuple": [[]]}, "the result of Calculator.add has a schema that is a list"),
        (("services", 0, "types", "Point"), [], "type 'Point' of Calculator is described by a list"),
        (("services", 0, "types", "Point", "fields"), [{}], "a field without name, type"),
        (("services", 0, "types", "Point", "tag"), 5, "has a tag that is none"),
        (("services", 0, "name"), "__dict__", "a service is called '__dict__'"),
        (("services",), VALID["services"] * 2, "two services are called 'Calculator'"),
        (("nearcall",), 2, "in format 2"),
    ],
)
def test_what_is_said(path: tuple[Any, ...], value: Any, message: str) -> None:
    assert re.search(message, read(json.dumps(changed(path, value)).encode()) or "it was taken")


def test_a_version_of_five_thousand_digits() -> None:
    data = json.dumps(changed(("nearcall",), "HERE")).encode().replace(b'"HERE"', b"9" * 5000)
    assert "malformed" in (read(data) or "")


def test_too_deep() -> None:
    for depth in (DEEPEST, 500, 100_000):
        schema = b'{"list":' * depth + b'"int"' + b"}" * depth
        data = json.dumps(changed((*METHOD, "returns", "schema"), "HERE")).encode().replace(b'"HERE"', schema)
        assert read(data) is not None


def test_too_many_methods() -> None:
    method = VALID["services"][0]["methods"][0]
    methods = [{**method, "name": f"m{number}"} for number in range((1 << 16) + 1)]
    message = read(json.dumps(changed(("services", 0, "methods"), methods)).encode())
    assert message is not None
    assert "more than 65536 methods" in message


def test_what_a_later_version_may_add_is_let_through() -> None:
    later = changed((*METHOD, "returns", "schema"), {"matrix": {"rows": 3}})
    later["new"] = {"anything": [1]}
    later["services"][0]["types"]["Later"] = {"layout": "tree", "root": {}}
    read(json.dumps(later).encode())
    later["services"][0]["methods"][0]["returns"]["schema"] = "int"
    assert read(json.dumps(later).encode()) is None
