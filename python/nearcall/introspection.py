"""The service that every server has besides those of its user: what is it doing, and how long does that take?

Its description does not list it among the user's services; a client that knows :class:`Introspection` can connect with
it. ``nearcall top`` does. Interceptors are around it as around any other service, so a token is demanded here, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from .call.context import context
from .service.plan import ServicePlan
from .service.service import service
from .status import StatusCode

__all__ = ["Introspection", "MethodStatistics", "Statistics", "introspection_of"]

NAME = "nearcall.Introspection"


class MethodStatistics(msgspec.Struct, frozen=True):
    """What was counted of one method since measuring began."""

    method: str
    """``"Calculator.add"``."""
    kind: str
    """``"unary"``, ``"server_stream"``, ``"client_stream"``, ``"bidi_stream"`` or ``"oneway"``."""
    started: int
    """Calls that have arrived."""
    ended: dict[str, int]
    """Calls that have ended, by the name of their status code; ``{"OK": 7}``."""
    items_in: int
    """Items of streams that have arrived."""
    items_out: int
    """Items of streams that were sent."""
    bytes_in: int
    """Bytes of arguments and items that have arrived, as they travel."""
    bytes_out: int
    """Bytes of results and items that were sent, as they travel."""
    latency_sum: int
    """Nanoseconds that all calls together took, from when one was received until its end was sent."""
    latency: list[tuple[int, int]]
    """How long the calls took that have ended: pairs of nanoseconds and a count, ascending. So many calls took at most
    that time, and at least 32/33 of it."""

    @property
    def calls(self) -> int:
        """Calls that have ended."""
        return sum(self.ended.values())

    @property
    def in_flight(self) -> int:
        """Calls that have arrived and not ended."""
        return self.started - self.calls


class Statistics(msgspec.Struct, frozen=True):
    """What a server tells about itself."""

    pid: int
    """The process that answers."""
    version: str
    """Its nearcall's version."""
    measurement: float
    """Which measurement this is: the time on the server's clock when it began. Another one begins from zero."""
    seconds: float
    """For how long it has measured."""
    watchers: int
    """Connections that watch."""
    connections: int
    """Connections open, those of watchers included."""
    workers: int
    """Threads that receive calls and run handlers."""
    idle_workers: int
    """Those of them that stand by."""
    queued: int
    """Calls that wait because ``max_concurrency`` handlers run."""
    in_flight: int
    """Calls under way, those that were before measuring began included."""
    methods: list[MethodStatistics]
    """The methods in order, those without a call included."""
    memory: int = 0
    """Bytes kept of what clients have sent, and of what waits for them to read."""
    max_memory: int = 0
    """How many there may be: the server's option ``max_memory``."""


@service(name=NAME)
class Introspection:
    """What a server is doing. Its class is for both sides: connect with it to any server."""

    def read(self) -> Statistics:
        """What was counted so far. The server counts from the first look of a client on, as long as one watches.

        A client watches until its connection ends, or it calls :meth:`stop`.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """The caller watches no longer. Harmless when repeated."""
        raise NotImplementedError


class _Here(Introspection):
    """For the thread that has received the call: the server may be so busy that no other would come to it."""

    def __init__(self, plans: Sequence[ServicePlan], version: str) -> None:
        self._methods = [(method.full_name, method.kind) for plan in plans for method in plan.methods]
        self._version = version

    def read(self) -> Statistics:
        return self._read()

    def stop(self) -> None:
        context()._call.stop_watching()

    def _read(self) -> Statistics:
        raw = context()._call.watch()
        methods = [_method(*names, counts) for names, counts in zip(self._methods, raw.pop("methods"), strict=True)]
        # This very call is under way, too, but is not what somebody wants to know.
        in_flight = max(raw.pop("in_flight") - 1, 0)
        return Statistics(
            pid=os.getpid(),
            version=self._version,
            measurement=raw.pop("since"),
            in_flight=in_flight,
            methods=methods,
            **raw,
        )


class _InLoop(_Here):
    """For a server whose interceptors await what they go on with."""

    async def read(self) -> Statistics:  # type: ignore[override]
        return self._read()

    async def stop(self) -> None:  # type: ignore[override]
        context()._call.stop_watching()


def _method(name: str, kind: str, counts: dict[str, Any]) -> MethodStatistics:
    ended = {StatusCode(code).name: count for code, count in counts.pop("ended")}
    return MethodStatistics(method=name, kind=kind, ended=ended, **counts)


def introspection_of(plans: Sequence[ServicePlan], version: str, *, in_loop: bool) -> Introspection:
    """What a server of these services serves besides them."""
    return _InLoop(plans, version) if in_loop else _Here(plans, version)
