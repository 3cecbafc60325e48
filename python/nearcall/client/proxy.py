"""What a client calls: an object with one callable for each method of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .. import _core
from ..service.plan import MethodPlan
from .agreements import Agreement

__all__ = ["MakeMethod", "Proxy", "make_proxy"]

MakeMethod = Callable[[MethodPlan, _core.Method], Callable[..., Any]]
"""Makes the callable for a method."""


class Proxy:
    """A service at the other end of a connection. Its attributes are the service's methods."""

    def __init__(self, name: str, url: str) -> None:
        # Names that no service method can have: they begin with an underscore.
        self._nearcall_name = name
        self._nearcall_url = url

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{name}': names that begin with an underscore are not served")
        import difflib  # only on the way to an error

        known = [method for method in self.__dict__ if not method.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
        raise AttributeError(f"{self._nearcall_name} at {self._nearcall_url} has no method '{name}': {hint}")

    def __repr__(self) -> str:
        return f"<{self._nearcall_name} at {self._nearcall_url}>"


def make_proxy(url: str, agreement: Agreement, make_method: MakeMethod) -> Proxy:
    """A proxy for the service of a class; without one, for all that the server describes.

    The proxy of a server with several services has one attribute for each service, and those methods that only one of
    them has.
    """
    services = [_proxy(url, plan.name, agreement.methods_of(plan), make_method) for plan in agreement.plans]
    if not agreement.is_dynamic:
        return services[0]
    names = [plan.name for plan in agreement.plans]
    together = Proxy(" and ".join(names), url)
    for proxy in services:
        for name, method in proxy.__dict__.items():
            if not name.startswith("_"):
                unique = sum(name in other.__dict__ for other in services) == 1
                if unique:
                    together.__dict__[name] = method
    for name, proxy in zip(names, services, strict=True):
        together.__dict__[name] = proxy
    return together


def _proxy(url: str, name: str, methods: Iterable[tuple[MethodPlan, _core.Method]], make_method: MakeMethod) -> Proxy:
    proxy = Proxy(name, url)
    for plan, method in methods:
        # Not setattr: a dynamic client's names are the server's choice.
        proxy.__dict__[plan.name] = make_method(plan, method)
    return proxy
