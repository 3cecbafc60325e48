"""Makes what a client calls."""

from __future__ import annotations

from collections.abc import Callable

from .. import _core
from ..call.proxy import Around, Proxy
from ..service.plan import MethodPlan, ServicePlan
from .agreements import Agreement

__all__ = ["MakeMethod", "make_proxy"]

MakeMethod = Callable[[MethodPlan, _core.Method], Callable[..., object]]
"""Makes the callable for a method."""


def make_proxy(url: str, agreement: Agreement, make_method: MakeMethod, home: Around | None = None) -> Proxy:
    """A proxy for the service of a class; without one, for all that the server describes. ``home`` is what is around
    methods that are awaited in another event loop than their own.

    The proxy of a server with several services has one attribute for each service, and those methods that only one of
    them has.
    """
    services = [_proxy(url, plan, agreement, make_method, home) for plan in agreement.plans]
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


def _proxy(url: str, plan: ServicePlan, agreement: Agreement, make_method: MakeMethod, home: Around | None) -> Proxy:
    proxy = Proxy(plan.name, url, agreement.cls, home)
    for method_plan, method in agreement.methods_of(plan):
        # Not setattr: a dynamic client's names are the server's choice.
        proxy.__dict__[method_plan.name] = make_method(method_plan, method)
    return proxy
