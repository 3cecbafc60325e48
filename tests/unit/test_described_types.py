"""Types of which only a description is known, and that refer to each other in many ways."""

from __future__ import annotations

from typing import Any

import pytest

import nearcall
from nearcall.service.dynamic import described_services
from nearcall.service.reading import read_description

DEPTH = 60


def named(**fields: Any) -> dict[str, Any]:
    """A type with fields."""
    return {
        "layout": "map",
        "fields": [{"name": name, "required": True, "type": schema} for name, schema in fields.items()],
    }


def description(types: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Of a server whose one method takes a value of that type."""
    parameter = {
        "name": "x",
        "type": "X",
        "form": "coded",
        "required": True,
        "by_position": True,
        "by_name": True,
        "schema": schema,
    }
    method = {
        "name": "take",
        "kind": "unary",
        "signature": "take(x: X) -> None",
        "doc": None,
        "idempotent": False,
        "parameters": [parameter],
        "stream": None,
        "returns": {"type": "None", "form": "nothing", "schema": "none"},
    }
    taker = {"name": "Taker", "doc": None, "methods": [method], "types": types}
    ear: dict[str, Any] = {"name": "Ear", "doc": None, "methods": [], "types": {}}
    return {"nearcall": 1, "services": [taker], "references": [ear]}


def services_of(types: dict[str, Any], schema: Any) -> list[str]:
    """The services whose objects the method takes."""
    [service] = described_services(read_description(description(types, schema)))
    plan = service.whole()
    return [cls.__name__ for cls in plan.methods[0].takes]


def twice_the_next(last: dict[str, Any]) -> dict[str, Any]:
    """A row of types of which each has the next one in two fields: there are 2**60 ways to the last."""
    row: dict[str, Any] = {f"T{n}": named(a={"ref": f"T{n + 1}"}, b={"ref": f"T{n + 1}"}) for n in range(DEPTH)}
    return row | {f"T{DEPTH}": last}


def test_types_that_are_reached_in_many_ways_are_gone_through_once() -> None:
    assert services_of(twice_the_next(named(ear={"reference": "Ear"})), {"ref": "T0"}) == ["Ear"]


def test_types_that_contain_themselves() -> None:
    node = named(ear={"reference": "Ear"}, next={"ref": "Node"})
    assert services_of({"Node": node}, {"list": {"ref": "Node"}}) == ["Ear"]
    two = {"A": named(b={"ref": "B"}), "B": named(a={"ref": "A"}, ear={"reference": "Ear"})}
    assert services_of(two, {"ref": "A"}) == services_of(two, {"ref": "B"}) == ["Ear"]


def test_types_without_references_may_refer_to_each_other_as_they_like() -> None:
    names = [f"Node{n}" for n in range(30)]
    any_node = {"union": [{"ref": name} for name in names]}
    assert services_of({name: named(left=any_node, right=any_node) for name in names}, any_node) == []


def test_references_at_the_end_of_too_many_ways_are_refused() -> None:
    types = twice_the_next(named(ear={"reference": "Ear"}, first={"ref": "T0"}))
    with pytest.raises(nearcall.FailedPrecondition, match="refer to each other in too many ways"):
        services_of(types, {"ref": "T0"})
