"""The format in which a server describes itself.

A description is plain data that travels as JSON. A client that has a class compares it with the description when it
connects (:mod:`nearcall.service.agreement`); a client without a class makes its plans from it
(:mod:`nearcall.service.dynamic`).

Methods are numbered in order of appearance over all services of a description: the services that are served, those
whose objects travel as references, and the server's own. The number stands for the method on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

__all__ = [
    "VERSION",
    "Description",
    "MethodInfo",
    "Numbered",
    "ParameterInfo",
    "ServiceInfo",
    "StreamInfo",
    "ValueInfo",
]

VERSION = 1
"""The version of the format. Raised when an older reader would misread a description; new fields do not raise it."""


class ValueInfo(msgspec.Struct, frozen=True):
    """A result or a stream."""

    type: str
    form: str
    schema: Any = "any"


class ParameterInfo(msgspec.Struct, frozen=True):
    """A parameter; ``form`` is the form of its value, or of its items if it is the stream."""

    name: str
    type: str
    form: str
    required: bool
    by_position: bool = True
    by_name: bool = True
    schema: Any = "any"
    default: Any = msgspec.UNSET
    """What stands for an argument that is left out, if that is a number, a text, a truth value or ``None``; of a member
    of an enum its value. Left out where it is anything else, or the argument is required.
    """


class StreamInfo(msgspec.Struct, frozen=True):
    """The streaming parameter."""

    name: str
    position: int
    type: str
    form: str
    by_position: bool = True
    by_name: bool = True
    schema: Any = "any"


class MethodInfo(msgspec.Struct, frozen=True):
    """A method."""

    name: str
    kind: str
    parameters: list[ParameterInfo]
    returns: ValueInfo
    stream: StreamInfo | None = None
    signature: str = ""
    doc: str | None = None
    idempotent: bool = False


class ServiceInfo(msgspec.Struct, frozen=True, dict=True):
    """A service."""

    name: str
    methods: list[MethodInfo]
    doc: str | None = None
    types: dict[str, Any] = {}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each method stands in :attr:`methods`, by its name."""
        return {method.name: place for place, method in enumerate(self.methods)}


class Numbered(msgspec.Struct, frozen=True):
    """A service, with the numbers of its methods."""

    first: int
    """The number of its first method; the others follow."""
    service: ServiceInfo

    def find(self, method: str) -> tuple[int, MethodInfo] | None:
        """A method and its number, if the service has one of that name."""
        place = self.service.places.get(method)
        return None if place is None else (self.first + place, self.service.methods[place])


class Description(msgspec.Struct, frozen=True, dict=True):
    """Everything that a server serves."""

    nearcall: int
    services: list[ServiceInfo]
    introspection: ServiceInfo | msgspec.UnsetType = msgspec.UNSET
    """The server's own service, numbered after all others; left out if it is switched off."""
    references: list[ServiceInfo] | msgspec.UnsetType = msgspec.UNSET
    """The services whose objects travel as references, in either direction, numbered after those that are served; left
    out if there are none. A service that is served as well is numbered here once more.
    """

    @property
    def passed(self) -> list[ServiceInfo]:
        """The services whose objects travel as references."""
        return [] if self.references is msgspec.UNSET else self.references

    def numbered(self, *, introspection: bool = False) -> Iterator[tuple[int, ServiceInfo, MethodInfo]]:
        """All methods that are served with their numbers, those of the server's own service only if asked for."""
        yield from _numbered(0, self.services)
        if introspection and self.introspection is not msgspec.UNSET:
            yield from _numbered(_count(self.services) + _count(self.passed), [self.introspection])

    def numbered_references(self) -> Iterator[tuple[int, ServiceInfo, MethodInfo]]:
        """All methods of objects that are passed, with their numbers."""
        yield from _numbered(_count(self.services), self.passed)

    @cached_property
    def served(self) -> Mapping[str, Numbered]:
        """The services that can be called, by name, the server's own among them."""
        own = [] if self.introspection is msgspec.UNSET else [self.introspection]
        first = _count(self.services) + _count(self.passed)
        # If a user serves a service of the same name, it hides the server's own.
        return {**_by_name(first, own), **_by_name(0, self.services)}

    @cached_property
    def served_references(self) -> Mapping[str, Numbered]:
        """The services whose objects are passed, by name."""
        return _by_name(_count(self.services), self.passed)


def _count(services: list[ServiceInfo]) -> int:
    return sum(len(service.methods) for service in services)


def _by_name(first: int, services: list[ServiceInfo]) -> dict[str, Numbered]:
    found: dict[str, Numbered] = {}
    for service in services:
        found[service.name] = Numbered(first, service)
        first += len(service.methods)
    return found


def _numbered(first: int, services: list[ServiceInfo]) -> Iterator[tuple[int, ServiceInfo, MethodInfo]]:
    entries = ((service, method) for service in services for method in service.methods)
    for number, (service, method) in enumerate(entries, first):
        yield number, service, method
