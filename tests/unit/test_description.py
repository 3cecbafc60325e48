"""A server's description, and whether a client fits it."""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcall.client.agreements import Agreements
from nearcall.errors import FailedPrecondition, InvalidArgument, RpcError, Unimplemented
from nearcall.service.agreement import Sides, agree, service_findings
from nearcall.service.describing import describe
from nearcall.service.dynamic import described_services
from nearcall.service.plan import ServicePlan
from nearcall.service.reading import read_description
from nearcall.service.service import oneway, plan_of, service


@dataclass
class Point:
    x: int
    y: float = 0.0


@service
class Calculator:
    """Adds."""

    def add(self, a: int, b: int = 2) -> int: ...
    def shift(self, points: Iterator[Point], /, *, by: float) -> Iterator[Point]: ...
    @oneway
    def log(self, line: str) -> None: ...


@service
class Store:
    def get(self, key: str) -> bytes: ...


def compare(client: ServicePlan, described: Any) -> dict[str, tuple[int, bool]]:
    """For each method its number, and whether its arguments go by name."""
    agreed = agree(client, read_description(described))
    for each in agreed.values():
        if each.problem is not None:
            raise FailedPrecondition(each.problem)
    return {name: (each.number, each.plan.always_named) for name, each in agreed.items()}


def description(*classes: type) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(json.dumps(describe([plan_of(cls) for cls in classes])))
    return described


def test_a_description_is_plain_data() -> None:
    add, shift, _log = description(Calculator)["services"][0]["methods"]
    assert add == {
        "name": "add",
        "kind": "unary",
        "signature": "add(a: int, b: int = ...) -> int",
        "doc": None,
        "idempotent": False,
        "parameters": [
            {
                "name": "a",
                "type": "int",
                "form": "coded",
                "required": True,
                "by_position": True,
                "by_name": True,
                "schema": "int",
            },
            {
                "name": "b",
                "type": "int",
                "form": "coded",
                "required": False,
                "by_position": True,
                "by_name": True,
                "schema": "int",
                "default": 2,
            },
        ],
        "stream": None,
        "returns": {"type": "int", "form": "coded", "schema": "int"},
    }
    assert shift["stream"] == {
        "name": "points",
        "position": 0,
        "type": "Point",
        "form": "coded",
        "by_position": True,
        "by_name": False,
        "schema": {"ref": "Point"},
    }
    assert description(Calculator)["services"][0]["types"] == {
        "Point": {
            "layout": "map",
            "fields": [
                {"name": "x", "required": True, "type": "int"},
                {"name": "y", "required": False, "type": "float", "default": 0.0},
            ],
        }
    }


def test_methods_are_numbered_over_all_services() -> None:
    described = description(Calculator, Store)
    assert compare(plan_of(Store), described) == {"get": (3, False)}
    assert compare(plan_of(Calculator), described) == {"add": (0, False), "shift": (1, False), "log": (2, False)}
    assert compare(plan_of(Store), json.dumps(described).encode()) == {"get": (3, False)}


def test_dynamic_plans_describe_the_same_service() -> None:
    described = description(Calculator, Store)
    plans = [each.whole() for each in described_services(read_description(described))]
    assert [plan.name for plan in plans] == ["Calculator", "Store"]
    for plan in plans:
        assert compare(plan, described)
    shift = plans[0].methods[1]
    assert (shift.stream_position, shift.kind) == (0, "bidi_stream")
    assert shift.split(([1],), {"by": 2}) == ((2,), [1])
    with pytest.raises(InvalidArgument, match="argument 'points' must be given by position"):
        shift.split((), {"points": [1], "by": 2})
    assert plans[1].methods[0].reply.coding.form == "bytes"


def pair(client_method: Any, server_method: Any) -> tuple[dict[str, tuple[int, bool]] | None, str]:
    """Compares two services that differ in one method."""
    client = service(type("Service", (), {"m": client_method}))
    server = service(type("Service", (), {"m": server_method}))
    try:
        return compare(plan_of(client), description(server)), ""
    except FailedPrecondition as error:
        return None, error.message


def method(parameter: Any, result: Any = None) -> Any:
    def m(self, value): ...

    m.__annotations__ = {"value": parameter, "return": result}
    return m


