"""Compares two declarations of a value: what one side sends with what the other expects.

A difference affects either every value, so that every call would fail, or only some values. These are refused one by
one, by the receiver's decoder or by :mod:`nearcall.types.fields`. No value may be read as something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeGuard, cast

from .schema import opened_schema, show

__all__ = ["Difference", "Types", "differences"]

Types = Mapping[str, Any]
"""The named types that schemas refer to."""

_MOST: Final = 20
"""Differences of one type that are reported; a peer's description could have any number."""
_MOST_COMPARED: Final = 50_000
"""Pairs of schemas that are compared for one value: a peer may describe many types, and each is tried with each."""
_NO_FIELD: Final = "no such field"

# How values look on the wire, and what a decoder accepts: only that tells two members of a union apart.
_LOOKS: Final[dict[str, set[str]]] = {
    "none": {"nil"},
    "datetime": {"str", "ext"},
    **{text: {"str"} for text in ("date", "time", "timedelta", "uuid", "decimal")},
}
_TAKES: Final[dict[str, set[str]]] = {"float": {"float", "int"}, "decimal": {"str", "int", "float"}}


class Difference(NamedTuple):
    """Where two schemas differ, and how: ``.x``, ``int``, ``str``."""

    path: str
    sent: str
    expected: str
    always: bool
    """Whether it affects every value; otherwise only some."""
    advice: str = ""
    """What to do, if the two schemas do not say it."""


def differences(sent: Any, sent_types: Types, expected: Any, expected_types: Types) -> list[Difference]:
    """Why values of one schema would not be accepted as values of the other.

    Names of types do not matter. ``int`` is accepted as ``float``, and ``any`` fits everything.

    Raises:
        ValueError: there are too many ways to try.
    """
    if sent == expected and sent_types == expected_types:
        return []
    return _Comparison(sent_types, expected_types).compare(sent, expected)


