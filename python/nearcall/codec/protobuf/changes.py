"""Finds what a new version of a service breaks for peers that were compiled from the old version's ``.proto``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .messages import Field, Message
from .service import Rpc, ServiceMessages

__all__ = ["Change", "changes"]

_ALIKE = (
    {"int32", "uint32", "int64", "uint64", "bool"},
    {"sint32", "sint64"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
)
"""Groups of types that can be read as each other. A receiver refuses or truncates a number that does not fit."""


class Change(NamedTuple):
    """Something that peers of the old version do not expect."""

    method: str
    text: str


def changes(old: ServiceMessages, new: ServiceMessages) -> list[Change]:
    """What breaks, method by method."""
    if old.full_name != new.full_name:
        return [Change("", f"the service was called {old.full_name} and is called {new.full_name}")]
    found: list[Change] = []
    later = {rpc.name: rpc for rpc in new.rpcs}
    for rpc in old.rpcs:
        name = rpc.method.name
        if rpc.name not in later:
            found.append(Change(name, f"/{old.full_name}/{rpc.name} is gone"))
            continue
        found += [Change(name, text) for text in dict.fromkeys(_method(old, rpc, new, later[rpc.name]))]
    return found


def _method(old: ServiceMessages, rpc: Rpc, new: ServiceMessages, later: Rpc) -> Iterator[str]:
    if (rpc.streams_in, rpc.method.streams_out) != (later.streams_in, later.method.streams_out):
        yield f"{rpc.method.name}(): streams are not where they were"
        return
    compare = _Comparison(old, new)
    yield from compare.messages(f"{rpc.method.name}(): the request", rpc.declared, later.declared)
    yield from compare.messages(f"{rpc.method.name}(): the response", rpc.response, later.response)


class _Comparison:
    def __init__(self, old: ServiceMessages, new: ServiceMessages) -> None:
        self.old = old.builder
        self.new = new.builder
        self.seen: set[tuple[int, int]] = set()

    def messages(self, where: str, old: int, new: int) -> Iterator[str]:
        if (old, new) in self.seen:
            return
        self.seen.add((old, new))
        was, now = self.old.messages[old], self.new.messages[new]
        by_number = {field.number: field for field in now.fields}
        by_name = {field.proto_name: field for field in now.fields}
        for field in was.fields:
            same = by_name.get(field.proto_name)
            if same is not None and same.number != field.number:
                yield (
                    f"{where}: '{field.proto_name}' had the number {field.number} and has {same.number}: pin it with "
                    f"nearcall.field({field.number})"
                )
            elif (other := by_number.get(field.number)) is not None:
                yield from self._fields(where, was, field, other)
            elif field.shape == "presence" or field.absent[0] == "zero":
                yield f"{where}: '{field.proto_name}' is gone, and what old peers send in it is lost"
        # Of a oneof one field is there, whichever that is.
        for field in () if now.form == "oneof" else now.fields:
            if field.absent[0] == "required" and field.number not in {each.number for each in was.fields}:
                yield f"{where}: '{field.proto_name}' is new and must be there: give it a default"

    def _fields(self, where: str, message: Message, was: Field, now: Field) -> Iterator[str]:
        name = was.proto_name
        if now.proto_name != name:
            yield f"{where}: the number {was.number} was that of '{name}' and is that of '{now.proto_name}'"
            return
        if (was.key is None) != (now.key is None) or _repeats(was) != _repeats(now):
            yield f"{where}: '{name}' was '{was.declared}' and is '{now.declared}'"
            return
        for before, after in ((was.key, now.key), (was.element, now.element)):
            if before is None or after is None:
                continue
            inner = f"{where}: '{name}'"
            if isinstance(before.kind, int) and isinstance(after.kind, int):
                yield from self.messages(f"{inner}, a {before.proto}", before.kind, after.kind)
            elif isinstance(before.kind, dict) and isinstance(after.kind, dict):
                yield from self._enums(inner, before.kind, after.kind)
            elif before.kind != after.kind and not _alike(before.proto, after.proto):
                yield f"{inner} was {before.proto} and is {after.proto}"

    @staticmethod
    def _enums(where: str, was: dict[int, object], now: dict[int, object]) -> Iterator[str]:
        for number, member in was.items():
            name = getattr(member, "name", "?")
            if number not in now:
                yield f"{where}: {name}, number {number}, is gone"
            elif getattr(now[number], "name", "?") != name:
                later = getattr(now[number], "name", "?")
                yield f"{where}: the number {number} was that of {name} and is that of {later}"


def _repeats(field: Field) -> bool:
    return field.shape in ("list", "tuple", "set", "frozenset")


def _alike(one: str, other: str) -> bool:
    return any({one, other} <= each for each in _ALIKE)
