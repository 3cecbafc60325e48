"""Makes the proxies that a client's users call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from .. import _core
from ..call.answering import answering, method_of
from ..call.proxy import Around, Proxy
from ..service.outward import MOST_LISTED
from ..service.plan import MethodPlan
from .agreements import Agreement

__all__ = ["MakeMethod", "make_proxy"]

MakeMethod = Callable[[MethodPlan, _core.Method], Callable[..., object]]
"""Makes the callable for a method."""


def make_proxy(url: str, agreement: Agreement, make_method: MakeMethod, home: Around | None = None) -> Proxy:
    """A proxy for the service of a class; without a class, for all services that the server describes. ``home`` wraps
    the methods, so that they can be awaited in another event loop than their own.

    The proxy of a server with several services has one attribute for each service, and those methods that only one of
    them has. A method of a described service is made when it is first asked for.
    """

    def maker(service: str, name: str) -> Callable[[], object]:
        return lambda: make_method(*agreement.method(service, name))

    services = {
        service: answering(Proxy, names, for_loop=home is not None)(
            service,
            url,
            {name: maker(service, name) for name in names},
            agreement.cls,
            home,
            tell=partial(agreement.text, service),
        )
        for service, names in agreement.names.items()
    }
    if not agreement.is_dynamic:
        (proxy,) = services.values()
        proxy._nearcall_make_all()
        return proxy
    owners = Counter(name for names in agreement.names.values() for name in names)
    together = {
        name: partial(method_of, services[service], name)
        for service, names in agreement.names.items()
        for name in names
        if owners[name] == 1 and name not in services
    }
    kind = answering(Proxy, together, for_loop=home is not None)
    proxy = kind(" and ".join(services), url, together, home=home, tell=lambda: _text(agreement, services))
    proxy.__dict__.update(services)
    return proxy


def _text(agreement: Agreement, services: Iterable[str]) -> str:
    """The text of a proxy for all services of a server."""
    import textwrap  # only for who asks

    names = list(services)
    if len(names) == 1:
        return agreement.text(names[0])
    texts = (f"The service {name}:\n\n{textwrap.indent(agreement.text(name), '    ')}" for name in names[:MOST_LISTED])
    return "\n\n".join(texts)