@dataclass
class Moved:
    """Point under another name, with a field more that may be missing."""

    y: float
    x: int
    z: int = 0


@dataclass
class Strict:
    x: int
    z: int


class Swapped(enum.Enum):
    A = "b"
    B = "a"


class Turned(NamedTuple):
    y: float
    x: int


class OnlyY(NamedTuple):
    y: float


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class AsDict(TypedDict):
    x: int


class AsTuple(NamedTuple):
    x: int
    y: float = 0


class Tagged(msgspec.Struct, tag=True):
    x: int


class Suit(enum.Enum):
    A = "a"
    B = "b"


class Wider(enum.Enum):
    A = "a"
    B = "b"
    C = "c"


@dataclass
class TreeA:
    children: list[TreeA]
    name: str = ""


@dataclass
class TreeB:
    children: list[TreeB]


@dataclass
class TreeC:
    children: list[TreeC]
    name: int = 0


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (int, float),
        (int, int | None),
        (int, Any),
        (Any, int),
        (bytes, memoryview),
        (list[int], tuple[int, ...]),
        (set[int], frozenset[int]),
        (Point, Moved),
        (Suit, Wider),
        (Suit, str),
        (Literal["a"], Suit),
        (Literal["a", "b"], str),
        (TreeB, TreeA),
        (list[Point], list[Moved | None]),
        (AsTuple, AsTuple),
    ],
)
def test_what_the_server_accepts(client: Any, server: Any) -> None:
    assert pair(method(client), method(server)) == ({"m": (0, False)}, "")


@pytest.mark.parametrize(
    ("client", "server", "message"),
    [
        (str, int, "client's Service.m(value: str) but the server's has value: int"),
        (float, int, "client's Service.m(value: float) but the server's has value: int"),
        (Point, dict[str, Any], "client's Service.m(value: Point) but the server's has value: dict[str, Any]"),
        (int | None, str | None, "client's Service.m(value: int | None) but the server's has value: str | None"),
        (
            int | str,
            datetime | int,
            "client's Service.m(value: int | str) but the server's has value: datetime | int "
            "(str here, datetime | int there)",
        ),
        (
            list[int],
            list[str],
            "client's Service.m(value: list[int]) but the server's has value: list[str] ([]: int here, str there)",
        ),
        (list[int], set[int], "client's Service.m(value: list[int]) but the server's has value: set[int]"),
        (
            Point,
            Strict,
            "client's Service.m(value: Point) but the server's has value: Strict "
            "(z: no such field here, int, which is required there)",
        ),
        (
            Point,
            Closed,
            "client's Service.m(value: Point) but the server's has value: Closed (y: float here, no such field there)",
        ),
        (
            AsTuple,
            Point,
            "client's Service.m(value: AsTuple) but the server's has value: Point "
            "(AsTuple (array) here, Point (map) there)",
        ),
        (
            Closed,
            Tagged,
            "client's Service.m(value: Closed) but the server's has value: Tagged "
            "(Closed (map) here, Tagged (map, tagged type='Tagged') there)",
        ),
        (
            Swapped,
            Suit,
            "client's Service.m(value: Swapped) but the server's has value: Suit (A = 'b' here, A = 'a' there)",
        ),
        (
            AsTuple,
            Turned,
            "client's Service.m(value: AsTuple) but the server's has value: Turned "
            "(x: field 0 is x here, field 0 is y there)",
        ),
        (
            Turned,
            OnlyY,
            "client's Service.m(value: Turned) but the server's has value: OnlyY (x: int here, no such field there)",
        ),
        (
            TreeA,
            TreeC,
            "client's Service.m(value: TreeA) but the server's has value: TreeC (name: str here, int there)",
        ),
        (
            dict[str, list[Point]],
            dict[str, list[Strict]],
            "client's Service.m(value: dict[str, list[Point]]) but the server's has value: dict[str, list[Strict]] "
            "([][].z: no such field here, int, which is required there)",
        ),
        (
            tuple[int],
            tuple[int, int],
            "client's Service.m(value: tuple[int]) but the server's has value: tuple[int, int]",
        ),
    ],
)
def test_what_the_server_would_refuse(client: Any, server: Any, message: str) -> None:
    assert pair(method(client), method(server)) == (None, message)


