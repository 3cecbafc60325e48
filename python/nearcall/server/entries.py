"""The methods of a server in further codecs than msgpack, for the URLs that need them.

An entry of a server's methods is a method in one codec. Those in msgpack come first, because their places are the
numbers that nearcall's own transports call them by; the others are found by their paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._core import HealthMethod
from ..call.interceptors import ServerInterceptor, intercept_handler
from ..codec.protocol import Codec
from ..service.plan import MethodPlan
from .instances import Served, handler_of

__all__ = ["Entry", "coded_entries", "own_entries"]


class Entry(NamedTuple):
    """A method in another codec."""

    path: str
    """``/package.Service/Method``"""
    plan: MethodPlan
    handler: Any
    """That of the same method in msgpack."""
    kind: str
    """The method's own kind: one that goes one way answers in other codecs, and counts as the same method."""
    errors: tuple[type[Exception], ...]
    """The service's own exceptions."""
    measured: bool = True
    """Whether it is among what is measured; the server's own is not."""

    @property
    def streams_in(self) -> bool:
        """Whether the client sends a stream of messages."""
        return self.plan.request_item is not None


def coded_entries(served: Sequence[Served], handlers: Sequence[tuple[MethodPlan, Any]], codec: Codec) -> list[Entry]:
    """The entries of everything that is served, in a codec, in the order of its methods.

    Args:
        served: The services.
        handlers: The plans of their methods in msgpack, each with its handler; others may follow.
        codec: Makes the plans.

    Raises:
        TypeError: a method has no counterpart in the codec; one line that names it and the parameter.
    """
    from ..service.coded import coded_plans  # only where it is needed

    found: list[Entry] = []
    rest = iter(handlers)
    for each in served:
        for plan in coded_plans(each.plan, codec):
            own, handler = next(rest)
            found.append(Entry(plan.path or "", plan, handler, own.kind, each.plan.errors))
    return found


def own_entries(own: Sequence[Served], chain: tuple[ServerInterceptor, ...]) -> list[Entry]:
    """The same, in Protobuf, for the services that a server answers by itself at its gRPC URLs.

    Args:
        own: The services. What is answered in the core has no interceptors around it.
        chain: The server's interceptors.
    """
    from ..codec.protobuf.service import Protobuf  # only where it is needed

    def handler(each: Served, method: MethodPlan) -> Any:
        found: Any = handler_of(each, method.name)
        return found if isinstance(found, HealthMethod) else intercept_handler(chain, method, found)

    handlers = [(method, handler(each, method)) for each in own for method in each.plan.methods]
    return [entry._replace(measured=False) for entry in coded_entries(own, handlers, Protobuf())]