class _Comparison:
    def __init__(self, sent_types: Types, expected_types: Types) -> None:
        self.sent_types = sent_types
        self.expected_types = expected_types
        # A pair under comparison counts as equal, so that types which refer to themselves can be compared.
        self.known: dict[tuple[str, str], list[Difference]] = {}
        self.compared = 0

    def compare(self, sent: Any, expected: Any) -> list[Difference]:
        self.compared += 1
        if self.compared > _MOST_COMPARED:
            raise ValueError("the types refer to each other in too many ways to be compared")
        if sent == "any" or expected == "any" or (sent == "int" and expected == "float"):
            return []
        if _is(sent, "carried") and _is(expected, "carried") and sent["carried"] == expected["carried"]:
            found = self.compare(sent.get("as"), expected.get("as"))
            return found and [Difference("", show(sent), show(expected), _always(found), _alike(sent["carried"]))]
        if _is(sent, "union"):
            return self._from_union(sent, expected)
        if _is(expected, "union"):
            return self._to_union(sent, expected)
        if isinstance(sent, dict) and isinstance(expected, dict) and not _is(sent, "carried"):
            return self._structures(cast("dict[str, Any]", sent), cast("dict[str, Any]", expected))
        if _is(sent, "values") and expected in ("int", "str"):
            fits = all(kind == expected for kind, _ in _members(sent))
            return [] if fits else _differ(sent, expected)
        if _is(expected, "values") and sent in ("int", "str"):
            some = any(kind == sent for kind, _ in _members(expected))
            return _differ(sent, expected, always=not some)
        if sent == expected:
            return []
        sides: list[Any] = [sent, expected]
        named = next((each["carried"] for each in sides if _is(each, "carried")), None)
        return _differ(sent, expected, advice="" if named is None else _alike(named))

    def _from_union(self, sent: Any, expected: Any) -> list[Difference]:
        found = [(member, self.compare(member, expected)) for member in sent["union"]]
        refused = [(member, parts) for member, parts in found if _always(parts)]
        if not refused:
            return [part for _, parts in found for part in parts]
        # Two types that have only None in common are not alike.
        if all(member == "none" or _always(parts) for member, parts in found):
            return self._nearest([parts for member, parts in refused if member != "none"], sent, expected)
        result = [part for _, parts in found if not _always(parts) for part in parts]
        for member, parts in refused:
            # The receiver refuses a value of this member if it looks unlike everything expected, and otherwise misreads
            # it.
            overlaps = _overlap(_looks(member, self.sent_types), _takes(expected, self.expected_types))
            deep = [part for part in parts if part.path]
            result += deep if overlaps and deep else _differ(member, expected, always=overlaps)
        return result

    def _to_union(self, sent: Any, expected: Any) -> list[Difference]:
        options = [self.compare(sent, member) for member in expected["union"]]
        fitting = [parts for parts in options if not _always(parts)]
        return min(fitting, key=len) if fitting else self._nearest(options, sent, expected)

    def _nearest(self, options: list[list[Difference]], sent: Any, expected: Any) -> list[Difference]:
        # A difference deep inside one member tells more than "is none of these".
        deep = [parts for parts in options if any(part.path for part in parts)]
        return deep[0] if len(deep) == 1 else _differ(sent, expected)

    def _structures(self, sent: dict[str, Any], expected: dict[str, Any]) -> list[Difference]:
        kind = next(iter(sent))
        if kind not in expected:
            return _differ(sent, expected)
        left, right = sent[kind], expected[kind]
        if kind == "ref":
            return self._references(left, right)
        if kind in ("list", "set"):
            return _within("[]", self.compare(left, right))
        if kind == "dict":
            return _within(".keys()", self.compare(left[0], right[0])) + _within("[]", self.compare(left[1], right[1]))
        if kind == "tuple":
            if len(left) != len(right):
                return _differ(sent, expected)
            pairs = enumerate(zip(left, right, strict=True))
            return [part for i, (a, b) in pairs for part in _within(f"[{i}]", self.compare(a, b))]
        if kind == "values":
            return _choices(sent, expected)
        # An array: a dtype may be left open on either side.
        return [] if left is None or right is None or left == right else _differ(sent, expected)

    def _references(self, left: str, right: str) -> list[Difference]:
        known = self.known.get((left, right))
        if known is not None:
            return known
        self.known[left, right] = []
        sent, expected = self.sent_types.get(left), self.expected_types.get(right)
        if not sent or not expected:
            return []  # described by a later version in an unknown way: the decoder decides
        if sent["layout"] != expected["layout"] or sent.get("tag") != expected.get("tag"):
            found = [Difference("", f"{left} ({_layout(sent)})", f"{right} ({_layout(expected)})", True)]
        elif sent["layout"] == "array":
            found = self._by_position(sent["fields"], expected["fields"])
        else:
            found = self._by_name(sent, expected)
        self.known[left, right] = found[:_MOST]
        return self.known[left, right]

    def _by_name(self, sent: Any, expected: Any) -> list[Difference]:
        given = {field["name"]: field for field in sent["fields"]}
        found: list[Difference] = []
        for field in expected["fields"]:
            other = given.pop(field["name"], None)
            if other is not None:
                found += _within(f".{field['name']}", self.compare(other["type"], field["type"]))
            elif field["required"]:
                found.append(_missing(field))
        if expected.get("open"):
            return found  # the reader does without what it does not know
        # The other side need not know a field that has its default; any other value of it would be lost there.
        always = bool(expected.get("closed"))
        found += [_surplus(field, always=always or field["required"]) for field in given.values()]
        return found

    def _by_position(self, sent: list[Any], expected: list[Any]) -> list[Difference]:
        found: list[Difference] = []
        for position, field in enumerate(expected):
            if position >= len(sent):
                found += [_missing(field)] if field["required"] else []
                continue
            other = sent[position]
            if other["name"] != field["name"]:  # fields of one type could have changed places
                here, there = (f"field {position} is {each['name']}" for each in (other, field))
                found.append(Difference(f".{other['name']}", here, there, True))
            else:
                found += _within(f".{field['name']}", self.compare(other["type"], field["type"]))
        return found + [_surplus(field, always=True) for field in sent[len(expected) :]]


