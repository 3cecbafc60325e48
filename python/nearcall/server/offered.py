"""What a server offers: the services that it was given and its own ones, in every codec that its URLs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .. import _core
from ..call.interceptors import Chain
from ..codec.table import CodecName
from ..codec.values import ValueCodec
from ..service.describing import described_as_text
from ..service.plan import ServicePlan
from ..service.references import services_passed
from .entries import check_codecs, codecs_for, coded_entries, own_entries
from .fallback import Fallback, fallback_of
from .health import HEALTH
from .instances import Served, look_at
from .methods import MethodTable, Surroundings

__all__ = ["Offered", "introspection_beside", "look_at_all"]


class Offered:
    """What a server offers.

    Args:
        served: The services that it was given.
        introspection: Its own service for ``nearcall top``, if it has that.
        urls: Where it serves.
        surroundings: What is around every handler.
        codecs: Codecs that clients may ask for, besides msgpack.
        fallback: What answers the calls for which there is no method.
        reflection: Whether clients may ask over gRPC which methods there are.

    Raises:
        TypeError: a method has no counterpart in a codec.
        ValueError: an option is for other URLs than these.
        InvalidArgument: an option is malformed.
    """

    def __init__(
        self,
        served: Sequence[Served],
        introspection: Served | None,
        urls: Sequence[str],
        surroundings: Surroundings,
        *,
        codecs: Sequence[CodecName | ValueCodec],
        fallback: Fallback | None,
        reflection: bool,
    ) -> None:
        plans = [each.plan for each in served]
        passed = services_passed(plans)
        self.states = _core.Health(["", *(plan.name for plan in plans)])
        """What health checks are told of each service."""
        self.table = table = MethodTable(surroundings)
        for each in served:
            table.add(each)
        for plan in passed:
            table.add_passed(plan)
        if introspection is not None:
            table.add(introspection, measured=False)
        unknown = [] if fallback is None else [fallback_of(urls, fallback)]
        for codec in check_codecs(urls, codecs):
            table.add_codec(codec.name, coded_entries(served, table.handlers, codec, by_path=False))
        for name, codec in codecs_for(urls).items():
            entries = coded_entries(served, table.handlers, codec)
            if name == "proto":
                besides = _besides(plans, self.states, reflection=reflection)
                entries += own_entries([*besides, *unknown], surroundings.chain)
            table.add_entries(name, entries)
        own = None if introspection is None else introspection.plan
        self.description = described_as_text(plans, own, passed, table.codecs)
        """What clients are told when they connect."""


def look_at_all(items: Iterable[object], fallback: object) -> list[Served]:
    """What there is to serve.

    Raises:
        TypeError: nothing, or two under one name, or something that cannot be served.
    """
    served = [look_at(item) for item in items]
    if not served and fallback is None:
        raise TypeError("there is nothing to serve: give an object whose class is a @nearcall.service")
    names = [each.plan.name for each in served]
    for name in names:
        if names.count(name) > 1:
            raise TypeError(f"two of the objects serve under the name '{name}': name one with service(name=...)")
    return served


def introspection_beside(
    served: Sequence[Served],
    chain: Chain,
    others: Callable[[], Callable[[str, float], Iterable[bytes]] | None],
) -> Served:
    """The server's own service for ``nearcall top``, beside these.

    Args:
        served: The services that the server was given.
        chain: Functions around every call.
        others: Asks the other workers of the same server. A weak reference to the function.

    Raises:
        TypeError: one of them has its name.
    """
    from ..introspection import NAME, introspection_of

    if any(each.plan.name == NAME for each in served):
        raise TypeError(f"{NAME} is the server's own service: name yours otherwise")
    in_loop = all(method.handler_is_async for each in served for method in each.plan.methods)
    return look_at(introspection_of(others, intercepted=bool(chain.interceptors), in_loop=in_loop))


def _besides(plans: Sequence[ServicePlan], states: _core.Health, *, reflection: bool) -> list[Served]:
    """The server's own services at URLs of gRPC, beside these."""
    besides = list[object]()
    if all(plan.name != HEALTH for plan in plans):
        from ..health import health_of

        besides.append(health_of(states))
    if reflection:
        from ..reflection import reflection_of

        in_loop = any(method.handler_is_async for plan in plans for method in plan.methods)
        besides += reflection_of(plans, [HEALTH] * len(besides), in_loop=in_loop)
    return list(map(look_at, besides))
