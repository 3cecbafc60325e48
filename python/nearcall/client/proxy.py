"""Makes what a client calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .. import _core
from ..call.proxy import Proxy
from ..service.plan import MethodPlan
from .agreements import Agreement

__all__ = ["MakeMethod", "make_proxy"]

MakeMethod = Callable[[MethodPlan, _core.Method], Callable[..., object]]
"""Makes the callable for a method."""


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
