"""Services in two versions each: a table of what may change in a declaration, and what calls must then come to.

A row makes an old and a new class of the same name. Clients with the one call servers of the other.
"""

from __future__ import annotations

import queue
import textwrap
from enum import Enum
from typing import Any, NamedTuple

import nearcall

__all__ = ["CHANGES", "FIELD_CHANGES", "Calls", "Change", "FieldChange", "make", "new", "old", "plain"]

Call = tuple[tuple[Any, ...], dict[str, Any], Any]
"""Arguments by position, by name, and what comes of it: what the handler got, or a part of the refusal."""
Calls = list[Call] | str
"""Calls; or a part of the sentence with which connecting is refused."""


class Change(NamedTuple):
    """A method's parameters before and after, and what the calls of either client come to at the other's server."""

    name: str
    old: str
    new: str
    old_calls: Calls
    new_calls: Calls


class FieldChange(NamedTuple):
    """A type ``P`` before and after; calls are of ``put(p)`` or ``get(x, y)``, their values as expressions."""

    name: str
    old: str
    new: str
    old_calls: list[tuple[str, str, Any]] | str
    new_calls: list[tuple[str, str, Any]] | str
    plain_calls: list[tuple[str, str, Any]] | None = None
    """What differs for a client without a class that has met the old server first."""


def got(**values: Any) -> dict[str, Any]:
    return values


CHANGES = [
    Change(
        "Same", "a: int, b: int = 2", "a: int, b: int = 2", [((1,), {}, got(a=1, b=2))], [((1, 5), {}, got(a=1, b=5))]
    ),
    Change(
        "Added",
        "a: int, b: int",
        "a: int, b: int, c: int = 30",
        [((1, 2), {}, got(a=1, b=2, c=30)), ((), {"b": 2, "a": 1}, got(a=1, b=2, c=30))],
        [
            ((1, 2), {}, got(a=1, b=2)),
            ((), {"b": 2, "a": 1}, got(a=1, b=2)),
            ((1, 2, 3), {}, "'c: int' was given, but the server's has no such parameter, it is "),
            ((1,), {"b": 2, "c": 3}, "'c: int' was given"),
        ],
    ),
    Change(
        "AddedInFront",
        "a: int, b: int = 2",
        "z: int = 9, a: int = 8, b: int = 7",
        [((1,), {}, got(z=9, a=1, b=7)), ((1, 5), {}, got(z=9, a=1, b=5)), ((1,), {"b": 5}, got(z=9, a=1, b=5))],
        [
            ((), {}, "'a' was not given, but the server's requires a: int"),
            ((), {"a": 1, "b": 5}, got(a=1, b=5)),
            ((4, 1), {}, "'z: int' was given"),
        ],
    ),
    Change(
        "AddedWithoutDefault",
        "a: int",
        "a: int, b: str",
        "no parameter 'b' but the server's requires b: str",
        "(b: str) but the server's has no parameter 'b': it is ",
    ),
    Change(
        "Renamed",
        "a: int, to: int",
        "a: int, target: int",
        "(to: int) but the server's has no parameter 'to': it is ",
        "(target: int) but the server's has no parameter 'target': it is ",
    ),
    Change(
        "RenamedWithDefault",
        "a: int, to: int = 1",
        "a: int, target: int = 2",
        [((1,), {}, got(a=1, target=2)), ((1, 5), {}, "'to: int' was given"), ((1,), {"to": 5}, "'to: int' was given")],
        [((1,), {}, got(a=1, to=1)), ((1, 5), {}, "'target: int' was given")],
    ),
    Change(
        "Reordered",
        "source: str, target: str, cents: int = 5",
        "target: str, source: str, cents: int = 6",
        [
            (("A", "B", 1), {}, got(source="A", target="B", cents=1)),
            (("A",), {"target": "B", "cents": 1}, got(source="A", target="B", cents=1)),
            ((), {"target": "B", "source": "A", "cents": 1}, got(source="A", target="B", cents=1)),
            (("A", "B"), {}, got(source="A", target="B", cents=6)),
        ],
        [
            (("B", "A", 1), {}, got(source="A", target="B", cents=1)),
            (("B", "A"), {}, got(source="A", target="B", cents=5)),
        ],
    ),
    Change(
        "ReorderedBuffers",
        "a: bytes, b: bytes, n: int",
        "n: int, b: bytes, a: bytes",
        [((b"a", b"b", 1), {}, got(a=b"a", b=b"b", n=1)), ((b"a",), {"n": 1, "b": b"b"}, got(a=b"a", b=b"b", n=1))],
        [((1, b"b", b"a"), {}, got(a=b"a", b=b"b", n=1))],
    ),
    Change(
        "Retyped", "a: int", "a: str", "(a: int) but the server's has a: str", "(a: str) but the server's has a: int"
    ),
    Change("ToFloat", "a: int", "a: float", [((1,), {}, got(a=1.0))], "(a: float) but the server's has a: int"),
    Change(
        "Widened",
        "a: int",
        "a: int | str",
        [((1,), {}, got(a=1))],
        [((1,), {}, got(a=1)), (("x",), {}, "argument 'a': expected int, got str")],
    ),
    Change(
        "BytesOrNone",
        "a: bytes",
        "a: bytes | None = None",
        [((b"x",), {}, got(a=b"x"))],
        [((b"x",), {}, got(a=b"x")), ((None,), {}, "argument 'a': expected "), ((), {}, "requires a: bytes")],
    ),
    Change(
        "MoreChoices",
        "a: Literal['x', 'y']",
        "a: Literal['x', 'y', 'z']",
        [(("x",), {}, got(a="x"))],
        [(("x",), {}, got(a="x")), (("z",), {}, "argument 'a': invalid enum value 'z'")],
    ),
    Change(
        "DefaultChanged",
        "a: int, b: int = 2",
        "a: int, b: int = 3",
        [((1,), {}, got(a=1, b=3)), ((1, 2), {}, got(a=1, b=2)), ((), {"a": 1}, got(a=1, b=3))],
        [((1,), {}, got(a=1, b=2)), ((1, 3), {}, got(a=1, b=3))],
    ),
    Change(
        "DefaultDropped",
        "a: int, b: int = 2",
        "a: int, b: int",
        [
            ((1, 2), {}, got(a=1, b=2)),
            ((1,), {"b": 2}, got(a=1, b=2)),
            ((1,), {}, "'b' was not given, but the server's requires b: int, it is "),
        ],
        [((1, 5), {}, got(a=1, b=5))],
    ),
    Change(
        "ByNameOnly",
        "a: int, b: int",
        "*, b: int, a: int",
        [((1, 2), {}, got(a=1, b=2)), ((1,), {"b": 2}, got(a=1, b=2))],
        [((), {"a": 1, "b": 2}, got(a=1, b=2))],
    ),
]