@pytest.mark.parametrize(
    ("client", "server", "found"),
    [
        (Moved, Point, "(z: int here, no such field there)"),
        (Point, AsDict, "(y: float here, no such field there)"),
        (TreeA, TreeB, "(name: str here, no such field there)"),
        (Wider, Suit, "(Literal['c'] here, Literal['a', 'b'] there)"),
        (str, Literal["a"], "client's Service.m(value: str) but the server's has value: Literal['a']"),
        (int | None, int, "(None here, int there)"),
        (int | str, int, "(str here, int there)"),
        (bytes | None, bytes, "(None here, bytes there)"),
    ],
)
def test_what_only_some_calls_get_wrong(client: Any, server: Any, found: str) -> None:
    named = {"m": (0, found.endswith("no such field there)") or server is bytes)}
    assert pair(method(client), method(server)) == (named, "")
    ours, theirs = (service(type("Service", (), {"m": method(each)})) for each in (client, server))
    infos = [read_description(description(each)).services[0] for each in (ours, theirs)]
    (finding,) = service_findings(*infos, Sides())
    assert (finding.always, finding.user) == (False, "client")
    assert finding.text.endswith(found)


def test_results_are_compared_the_other_way_round() -> None:
    assert pair(method(int, float), method(int, int))[0]
    assert pair(method(int, int), method(int, float)) == (
        None,
        "client's Service.m returns int but the server's returns float",
    )
    assert pair(method(int, Strict), method(int, Point)) == (
        None,
        "client's Service.m returns Strict but the server's returns Point "
        "(z: int, which is required here, no such field there)",
    )
    assert (
        pair(method(int, None), method(int, int))[1] == "client's Service.m returns None but the server's returns int"
    )


def test_kinds_and_streams_are_compared() -> None:
    assert pair(method(int, int), method(int, Iterator[int]))[1] == (
        "client's Service.m is unary but the server's is a server stream"
    )
    assert pair(method(Iterator[int], int), method(Iterator[float], int))[0]
    assert pair(method(Iterator[str], int), method(Iterator[int], int))[1] == (
        "client's Service.m streams value: str but the server's expects int"
    )
    assert pair(method(int, Iterator[int]), method(int, Iterator[str]))[1] == (
        "client's Service.m streams int but the server's streams str"
    )


def test_parameters_are_compared_by_name() -> None:
    def base(self, a: int, b: int = 2) -> None: ...
    def grown(self, a: int, b: int = 2, c: int = 3) -> None: ...
    def moved(self, b: int = 2, *, a: int) -> None: ...
    def needs(self, a: int, b: int, c: int) -> None: ...
    def strict(self, a: int, b: int) -> None: ...
    def shrunk(self, a: int) -> None: ...

    assert pair(base, base)[0] == {"m": (0, False)}
    assert pair(base, grown)[0] == {"m": (0, True)}
    assert pair(base, moved)[0] == {"m": (0, True)}
    assert pair(strict, base)[0] == {"m": (0, False)}
    assert pair(base, strict)[0] == {"m": (0, True)}
    assert pair(base, shrunk)[0] == {"m": (0, True)}
    assert pair(strict, needs)[1] == "client's Service.m has no parameter 'c' but the server's requires c: int"
    assert pair(strict, shrunk)[1] == (
        "client's Service.m(b: int) but the server's has no parameter 'b': it is m(a: int) -> None"
    )


def test_a_missing_service_or_method_is_named() -> None:
    with pytest.raises(FailedPrecondition, match="the server does not serve Store; it serves Calculator: connect with"):
        compare(plan_of(Store), description(Calculator))

    @service(name="Store")
    class Newer:
        def put(self, key: str) -> None: ...

    plan = agree(plan_of(Newer), read_description(description(Store)))["put"].plan
    with pytest.raises(Unimplemented, match="the server's Store has no method 'put'; it has get: update the server"):
        plan.arguments.encode_named(("x",))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "malformed"),
        (b"[]", "malformed"),
        (b"{}", "malformed"),
        (b"\xff", "malformed"),
        ({"nearcall": 1, "services": [{"name": 3}]}, "malformed"),
        ({"nearcall": 2, "services": []}, "the server describes itself in format 2, and this nearcall knows format 1"),
    ],
)
def test_bad_descriptions_are_refused(data: Any, message: str) -> None:
    for read in (read_description, lambda data: compare(plan_of(Store), data)):
        with pytest.raises(FailedPrecondition, match=message):
            read(data)


