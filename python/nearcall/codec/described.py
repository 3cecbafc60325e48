"""Senders for clients without a class, made from a server's description of its types.

Such a client passes plain data, whose types need not be those of the server's class: a list will do for a tuple, a text
for a date. So these senders refuse less than those of a class, but they too refuse values in which something would be
lost.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import inspect as shapes

from ..types.guards import is_dict
from ..types.hints import describe_value
from .references import ReferenceSender
from .senders import AnySender, DateTimeSender, DictSender, ItemsSender, MisfitError, Sender, TimeSender
from .sending import sender

__all__ = ["DescribedSenders"]

Types = Mapping[str, Any]


class DescribedSenders:
    """Makes the senders of one service. Each named type is read once, however many methods refer to it.

    Args:
        types: The named types.
        services: The classes of the services whose objects the types refer to.
    """

    def __init__(self, types: Types, services: Mapping[str, type]) -> None:
        self._types = types
        self._services = services
        self._known: dict[str, Sender] = {}

    def sender(self, schema: Any) -> Sender | None:
        """The sender for values of a described type; ``None`` if they need none.

        Raises:
            AttributeError, KeyError, TypeError, ValueError, RecursionError: the description is malformed.
        """
        try:
            return self._read(schema)
        except BaseException:
            self._known.clear()  # some senders in it are incomplete
            raise

    def _read(self, schema: Any) -> Sender | None:
        if not is_dict(schema):
            made: Any = {"any": AnySender, "datetime": DateTimeSender, "time": TimeSender}.get(schema)
            return None if made is None else made()
        (kind, inner), *_ = schema.items()
        if kind == "carried":
            return self._read(schema["as"])
        if kind == "ref":
            return self._reference(inner)
        if kind in ("list", "set"):
            item = self._read(inner)
            return None if item is None else ItemsSender(None, item)
        if kind == "dict":
            found = DictSender(exact=False, key=self._read(inner[0]), item=self._read(inner[1]))
            return found if found.deep else None
        if kind == "tuple":
            return _positions([self._read(part) for part in inner])
        if kind == "union":
            return self._union([(member, self._read(member)) for member in inner])
        if kind == "reference" and inner in self._services:
            return ReferenceSender(self._services[inner])
        return None

    def _reference(self, name: str) -> Sender | None:
        if name in self._known or name not in self._types:
            return self._known.get(name)
        described = self._types[name]
        fields = described["fields"]
        if described["layout"] == "array":
            self._known[name] = found = _Positions()
            found.complete([self._read(field["type"]) for field in fields])
            return found
        self._known[name] = named = _Named(name)
        names = [field["name"] for field in fields]
        tag = described.get("tag")
        named.names = frozenset(names if tag is None else [*names, tag[0]])
        named.tag = None if tag is None else (tag[0], tag[1])
        named.parts = {field["name"]: self._read(field["type"]) or Sender() for field in fields}
        return named

    def _union(self, members: list[tuple[Any, Sender | None]]) -> Sender | None:
        if any(schema == "any" for schema, _ in members):
            return AnySender()
        return _Choice([(schema, found) for schema, found in members if found is not None])


def _positions(parts: list[Sender | None]) -> Sender | None:
    if not any(parts):
        return None
    found = _Positions()
    found.complete(parts)
    return found


class _Positions(Sender):
    """A tuple, or a type whose fields are sent by position."""

    deep = True

    def __init__(self) -> None:
        self.parts: list[Sender] = []

    def complete(self, parts: list[Sender | None]) -> None:
        self.parts = [part or Sender() for part in parts]

    def look(self, value: Any) -> bool:
        if not isinstance(value, (list, tuple)):
            return _look_at_object(value)
        found, items = False, cast("list[Any]", value)
        for index, (part, item) in enumerate(zip(self.parts, items, strict=False)):
            try:
                if part.check(item):
                    found = True
            except MisfitError as problem:
                problem.within(f"[{index}]")
                raise
        return found

    def rewrite(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return _rewrite_object(value)
        items = cast("list[Any]", value)
        known = [part.rewrite(item) for part, item in zip(self.parts, items, strict=False)]
        return (*known, *items[len(known) :])


class _Named(Sender):
    """A type whose fields are sent by name."""

    deep = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: frozenset[str] = frozenset()
        self.parts: dict[str, Sender] = {}
        self.tag: tuple[str, Any] | None = None

    def look(self, value: Any) -> bool:
        if not is_dict(value):
            return _look_at_object(value)
        if not self.names.issuperset(value):
            key = next(key for key in value if key not in self.names)
            raise MisfitError(f"{self.name} has no field {key!r}, which would be lost: leave it out")
        found = False
        for name, item in value.items():
            try:
                if name in self.parts and self.parts[name].check(item):
                    found = True
            except MisfitError as problem:
                problem.within(f".{name}")
                raise
        return found

    def rewrite(self, value: Any) -> Any:
        if not is_dict(value):
            return _rewrite_object(value)
        trusted = Sender()
        return {name: self.parts.get(name, trusted).rewrite(item) for name, item in value.items()}


class _Choice(Sender):
    """One of several types."""

    def __init__(self, members: list[tuple[Any, Sender]]) -> None:
        self.members = members
        self.deep = bool(members)

    def look(self, value: Any) -> bool:
        return self.member(value).check(value)

    def rewrite(self, value: Any) -> Any:
        return self.member(value).rewrite(value)

    def member(self, value: Any) -> Sender:
        return next((found for schema, found in self.members if _may_be(value, schema, found)), _TRUSTED)


_TRUSTED = Sender()


def _may_be(value: Any, schema: Any, found: Sender) -> bool:
    if isinstance(found, ReferenceSender):
        return value is not None
    if schema == "datetime":
        return isinstance(value, datetime.datetime)
    if schema == "time":
        return isinstance(value, datetime.time)
    if is_dict(value):
        if isinstance(found, _Named):
            return found.tag is None or value.get(found.tag[0]) == found.tag[1]
        return isinstance(found, DictSender)
    if isinstance(value, (list, tuple, set, frozenset)):
        return isinstance(found, (ItemsSender, _Positions))
    return isinstance(found, (_Named, _Positions)) and _is_object(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _look_at_object(value: Any) -> bool:
    if not _is_object(value):
        return False
    found = _object_sender(cast(Any, type(value)))
    return found is not None and found.look(value)


def _rewrite_object(value: Any) -> Any:
    found = _object_sender(cast(Any, type(value))) if _is_object(value) else None
    return value if found is None else found.rewrite(value)


@functools.lru_cache(maxsize=256)
def _object_sender(cls: type) -> Sender | None:
    try:
        return sender(shapes.type_info(cls), cls)
    except Exception as problem:  # of any class: evaluating annotations runs the user's code
        raise TypeError(f"{describe_value(cls)} cannot be sent: {problem}") from None