_NO_Y = "has the field 'y: int' at .y, but the "

FIELD_CHANGES = [
    FieldChange(
        "FieldAdded",
        "@dataclass\nclass P:\n    x: int",
        "@dataclass\nclass P:\n    x: int\n    y: int = 7",
        [
            ("put", "P(1)", got(x=1, y=7)),
            ("get", "1, 7", got(x=1)),
            ("get", "1, 5", _NO_Y + "client's P has no such field"),
        ],
        [
            ("put", "P(1)", got(x=1)),
            ("put", "P(1, 7)", got(x=1)),
            ("put", "P(1, 5)", _NO_Y + "server's P has no such field"),
            ("get", "1, 5", got(x=1, y=7)),
        ],
        [
            ("put", "{'x': 1}", got(x=1, y=7)),
            ("put", "{'x': 1, 'z': 7}", "P has no field 'z', which would be lost"),
            ("get", "1, 5", got(x=1, y=5)),
        ],
    ),
    FieldChange(
        "StructFieldAdded",
        "class P(msgspec.Struct, omit_defaults=True):\n    x: int",
        "class P(msgspec.Struct, omit_defaults=True):\n    x: int\n    y: list[int] = []",
        [
            ("put", "P(1)", got(x=1, y=[])),
            ("get", "1, []", got(x=1)),
            ("get", "1, [2]", "has the field 'y: list[int]' at .y"),
        ],
        [("put", "P(1, [])", got(x=1)), ("put", "P(1, [2])", "has the field 'y: list[int]' at .y")],
    ),
    FieldChange(
        "FieldRequired",
        "@dataclass\nclass P:\n    x: int",
        "@dataclass\nclass P:\n    x: int\n    y: int",
        "(p: P) but the server's has p: P (y: no such field here, int, which is required there)",
        "(p: P) but the server's has p: P (y: int here, no such field there)",
    ),
    FieldChange(
        "FieldRenamed",
        "@dataclass\nclass P:\n    x: int\n    y: int = 0",
        "@dataclass\nclass P:\n    x: int\n    z: int = 0",
        [
            ("put", "P(1)", got(x=1, z=0)),
            ("put", "P(1, 5)", _NO_Y),
            ("get", "1, 0", got(x=1, y=0)),
            ("get", "1, 5", "'z: int'"),
        ],
        [("put", "P(1)", got(x=1, y=0)), ("put", "P(1, 5)", "'z: int'"), ("get", "1, 5", _NO_Y)],
        [("put", "{'x': 1, 'y': 5}", "has the field 'y: int' at .y"), ("get", "1, 5", got(x=1, z=5))],
    ),
    FieldChange(
        "FieldsReordered",
        "@dataclass\nclass P:\n    x: int\n    y: int",
        "@dataclass\nclass P:\n    y: int\n    x: int",
        [("put", "P(1, 5)", got(x=1, y=5)), ("get", "1, 5", got(x=1, y=5))],
        [("put", "P(5, 1)", got(x=1, y=5)), ("get", "1, 5", got(x=1, y=5))],
    ),
    FieldChange(
        "PlacesReordered",
        "class P(NamedTuple):\n    x: int\n    y: int",
        "class P(NamedTuple):\n    y: int\n    x: int",
        "(p: P) but the server's has p: P (x: field 0 is x here, field 0 is y there)",
        "(p: P) but the server's has p: P (y: field 0 is y here, field 0 is x there)",
    ),
    FieldChange(
        "FieldRetyped",
        "@dataclass\nclass P:\n    x: int\n    y: int = 0",
        "@dataclass\nclass P:\n    x: int\n    y: str = ''",
        "(p: P) but the server's has p: P (y: int here, str there)",
        "(p: P) but the server's has p: P (y: str here, int there)",
    ),
    FieldChange(
        "FieldDefault",
        "@dataclass\nclass P:\n    x: int\n    y: int = 1",
        "@dataclass\nclass P:\n    x: int\n    y: int = 2",
        [("put", "P(1)", got(x=1, y=1)), ("get", "1, 1", got(x=1, y=1)), ("get", "1, 2", got(x=1, y=2))],
        [("put", "P(1)", got(x=1, y=2)), ("get", "1, 2", got(x=1, y=2))],
    ),
    FieldChange(
        "OmittedDefault",
        "class P(msgspec.Struct, omit_defaults=True):\n    x: int\n    y: int = 1",
        "class P(msgspec.Struct, omit_defaults=True):\n    x: int\n    y: int = 2",
        [("put", "P(1)", got(x=1, y=1)), ("get", "1, 2", got(x=1, y=2)), ("get", "1, 1", got(x=1, y=1))],
        [("put", "P(1)", got(x=1, y=2)), ("get", "1, 1", got(x=1, y=1))],
    ),
    FieldChange(
        "MemberAdded",
        "class P(Enum):\n    A = 'a'\n    B = 'b'",
        "class P(Enum):\n    A = 'a'\n    B = 'b'\n    C = 'c'",
        [("put", "P.A", "a"), ("get", "'a', 0", "a"), ("get", "'c', 0", "must be P: invalid enum value 'c'")],
        [("put", "P.A", "a"), ("put", "P.C", "argument 'p': invalid enum value 'c'"), ("get", "'b', 0", "b")],
        [("put", "'a'", "a"), ("get", "'c', 0", "c")],
    ),
    FieldChange(
        "MembersSwapped",
        "class P(Enum):\n    A = 1\n    B = 2",
        "class P(Enum):\n    A = 2\n    B = 1",
        "(p: P) but the server's has p: P (A = 1 here, A = 2 there)",
        "(p: P) but the server's has p: P (A = 2 here, A = 1 there)",
    ),
    FieldChange(
        "UnionWidened",
        "P = int",
        "P = Union[int, str]",
        [("put", "1", 1), ("get", "1, 0", 1), ("get", "'s', 0", "must be int: expected int, got str")],
        [("put", "1", 1), ("put", "'s'", "argument 'p': expected int, got str"), ("get", "2, 0", 2)],
        [("put", "1", 1), ("get", "'s', 0", "s")],
    ),
    FieldChange(
        "WithinContainers",
        "@dataclass\nclass Q:\n    x: int\nP = dict[str, list[Optional[Q]]]",
        "@dataclass\nclass Q:\n    x: int\n    y: int = 7\nP = dict[str, list[Optional[Q]]]",
        [("put", "{'k': [None, Q(1)]}", {"k": [None, got(x=1, y=7)]})],
        [
            ("put", "{'k': [None, Q(1)]}", {"k": [None, got(x=1)]}),
            (
                "put",
                "{'k': [None, Q(1, 5)]}",
                "has the field 'y: int' at ['k'][1].y, but the server's Q has no such field",
            ),
        ],
        [("put", "{'k': [{'x': 1, 'y': 1, 'z': 1}]}", "Q has no field 'y', which would be lost")],
    ),
]

