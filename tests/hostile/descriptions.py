"""What a server says of itself: properly, far too much, and wrong in every way."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from .services import Target

GOOD = json.dumps(describe([plan_of(Target)]))


@functools.cache
def thirty_thousand_methods() -> str:
    copy = json.loads(GOOD)
    methods = copy["services"][0]["methods"]
    methods += [{**methods[number % 20], "name": f"m{number}"} for number in range(30_000)]
    return json.dumps(copy)


@functools.cache
def as_many_methods_as_may_be() -> str:
    copy = json.loads(GOOD)
    methods = copy["services"][0]["methods"]
    methods += [{**methods[number % 20], "name": f"m{number}"} for number in range(4096 - len(methods))]
    return json.dumps(copy)


@functools.cache
def types_within_types() -> str:
    """In each method, and each field of each of them may be any of them."""
    copy = json.loads(GOOD)
    service = copy["services"][0]
    union = {"union": [{"ref": f"T{number}"} for number in range(40)]}
    fields = [{"name": f"f{number}", "required": True, "type": union} for number in range(20)]
    service["types"] |= {f"T{number}": {"layout": "map", "fields": fields} for number in range(40)}
    for method in service["methods"]:
        for parameter in method["parameters"]:
            parameter["schema"] = union
    return json.dumps(copy)


@functools.cache
def wrong() -> list[str]:
    good = json.loads(GOOD)

    def changed(change: Callable[[dict[str, Any]], object]) -> str:
        copy = json.loads(GOOD)
        change(copy)
        return json.dumps(copy)

    def method(**more: Any) -> str:
        return changed(lambda copy: [one.update(more) for one in copy["services"][0]["methods"]])

    deep: Any = "int"
    for _ in range(400):
        deep = {"list": deep}
    values: list[Any] = [None, 5, "x", [], {}, [None], [{}], {"x": 1}, -1, 1e300, True, "\x1b[2J", "\0"]
    found = ["", "{", "null", "[]", "5", '"x"', "[" * 100_000, '{"a":' * 50_000, "\0", '{"nearcall": 99}', "{}"]
    found += [changed(lambda copy, one=one: copy.update(nearcall=one)) for one in (None, 2, -1, "1", [])]
    found += [changed(lambda copy, one=one: copy.update(services=one)) for one in values]
    found += [changed(lambda copy, one=one: copy.update(introspection=one)) for one in values]
    for key in ("name", "methods", "types", "doc"):
        found += [changed(lambda copy, k=key, one=one: copy["services"][0].update({k: one})) for one in values]
    for key in ("name", "kind", "signature", "parameters", "stream", "returns", "doc", "idempotent"):
        found += [method(**{key: one}) for one in values]
    parameter = good["services"][0]["methods"][3]["parameters"][0]
    for key in parameter:
        found += [method(parameters=[parameter | {key: one}]) for one in values]
    for schema in (*values, deep, {"ref": "Nobody"}, {"ref": 5}, {"array": "S0"}, {"union": []}, {"dict": ["int"]}):
        found.append(method(parameters=[parameter | {"schema": schema}]))
        found.append(method(returns={"type": "x", "form": "coded", "schema": schema}))
    for types in ({"A": {"layout": "map", "fields": [{"name": "x", "required": True, "type": {"ref": "A"}}]}}, *values):
        found.append(changed(lambda copy, t=types: copy["services"][0].update(types=t)))
    found.append(changed(lambda copy: copy["services"].extend(copy["services"] * 3)))
    found.append(changed(lambda copy: copy["services"][0]["methods"].extend(copy["services"][0]["methods"] * 3000)))
    return found
