"""Which services' objects travel as references with calls of a service, and which side calls them then.

A server calls an object that is passed to it; a client calls an object that comes back; and so on for objects that are
passed in calls of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..types.declared import name_of, root_of
from ..types.guards import is_dict, is_list
from .description import Description
from .plan import ServicePlan
from .service import plan_of, plan_of_all

__all__ = ["Passed", "PassedNames", "passed_in", "passed_with", "services_passed"]


class Passed(NamedTuple):
    """The service classes whose objects travel between a client and its server, each in the order found."""

    called: tuple[type, ...]
    """The classes whose objects the client gets."""
    implemented: tuple[type, ...]
    """The classes whose objects the client gives."""


def passed_with(plan: ServicePlan) -> Passed:
    """What a client of a service and its server pass to each other.

    Raises:
        TypeError: one of the classes cannot be served; the message says why.
    """
    called: dict[type, None] = {}
    implemented: dict[type, None] = {}
    waiting = deque([(plan, True)])
    while waiting:
        found, by_client = waiting.popleft()
        for method in found.methods:
            gets, gives = (method.gives, method.takes) if by_client else (method.takes, method.gives)
            for cls in gets:
                if cls not in called:
                    called[cls] = None
                    waiting.append((plan_of(cls), True))
            for cls in gives:
                if cls not in implemented:
                    implemented[cls] = None
                    waiting.append((plan_of(cls), False))
    return Passed(tuple(called), tuple(implemented))


def services_passed(plans: Iterable[ServicePlan]) -> list[ServicePlan]:
    """The services whose objects travel with calls of these services in either direction, in the order found.

    Raises:
        TypeError: one of the classes cannot be served, two services have one name, or two classes of a service add a
            method of one name.
    """
    found: dict[str, list[type]] = {}
    for plan in plans:
        passed = passed_with(plan)
        for cls in dict.fromkeys([*passed.called, *passed.implemented]):
            classes = found.setdefault(name_of(cls), [])
            if classes and root_of(classes[0]) is not root_of(cls):
                raise TypeError(
                    f"two services whose objects are passed are called '{name_of(cls)}', {classes[0].__qualname__} and "
                    f"{cls.__qualname__}: name one with service(name=...)"
                )
            if cls not in classes:
                classes.append(cls)
    return [plan_of_all(classes) for classes in found.values()]


class PassedNames(NamedTuple):
    """The same as :class:`Passed` for services of which only a description is known: by their names."""

    called: tuple[str, ...]
    implemented: tuple[str, ...]


def passed_in(description: Description, names: Iterable[str]) -> PassedNames:
    """What clients of the services of these names and their server pass to each other, as the server describes it."""
    passed = {service.name: service for service in description.passed}
    called: dict[str, None] = {}
    implemented: dict[str, None] = {}
    served = {service.name: service for service in description.services}
    waiting = deque([(served[name], True) for name in names])
    while waiting:
        service, by_client = waiting.popleft()
        # A type is searched for references when it is first met.
        seen: dict[bool, set[str]] = {True: set(), False: set()}
        for method in service.methods:
            takes = [parameter.schema for parameter in method.parameters]
            if method.stream is not None:
                takes.append(method.stream.schema)
            for schemas, here in ((takes, not by_client), ([method.returns.schema], by_client)):
                found = called if here else implemented
                for name in _mentioned(schemas, service.types, seen[here]):
                    if name in passed and name not in found:
                        found[name] = None
                        waiting.append((passed[name], here))
    return PassedNames(tuple(called), tuple(implemented))


def _mentioned(schemas: list[Any], types: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """The services to which schemas refer, also those in the fields of the types that they name, but for ``seen``."""
    waiting = deque(schemas)
    while waiting:
        schema = waiting.popleft()
        if is_list(schema):
            waiting += schema
        elif is_dict(schema):
            for kind, inner in schema.items():
                if kind == "reference" and isinstance(inner, str):
                    yield inner
                elif kind == "ref" and isinstance(inner, str):
                    if inner not in seen:
                        seen.add(inner)
                        waiting.append(types.get(inner))
                else:
                    waiting.append(inner)