_PARAMETERS = """
class {name}:
    def call(self, {parameters}) -> dict[str, Any]:
        return given(locals())

    def stream(self, {parameters}) -> Iterator[dict[str, Any]]:
        yield given(locals())

    def collect(self, items: Iterator[int], {parameters}) -> dict[str, Any]:
        return given(locals(), list(items))

    def both(self, items: Iterator[int], {parameters}) -> Iterator[dict[str, Any]]:
        for _ in items:
            yield given(locals())
"""
_FIELDS = """
{type}

def to_p(x, y):
    if isinstance(P, type) and issubclass(P, Enum):
        return P(x)
    if not hasattr(P, "__annotations__"):
        return x
    values = dict(x=x, y=y, z=y)
    return P(**{{name: values[name] for name in P.__annotations__}})

class {name}:
    def put(self, p: P) -> Any:
        return plain(p)

    def get(self, x: Any, y: Any) -> P:
        return to_p(x, y)

    def puts(self, items: Iterator[P]) -> Iterator[Any]:
        for p in items:
            yield plain(p)

    def gets(self, x: Any, y: Any) -> Iterator[P]:
        yield to_p(x, y)
"""
_IMPORTS = """
from __future__ import annotations
import msgspec
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple, Optional, Union
"""


def given(values: dict[str, Any], items: Any = None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("self", "items", "_")}


