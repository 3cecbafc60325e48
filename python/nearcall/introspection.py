"""The service that every server has besides those of its user: it tells what the server is doing, and how long calls
take.

Its description does not list it among the user's services; a client that knows :class:`Introspection` can connect with
it. ``nearcall top`` does. The core answers by itself, without a thread or the interpreter. Only if the server has
interceptors, which run in Python, they are around this service as around any other: it demands a token, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

import msgspec

from ._core import IntrospectionMethod
from .call.context import context
from .codec.decoders import make_decoder
from .errors import InvalidArgument
from .service.service import service

__all__ = ["ConnectionStatistics", "Introspection", "MethodStatistics", "Statistics", "introspection_of"]

NAME = "nearcall.Introspection"
_LONGEST_LEASE = 86_400
"""Seconds."""
_MOST_CONNECTIONS = 1_000
"""Connections that one call tells of."""


class MethodStatistics(msgspec.Struct, frozen=True):
    """What was counted of one method since measuring began. Fields are only ever added: a client leaves out those of a
    newer server that it does not know.
    """

    __nearcall_open__: ClassVar[bool] = True

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
    """Bytes of arguments and items that have arrived, encoded."""
    bytes_out: int
    """Bytes of results and items that were sent, encoded."""
    latency_sum: int
    """Nanoseconds that all calls together took, each from its arrival until its end was sent."""
    latency: list[tuple[int, int]]
    """How long the ended calls took: pairs of nanoseconds and a count, ascending. That many calls took at most this
    time, and at least 32/33 of it.
    """

    @property
    def calls(self) -> int:
        """Calls that have ended."""
        return sum(self.ended.values())

    @property
    def in_flight(self) -> int:
        """Calls that have arrived and not ended."""
        return self.started - self.calls


class Statistics(msgspec.Struct, frozen=True):
    """What a server tells about itself. Fields are only ever added, each with a default for servers that do not tell
    it.
    """

    __nearcall_open__: ClassVar[bool] = True

    pid: int
    """The process that answers."""
    version: str
    """Its nearcall's version."""
    measurement: float
    """Identifies the measurement: the time on the server's clock when it began. Each measurement begins from zero."""
    seconds: float
    """Seconds since measuring began."""
    watchers: int
    """Connections whose clients watch."""
    connections: int
    """Connections open, those of watchers included."""
    threads: int
    """Threads that receive calls and run handlers."""
    idle_threads: int
    """Threads among these that are idle."""
    queued: int
    """Calls that wait because ``max_concurrency`` handlers run."""
    in_flight: int
    """Calls under way, those that were before measuring began included."""
    methods: list[MethodStatistics]
    """The methods in order, those without a call included."""
    memory: int = 0
    """Bytes kept for clients: of messages that they have sent, and of messages that wait for them to read."""
    max_memory: int = 0
    """The most that may be kept: the server's option ``max_memory``."""
    loop_held_up: float = 0.0
    """Seconds for which the event loop of coroutine handlers has not turned, if something holds it up; 0 otherwise."""

    worker: int | None = None
    """Which of the workers of :func:`nearcall.serve` this is, from 0; ``None`` without workers."""
    workers: int = 1
    """How many processes serve together."""


class ConnectionStatistics(msgspec.Struct, frozen=True):
    """What is known of one connection of a server. Fields are only ever added, each with a default for servers that do
    not tell it.
    """

    __nearcall_open__: ClassVar[bool] = True

    number: int
    """Numbers grow with the time at which connections came; no two of them are the same, of workers neither."""
    url: str
    """The URL that the client has connected to."""
    peer: dict[str, Any]
    """Who the client is, as :attr:`nearcall.context().peer <nearcall.Context.peer>` says it."""
    age: float
    """Seconds since it was connected."""
    started: int
    """Calls that have arrived."""
    ended: int
    """Calls that are over."""
    queued: int
    """Bytes that wait for the client to read them."""
    memory: int
    """Bytes kept because of the client, those that wait included; of what counts towards ``max_memory``."""
    watches: bool
    """Whether the client watches the server."""
    pid: int
    """The process that serves it."""
    worker: int | None = None
    """Which of the workers of :func:`nearcall.serve` that is, from 0; ``None`` without workers."""

    @property
    def transport(self) -> str:
        """How it is connected: ``"shm"``, ``"unix"``, ``"tls"``, ``"grpc"``, ... , as the URL begins."""
        return self.url.partition(":")[0]

    @property
    def in_flight(self) -> int:
        """Calls that have arrived and are not over."""
        return self.started - self.ended


_decode: Callable[[bytes], Statistics] = make_decoder(Statistics).decode
_decode_connections: Callable[[bytes], list[ConnectionStatistics]] = make_decoder(list[ConnectionStatistics]).decode


