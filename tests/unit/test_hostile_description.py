"""What a server says of itself may be anything: a client takes it, or says in one line that it is malformed."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcall
from nearcall.client.agreements import Agreements
from nearcall.codec import inspection  # noqa: F401 - so that its import counts for no example
from nearcall.errors import FailedPrecondition
from nearcall.service.describing import describe
from nearcall.service.reading import DEEPEST, LONGEST, MOST_MEMBERS, MOST_METHODS, MOST_VALUES
from nearcall.service.service import plan_of, service
from nearcall.types.differences import differences
from nearcall.types.fields import field_finder

from ..turns import examples


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


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(st.tuples(st.sampled_from(PLACES), JSON))
def test_a_part_is_anything(change: tuple[tuple[Any, ...], Any]) -> None:
    read(json.dumps(changed(*change)).encode())


@settings(max_examples=300)
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


def with_methods(count: int) -> str:
    """With so many methods besides."""
    method = {**VALID["services"][0]["methods"][0], "signature": "", "doc": None}
    more = [{**method, "name": f"m{number}"} for number in range(count)]
    return json.dumps(changed(("services", 0, "methods"), VALID["services"][0]["methods"] + more))


def with_unions(types: int, members: int) -> str:
    """Types each field of which may be any of them, in all methods."""
    union = {"union": [{"ref": f"T{number}"} for number in range(members)]}
    fields = [{"name": f"f{number}", "required": False, "type": union} for number in range(3)]
    made = {f"T{number}": {"layout": "map", "fields": fields} for number in range(types)}
    described = changed(("services", 0, "types"), VALID["services"][0]["types"] | made)
    for method in described["services"][0]["methods"]:
        method["parameters"].append(
            {**VALID["services"][0]["methods"][0]["parameters"][0], "name": "u", "schema": union}
        )
        method["parameters"][-1]["required"] = False
    return json.dumps(described)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_methods(MOST_METHODS), "it has 4,099 methods, and the most are 4,096"),
        (json.dumps(changed(("services", 0, "doc"), "x" * LONGEST)), "bytes long, and the most are 4,194,304"),
        (json.dumps(changed((*METHOD, "new"), [0] * MOST_VALUES)), "more than 200,000 values"),
        (with_unions(1, MOST_MEMBERS + 1), "'union' has more than 256 members"),
        (
            json.dumps(changed((*METHOD, "returns", "schema"), {"union": ["int", {"union": ["str"]}]})),
            "'union' has another one as a member",
        ),
    ],
    ids=["methods", "length", "values", "members", "unions"],
)
def test_too_much(data: str, message: str) -> None:
    assert message in (read(data.encode()) or "it was taken")


class Steps:
    """Counts the functions that are entered, in Python and in C: what something costs, however busy the machine is."""

    count = 0

    def __enter__(self) -> Steps:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.setprofile(None)

    def _note(self, _frame: object, event: str, _arg: object) -> None:
        self.count += event in ("call", "c_call")


def steps_to_meet(cls: type | None, described: str) -> int:
    both = Agreements("inproc://hostile", 1000)
    with Steps() as steps:
        kept = both.add(cls, described)
    with Steps() as later:
        both.renew(described.replace('"nearcall": 1', '"nearcall":  1'))
    assert kept.names
    return max(steps.count, later.count)


@pytest.mark.parametrize("cls", [None, Calculator])
def test_what_a_client_does_not_call_costs_it_a_look(cls: type | None) -> None:
    """A plan would take more than twice as many for each method."""
    few, many = (steps_to_meet(cls, with_methods(count)) for count in (100, 4000))
    assert many - few < 200 * 3900


@pytest.mark.parametrize("cls", [None, Calculator])
def test_types_that_refer_to_each_other_are_looked_at_once(cls: type | None) -> None:
    few, many = (steps_to_meet(cls, with_unions(count, 100)) for count in (100, 200))
    assert many < 2.5 * few


def test_the_plan_of_a_method_goes_through_each_type_once() -> None:
    both = Agreements("inproc://hostile", 1000)
    costs: list[int] = []
    for types in (60, 240):
        kept = both.add(None, with_unions(types, 60))
        with Steps() as steps:
            for name in kept.names["Calculator"]:
                kept.method("Calculator", name)
        costs.append(steps.count)
    assert costs[1] < 5 * costs[0]


def test_types_too_many_to_be_compared_are_refused_in_time() -> None:
    """Each of the one side is tried with each of the other, and so is what they hold."""

    def union(letter: str) -> Any:
        return {"union": [{"ref": f"{letter}{number}"} for number in range(250)]}

    def named(field: str, inner: Any) -> Any:
        return {"layout": "map", "fields": [{"name": field, "required": False, "type": inner}]}

    def types(field: str) -> dict[str, Any]:
        leaves = {f"L{number}": named(field, "int") for number in range(250)}
        return leaves | {f"T{number}": named("inner", {"list": union("L")}) for number in range(250)}

    with Steps() as steps, pytest.raises(ValueError, match="in too many ways"):
        differences(union("T"), types("x"), union("T"), types("y"))
    assert steps.count < 3_000_000
    leaves = {f"L{number}": named("x", "int") for number in range(250)}
    lists = {"union": [{"list": {"ref": f"L{number}"}} for number in range(250)]}
    with Steps() as steps, pytest.raises(ValueError, match="in too many ways"):
        field_finder(lists, leaves, lists, leaves | {"More": {}})
    assert steps.count < 3_000_000


def test_a_server_does_not_start_with_more_than_clients_accept() -> None:
    def m(self: Any, a: int) -> int: ...

    large = service(type("Large", (), {f"m{number}": m for number in range(MOST_METHODS)}))
    with pytest.raises(ValueError, match=r"no client would accept .* it has 4,101 methods, and the most are 4,096"):
        nearcall.Server(large(), "inproc://large")


def test_what_a_later_version_may_add_is_let_through() -> None:
    later = changed((*METHOD, "returns", "schema"), {"matrix": {"rows": 3}})
    later["new"] = {"anything": [1]}
    later["services"][0]["types"]["Later"] = {"layout": "tree", "root": {}}
    read(json.dumps(later).encode())
    later["services"][0]["methods"][0]["returns"]["schema"] = "int"
    assert read(json.dumps(later).encode()) is None
