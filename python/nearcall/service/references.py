"""Which services travel as references with calls of a service, and who calls whom then.

An object that is passed to a server is called by it; one that comes back is called by the client; and so on with what
is passed in calls of those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ..types.declared import name_of
from .plan import ServicePlan
from .service import plan_of

__all__ = ["Passed", "passed_with", "services_passed"]


class Passed(NamedTuple):
    """The service classes whose objects travel between a client and its server, each in the order found."""

    called: tuple[type, ...]
    """Those whose objects the client gets."""
    implemented: tuple[type, ...]
    """Those whose objects it gives."""


def passed_with(plan: ServicePlan) -> Passed:
    """What is passed by a client of a service.

    Raises:
        TypeError: one of the classes cannot be served; says why.
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
        TypeError: one of the classes cannot be served, or two of them have one name.
    """
    found: dict[str, type] = {}
    for plan in plans:
        for cls in dict.fromkeys([*passed_with(plan).called, *passed_with(plan).implemented]):
            name = name_of(cls)
            known = found.setdefault(name, cls)
            if issubclass(known, cls):
                found[name] = cls  # the interface of the other one: what is promised of the objects of both
            elif not issubclass(cls, known):
                raise TypeError(
                    f"two services whose objects are passed are called '{name}', {known.__qualname__} and "
                    f"{cls.__qualname__}: name one with service(name=...)"
                )
    return [plan_of(cls) for cls in found.values()]