@service(name=NAME)
class Introspection:
    """What a server is doing. Its class is for both sides: connect with it to any server."""

    def read(self) -> Statistics:
        """What was counted so far. The server counts from the first look of a client on, as long as one watches.

        A client watches until its connection ends, or it calls :meth:`stop`.
        """
        raise NotImplementedError

    def read_all(self, lease: float = 10.0) -> list[Statistics]:
        """The same of all workers that serve together, in the order of their numbers; of the server alone if it has
        none. Workers that do not answer within a second are left out.

        Unlike :meth:`read` this takes a thread, and the interpreter, of each worker.

        Args:
            lease: Seconds for which the other workers go on measuring, from 0 to 86400. A client that asks again in
                that time finds that they have counted all the while.
        """
        raise NotImplementedError

    def read_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:
        """The server's connections, in the order in which they came. Nothing is measured for it.

        Args:
            after: Those whose ``number`` is greater than this: of a server with more connections than one answer has,
                the last number of the answer before.
            limit: The most that are told of, from 1 to 1000.
        """
        raise NotImplementedError

    def read_all_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:
        """The same of all workers that serve together. Workers that do not answer within a second are left out. It
        takes a thread, and the interpreter, of each worker.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """The caller watches no longer. Harmless when repeated."""
        raise NotImplementedError


Ask: TypeAlias = "Callable[[str, float], Iterable[bytes]]"
"""Asks the other workers for what the first argument names."""
Others: TypeAlias = "Callable[[], Ask | None]"
"""A weak reference to what asks the other workers."""
STATISTICS = "statistics"
"""What the other workers are asked for, with a lease."""
CONNECTIONS = "connections"
"""The same, with the number after which connections are told of."""


# Their docstring is that of the service: a server's description has it.
class _Own(Introspection):  # what the three below have in common
    def __init__(self, others: Others) -> None:
        self._others = others

    def _read_all(self, own: Statistics, lease: float) -> list[Statistics]:
        if not 0 <= lease <= _LONGEST_LEASE:
            raise InvalidArgument(f"lease must be from 0 to {_LONGEST_LEASE} seconds, not {lease}")
        ask = self._others()
        others = () if ask is None else ask(STATISTICS, lease)
        seen = [own, *map(_decode, others)]
        return sorted(seen, key=lambda each: each.worker or 0)

    def _read_all_connections(
        self, own: list[ConnectionStatistics], after: int, limit: int
    ) -> list[ConnectionStatistics]:
        ask = self._others()
        others = () if ask is None else ask(CONNECTIONS, after)
        seen = own + [each for other in others for each in _decode_connections(other)]
        return sorted(seen, key=lambda each: each.number)[:limit]


class _Native(_Own):  # in the core: it answers even if every handler in Python is stuck
    def __init__(self, others: Others) -> None:
        super().__init__(others)
        vars(self).update(
            read=IntrospectionMethod.READ,
            read_connections=IntrospectionMethod.CONNECTIONS,
            stop=IntrospectionMethod.STOP,
        )

    def read_all(self, lease: float = 10.0) -> list[Statistics]:
        return self._read_all(_read(), lease)

    def read_all_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:
        return self._read_all_connections(_read_connections(after, limit), after, limit)


class _InThread(_Own):  # behind interceptors: its handlers are like others, and count among max_concurrency
    def read(self) -> Statistics:
        return _read()

    def read_all(self, lease: float = 10.0) -> list[Statistics]:
        return self._read_all(_read(), lease)

    def read_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:
        return _read_connections(after, limit)

    def read_all_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:
        return self._read_all_connections(_read_connections(after, limit), after, limit)

    def stop(self) -> None:
        context()._call.introspect(IntrospectionMethod.STOP)


class _InLoop(_Own):  # for a server all of whose handlers are coroutines, so that its interceptors await the result
    async def read(self) -> Statistics:  # type: ignore[override]
        return _read()

    async def read_all(self, lease: float = 10.0) -> list[Statistics]:  # type: ignore[override]
        import asyncio  # only here: it takes as long to import as all the rest

        return await asyncio.to_thread(self._read_all, _read(), lease)

    async def read_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:  # type: ignore[override]
        return _read_connections(after, limit)

    async def read_all_connections(self, after: int = 0, limit: int = 100) -> list[ConnectionStatistics]:  # type: ignore[override]
        import asyncio

        return await asyncio.to_thread(self._read_all_connections, _read_connections(after, limit), after, limit)

    async def stop(self) -> None:  # type: ignore[override]
        context()._call.introspect(IntrospectionMethod.STOP)


def _read() -> Statistics:
    return _decode(context()._call.introspect(IntrospectionMethod.READ))


def _read_connections(after: int, limit: int) -> list[ConnectionStatistics]:
    if after < 0 or not 1 <= limit <= _MOST_CONNECTIONS:
        raise InvalidArgument(
            f"after must be a number from 0, and limit one from 1 to {_MOST_CONNECTIONS}, not {after} and {limit}"
        )
    return _decode_connections(context()._call.introspect(IntrospectionMethod.CONNECTIONS, after, limit))


def introspection_of(others: Others, *, intercepted: bool, in_loop: bool) -> Introspection:
    """The introspection service for a server.

    Args:
        others: A weak reference to what asks the other workers for theirs, in msgpack.
        intercepted: Whether the server has interceptors.
        in_loop: Whether all handlers of the server are coroutines.
    """
    if not intercepted:
        return _Native(others)
    return _InLoop(others) if in_loop else _InThread(others)