def _is(schema: Any, kind: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(schema, dict) and kind in cast("dict[str, Any]", schema)


def _always(found: list[Difference]) -> bool:
    return any(part.always for part in found)


def _differ(sent: Any, expected: Any, *, always: bool = True, advice: str = "") -> list[Difference]:
    return [Difference("", show(sent), show(expected), always, advice)]


def _alike(name: str) -> str:
    return f"declare {name} on both sides, and register it alike with nearcall.register_type"


def _within(step: str, found: list[Difference]) -> list[Difference]:
    return [part._replace(path=step + part.path) for part in found[:_MOST]]


def _missing(field: Any) -> Difference:
    return Difference(f".{field['name']}", _NO_FIELD, f"{show(field['type'])}, which is required", True)


def _surplus(field: Any, *, always: bool) -> Difference:
    return Difference(f".{field['name']}", show(field["type"]), _NO_FIELD, always)


def _choices(sent: dict[str, Any], expected: dict[str, Any]) -> list[Difference]:
    left, right = _members(sent), _members(expected)
    for value, name in left.items():
        # If a value has another name now, it was renamed, unless the old name now has another value.
        other = right.get(value)
        if name is not None and other not in (None, name) and name in right.values():
            moved = next(known for known, its in right.items() if its == name)
            return [Difference("", f"{name} = {value[1]!r}", f"{name} = {moved[1]!r}", True)]
    missing = [value for value in left if value not in right]
    if not missing:
        return []
    return _differ({"values": [value for _, value in missing]}, expected, always=len(missing) == len(left))


def _members(schema: dict[str, Any]) -> dict[tuple[str, Any], str | None]:
    """The values of a choice, each with its type, so that equal values of other types differ, and with an enum's
    names.
    """
    values: list[Any] = schema["values"]
    names: Iterable[Any] = schema.get("names") or [None] * len(values)
    return {(type(value).__name__, value): name for value, name in zip(values, names, strict=False)}


def _looks(schema: Any, types: Types) -> set[str]:
    """How values of a schema can look on the wire."""
    if not isinstance(schema, dict):
        return _LOOKS.get(schema, {schema})
    (kind, inner), *_ = cast("dict[str, Any]", schema).items()
    if kind == "union":
        return {look for member in inner for look in _looks(member, types)}
    if kind == "carried":
        return _looks(opened_schema(schema), types)
    if kind == "values":
        return {type(value).__name__ for value in inner}
    if kind == "ref":
        described = types.get(inner, {})
        tag = described.get("tag")
        return {described.get("layout", "map") + (f" {tag!r}" if tag else "")}
    return {{"list": "array", "set": "array", "tuple": "array", "dict": "map", "array": "ext"}.get(kind, kind)}


def _takes(schema: Any, types: Types) -> set[str]:
    """How values may look on the wire for a decoder to accept them."""
    if _is(schema, "union"):
        return {look for member in schema["union"] for look in _takes(member, types)}
    return _TAKES[schema] if isinstance(schema, str) and schema in _TAKES else _looks(schema, types)


def _overlap(looks: set[str], takes: set[str]) -> bool:
    # Tags tell two types apart, but only if both have a tag.
    plain = {look.partition(" ")[0] for look in takes}
    return any(
        look in takes or (" " not in look and look in plain) or look.partition(" ")[0] in takes for look in looks
    )


def _layout(described: Any) -> str:
    tag = described.get("tag")
    return str(described["layout"]) + (f", tagged {tag[0]}={tag[1]!r}" if tag else "")
