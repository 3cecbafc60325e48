"""What a client calls: an object with one callable for each method of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from . import _core
from .description import compare, plans_from, read_description
from .errors import FailedPrecondition
from .plan import MethodPlan, ServicePlan
from .service import plan_of
from .shown import shown

__all__ = ["Proxy", "make_proxy", "renumberer"]

MakeMethod = Callable[[_core.Connection, MethodPlan, int], Callable[..., Any]]
"""Makes the callable for a method with a number."""


class Proxy:
    """A service at the other end of a connection. Its attributes are the service's methods."""

    def __init__(self, name: str, url: str) -> None:
        # Names that no service method can have: they begin with an underscore.
        self._nearcall_name = name
        self._nearcall_url = url

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        import difflib  # only on the way to an error

        known = [method for method in self.__dict__ if not method.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
        raise AttributeError(f"{self._nearcall_name} at {self._nearcall_url} has no method '{name}': {hint}")

    def __repr__(self) -> str:
        return f"<{self._nearcall_name} at {self._nearcall_url}>"


def make_proxy(connection: _core.Connection, cls: type | None, make_method: MakeMethod) -> Proxy:
    """A proxy for the service of a class; without one, for all that the server describes.

    The proxy of a server with several services has one attribute for each service, and those methods that only one of
    them has.

    Raises:
        FailedPrecondition: the server's service is not the class's.
        TypeError: the class is no service.
    """
    description = connection.description.encode()
    if cls is not None:
        plan = plan_of(cls)
        numbers = _compare(connection.url, plan, description)
        methods = ((_named(method, numbers[method.name][1]), numbers[method.name][0]) for method in plan.methods)
        return _proxy(connection, plan.name, methods, make_method)
    plans = plans_from(description)
    numbered = iter(range(sum(len(plan.methods) for plan in plans)))
    services = [
        _proxy(connection, plan.name, ((method, next(numbered)) for method in plan.methods), make_method)
        for plan in plans
    ]
    names = [service.name for service in read_description(description).services]
    together = Proxy(" and ".join(names), connection.url)
    for proxy in services:
        for name, method in proxy.__dict__.items():
            if not name.startswith("_"):
                unique = sum(name in other.__dict__ for other in services) == 1
                if unique:
                    setattr(together, name, method)
    for name, proxy in zip(names, services, strict=True):
        setattr(together, name, proxy)
    return together


def renumberer(url: str, cls: type | None) -> Callable[[str], dict[str, int]]:
    """What a connection asks when it was renewed and the server describes itself differently: the new numbers of the
    methods by full name. Raises :class:`~nearcall.FailedPrecondition` if the client no longer fits.
    """

    def renumber(description: str) -> dict[str, int]:
        if cls is None:
            numbered = read_description(description.encode()).numbered()
            return {f"{service.name}.{method.name}": number for number, service, method in numbered}
        plan = plan_of(cls)
        numbers = _compare(url, plan, description.encode())
        return {f"{plan.name}.{name}": number for name, (number, _) in numbers.items()}

    return renumber


def _compare(url: str, plan: ServicePlan, description: bytes) -> dict[str, tuple[int, bool]]:
    try:
        return compare(plan, description)
    except FailedPrecondition as error:
        raise FailedPrecondition(f"{url}: {shown(error.message)}") from None


def _named(method: MethodPlan, always: bool) -> MethodPlan:
    if not always:
        return method
    return msgspec.structs.replace(method, always_named=True)


def _proxy(
    connection: _core.Connection,
    name: str,
    methods: Iterable[tuple[MethodPlan, int]],
    make_method: MakeMethod,
) -> Proxy:
    proxy = Proxy(name, connection.url)
    for plan, number in methods:
        setattr(proxy, plan.name, make_method(connection, plan, number))
    return proxy