JSON = st.recursive(
    st.none() | st.integers(-3, 3) | st.sampled_from(["int", "any", "ref", "Point", "list"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["list", "ref", "union", "dict", "tuple", "values", "array"]), inner, max_size=1
        )
    ),
    max_leaves=6,
)


@given(schema=JSON, types=st.dictionaries(st.just("Point"), JSON))
def test_strange_schemas_never_break_the_comparison(schema: Any, types: Any) -> None:
    described = description(Calculator)
    described["services"][0]["types"] = types
    described["services"][0]["methods"][0]["parameters"][0]["schema"] = schema
    described["services"][0]["methods"][1]["returns"]["schema"] = schema
    with contextlib.suppress(FailedPrecondition):
        compare(plan_of(Calculator), described)
    with contextlib.suppress(FailedPrecondition):
        (described_service,) = described_services(read_description(described))
        plain = described_service.whole()
        add = agree(plain, read_description(described))["add"].plan
        with contextlib.suppress(RpcError):
            add.arguments.encode_named(({"x": 1, "y": [{"z": 2}]}, [{"x": {}}]))


def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The same plain data with something else in one place."""
    if isinstance(value, dict) and value and draw(st.integers(0, 8)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: mutated(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 8)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], mutated(draw, value[index]), *value[index + 1 :]]
    return draw(JSON | st.sampled_from(["__class__", "_nearcall_url", "", 1 << 70, -1, 0.5, "unary", "bytes", "tuple"]))


@given(data=st.data())
def test_a_hostile_description_is_refused_or_used(data: st.DataObject) -> None:
    described = description(Calculator, Store)
    for _ in range(data.draw(st.integers(1, 3))):
        described = mutated(data.draw, described)
    for cls in (None, Calculator):
        agreements = Agreements("tcp://far", 1000)
        with contextlib.suppress(FailedPrecondition):
            agreements.add(cls, json.dumps(described))
        kept = agreements.add(cls, json.dumps(description(Calculator, Store)))
        with contextlib.suppress(FailedPrecondition):
            agreements.renew(json.dumps(described))
        del kept


def test_a_server_with_more_methods_than_there_are_numbers_is_refused() -> None:
    described = description(Store)
    described["services"].insert(0, {"name": "Many", "methods": described["services"][0]["methods"] * 0x10000})
    with pytest.raises(FailedPrecondition, match="tcp://far: the server's description of itself is malformed"):
        Agreements("tcp://far", 1000).add(Store, json.dumps(described))


def test_where_both_declare_the_same_nothing_stands_in_between() -> None:
    plan = plan_of(Calculator)
    for method, agreed in zip(
        plan.methods, agree(plan, read_description(description(Calculator))).values(), strict=True
    ):
        assert agreed.plan is method


class Many(TypedDict):
    a: list[Many]
    b: list[Many]
    c: list[Many]


def test_a_server_cannot_make_the_comparison_long() -> None:
    described = description(service(type("Service", (), {"m": method(Many)})))
    # Each type refers to the next one three times, and the last one differs: 3 ** 60 ways lead there.
    names = [f"T{number}" for number in range(60)]
    types = {
        name: {
            "layout": "map",
            "fields": [{"name": field, "required": True, "type": {"list": {"ref": after}}} for field in "abc"],
        }
        for name, after in zip(names, [*names[1:], "Many"], strict=True)
    }
    types["Many"] = {"layout": "map", "fields": []}
    described["services"][0]["types"] = types
    described["services"][0]["methods"][0]["parameters"][0]["schema"] = {"ref": "T0"}
    with pytest.raises(FailedPrecondition, match="no such field"):
        compare(plan_of(service(type("Service", (), {"m": method(Many)}))), described)