def plain(value: Any) -> Any:
    """A value as dicts and lists, every field of it read."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    return value if fields is None else {name: plain(getattr(value, name)) for name in fields}


def make(change: Change | FieldChange, version: str) -> dict[str, Any]:
    """The names that a version of the change defines: the service, and its types."""
    source = change.old if version == "old" else change.new
    if isinstance(change, Change):
        code = _PARAMETERS.format(name=change.name, parameters=source)
    else:
        code = _FIELDS.format(name=change.name, type=textwrap.dedent(source))
    names: dict[str, Any] = {"__name__": __name__, "given": given, "plain": plain}
    exec(_IMPORTS + code, names)
    nearcall.service(names[change.name])
    return names


@nearcall.service(name="Methods")
class OldMethods:
    def stays(self) -> str:
        return "old"

    def goes(self) -> str:
        return "old"

    def turns(self) -> int:
        return 1


@nearcall.service(name="Methods")
class NewMethods:
    def comes(self) -> str:
        return "new"

    def streams(self) -> list[int]:
        return []

    def stays(self) -> str:
        return "new"

    def turns(self) -> int:
        return 2


class _Notes:
    """Both versions' one-way calls, as their handlers got them."""

    def __init__(self) -> None:
        self.given: queue.Queue[dict[str, Any]] = queue.Queue()


@nearcall.service(name="Notes")
class OldNotes(_Notes):
    @nearcall.oneway
    def note(self, source: str, target: str) -> None:
        self.given.put(given(locals()))

    def noted(self) -> dict[str, Any]:
        return self.given.get(timeout=20)


@nearcall.service(name="Notes")
class NewNotes(_Notes):
    @nearcall.oneway
    def note(self, target: str, source: str, text: str = "") -> None:
        self.given.put(given(locals()))

    def noted(self) -> dict[str, Any]:
        return self.given.get(timeout=20)


def _all(version: str) -> list[object]:
    return [make(change, version)[change.name]() for change in [*CHANGES, *FIELD_CHANGES]]


def old() -> list[object]:
    """Every service before its change."""
    return [*_all("old"), OldMethods(), OldNotes()]


def new() -> list[object]:
    """Every service after its change."""
    return [NewMethods(), NewNotes(), *reversed(_all("new"))]
