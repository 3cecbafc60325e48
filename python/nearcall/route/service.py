"""The service that every node serves: other nodes send messages to it, and people ask how it is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..service.service import oneway, service

__all__ = ["EndpointStatus", "LeftStatus", "NodeStatus", "RmrStatus", "Route", "RouteTable", "served_by"]

NAME = "nearcall.Route"


class EndpointStatus(msgspec.Struct, frozen=True):
    """What has happened between a node and one receiver of its messages."""

    name: str
    """As the table names it."""
    sent: int
    """Messages that the transport has taken."""
    failed_hard: int
    """Messages that cannot be sent at all, because they are too long for instance."""
    failed_soft: int
    """Messages that were refused to their senders because the queue was full."""
    dropped: int
    """Messages that were dropped: because the queue was full, or the node ended."""
    handed_on: int
    """Messages that have waited for it and went to another member of its group, since it was not connected."""
    queued: int
    """Messages in the queue."""
    queued_bytes: int
    """Their bytes."""
    connected: bool
    """Whether there is a connection now."""
    failure: str | None = None
    """Why there is no connection, as far as is known."""


class LeftStatus(msgspec.Struct, frozen=True):
    """What has happened between a node and all those receivers of its messages together that it uses no more: the table
    does not name them any longer, or replies went there. The numbers are those of :class:`EndpointStatus`.
    """

    endpoints: int
    """How many they are."""
    sent: int
    failed_hard: int
    failed_soft: int
    dropped: int
    handed_on: int
    queued: int
    """Messages that still wait, for some seconds; then they are dropped."""
    queued_bytes: int


class RmrStatus(msgspec.Struct, frozen=True):
    """What has happened on the sockets over which a node speaks with programs of RMR."""

    connections: int
    """Connections now, in both directions."""
    broken: int
    """Connections that were closed because the other side broke a rule: a wrong length, a message that never ends."""
    refused: int
    """Connections that were refused because there were too many."""


class NodeStatus(msgspec.Struct, frozen=True):
    """What a node has done so far."""

    name: str
    urls: list[str]
    table: str | None
    """The id of the table in force; ``None`` if there is none."""
    taken: int
    """Messages that were taken to be handled."""
    waiting: int
    """Messages that have arrived and wait."""
    malformed: int
    """Messages that could not be read."""
    failed: int
    """Messages whose handlers have raised, or whose payloads do not fit their type."""
    unhandled: int
    """Messages of a type that no handler takes."""
    unrouted: int
    """Messages that could not be sent, because the table has no entry for them."""
    endpoints: list[EndpointStatus]
    rmr: RmrStatus | None = None
    """What concerns programs of RMR; ``None`` if there are none."""
    left: LeftStatus | None = None
    """What was done for receivers that the node uses no more, so that sums never fall; ``None`` if there are none."""


class RouteTable(msgspec.Struct, frozen=True):
    """A table."""

    id: str
    text: str
    """In RMR's text."""


@service(name=NAME)
class Route:
    """What a node serves: ``nearcall.connect(url, nearcall.route.Route)`` asks it how it is. Messages are sent by
    nodes: their calls of ``deliver`` are encoded in a way of their own.
    """

    @oneway
    def deliver(self, head: bytes, payload: bytes) -> None:
        """Takes a message, from another node. ``docs/guide/routing.md`` describes how it is encoded."""

    def status(self) -> NodeStatus:
        """What the node has done so far."""
        raise NotImplementedError

    def table(self) -> RouteTable | None:
        """The table in force."""
        raise NotImplementedError


class _Served(Route):
    """The service of one node. The core takes the messages, without the interpreter."""

    def __init__(self, inbox: object, status: Callable[[], NodeStatus], table: Callable[[], RouteTable | None]) -> None:
        vars(self).update(deliver=inbox)
        self._status, self._table = status, table

    def status(self) -> NodeStatus:
        return self._status()

    def table(self) -> RouteTable | None:
        return self._table()


def served_by(inbox: object, status: Callable[[], NodeStatus], table: Callable[[], RouteTable | None]) -> Route:
    """The service of a node.

    Args:
        inbox: Takes the messages, in the core.
        status: What the node has done so far.
        table: The table in force.
    """
    return _Served(inbox, status, table)
