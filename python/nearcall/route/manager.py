"""The route manager: nodes tell it which types they take, and it makes the table of that, for all of them.

A node that ends, or dies, or whose machine is gone, leaves the table. Without the manager nodes go on with their last
table.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable

import msgspec

from ..errors import AlreadyExists, InvalidArgument
from ..log import INFO, WARNING, log
from ..service.service import service
from .service import RouteTable

__all__ = ["AttachedNode", "NodeInfo", "RouteManager", "manager"]

NAME = "nearcall.RouteManager"
COME_BACK = 2.5
"""Seconds in which nodes look for a manager again that they have lost."""
MOST_NODES = 10_000
MOST_TYPES = 10_000
"""Types that one node may take."""


class NodeInfo(msgspec.Struct, frozen=True):
    """What a node tells the manager."""

    name: str
    """The node's name, which no other node has."""
    url: str
    """Where it takes messages."""
    types: list[int]
    """The types of messages that it takes."""
    group: str
    """Nodes of one group take turns; each group gets a copy of a message."""
    table: str = ""
    """The id of the last table that it got from a manager; empty if it got none."""


class AttachedNode(msgspec.Struct, frozen=True):
    """A node that is attached to a manager."""

    node: NodeInfo
    table: str | None = None
    """The id of the last table that it has acknowledged."""
    problem: str | None = None
    """Why it has refused the table that was sent last."""


@service(name=NAME, errors=())
class RouteManager:
    """What a manager serves. Its class is for both sides."""

    def attach(self, node: NodeInfo) -> AsyncIterator[RouteTable]:
        """Enters a node into the table, until the stream ends. The stream has the table of now, and each later one.

        Raises:
            AlreadyExists: another node has the name.
            InvalidArgument: what the node says of itself cannot stand in a table.
        """
        raise NotImplementedError

    def acknowledge(self, name: str, table: str, problem: str | None) -> None:
        """A node has put a table in force, or refused it for the reason given."""
        raise NotImplementedError

    def nodes(self) -> list[AttachedNode]:
        """The nodes that are attached."""
        raise NotImplementedError


def manager() -> RouteManager:
    """A manager, to be served: ``nearcall.serve(nearcall.route.manager(), "shm://routes")``."""
    return _Manager()


class _Manager(RouteManager):
    def __init__(self) -> None:
        # No other manager has made tables of such a name, nor has one that was here before.
        self._name = f"managed-{time.time_ns() // 1_000_000:x}"
        self._held: asyncio.TimerHandle | None = None
        self._may_be_held = True
        self._attached: dict[str, AttachedNode] = {}
        self._number = 0
        self._table = RouteTable("", "")
        self._changes: dict[str, asyncio.Event] = {}

    async def attach(self, node: NodeInfo) -> AsyncIterator[RouteTable]:
        check_node(node)
        if node.name in self._attached:
            raise AlreadyExists(f"a node called {node.name!r} is attached: give each node a name of its own")
        if len(self._attached) >= MOST_NODES:
            raise InvalidArgument(f"{MOST_NODES} nodes are attached, and that is the most")
        self._attached[node.name] = AttachedNode(node)
        change = self._changes[node.name] = asyncio.Event()
        log(INFO, "node %s is attached: it takes %s", node.name, _listed(node.types))
        try:
            self._remake()
            while True:
                await change.wait()
                change.clear()
                yield self._table
        finally:
            del self._attached[node.name], self._changes[node.name]
            log(INFO, "node %s has left", node.name)
            self._remake()

    async def acknowledge(self, name: str, table: str, problem: str | None) -> None:  # type: ignore[override]
        found = self._attached.get(name)
        if found is not None:
            self._attached[name] = AttachedNode(found.node, found.table if problem else table, problem)
        if problem is not None:
            log(WARNING, "node %s refused table %s: %s", name, table, problem)

    async def nodes(self) -> list[AttachedNode]:  # type: ignore[override]
        return list(self._attached.values())

    def _is_held(self) -> bool:
        """Whether nodes that have tables of another manager are still coming back: a table of some of them would be
        worse than those that they have.
        """
        if self._held is not None:
            return True
        if not self._may_be_held:
            return False
        self._may_be_held = False
        if not any(each.node.table for each in self._attached.values()):
            return False
        self._held = asyncio.get_running_loop().call_later(COME_BACK, self._let_go)
        return True

    def _let_go(self) -> None:
        self._held = None
        self._remake()

    def _remake(self) -> None:
        """Makes the table anew, and has it sent to all nodes."""
        if self._is_held():
            return
        self._number += 1
        identity = f"{self._name}-{self._number}"
        self._table = RouteTable(identity, table_of((each.node for each in self._attached.values()), identity))
        for change in self._changes.values():
            change.set()


def check_node(node: NodeInfo) -> None:
    """Makes sure that what a node says of itself can stand in a table.

    Raises:
        InvalidArgument: it cannot.
    """
    for what, text in (("name", node.name), ("URL", node.url), ("group", node.group)):
        if not text or len(text) > 255 or not text.isprintable() or any(sign in text for sign in "|,;# "):
            raise InvalidArgument(
                f"the {what} of a node must be 1 to 255 characters without blanks, | , ; or #: {text!r}"
            )
    if len(node.types) > MOST_TYPES:
        raise InvalidArgument(f"node {node.name} takes {len(node.types)} types of messages, {MOST_TYPES} is the most")
    for number in node.types:
        if not -(1 << 31) <= number < 1 << 31:
            raise InvalidArgument(f"node {node.name}: the message type {number} does not fit into 32 bits")


def table_of(nodes: Iterable[NodeInfo], identity: str) -> str:
    """The table for these nodes, in RMR's text: for each type the members of one group take turns, and each group gets
    a copy.
    """
    takers: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        for number in dict.fromkeys(node.types):
            takers[number][node.group].append(node.url)
    lines = [f"newrt | start | {identity}"]
    for number, groups in sorted(takers.items()):
        lines.append(f"mse | {number} | -1 | {'; '.join(','.join(urls) for urls in groups.values())}")
    lines.append(f"newrt | end | {len(takers)}")
    return "\n".join(lines) + "\n"


def _listed(types: list[int]) -> str:
    shown = ", ".join(map(str, itertools.islice(types, 10)))
    return (shown or "nothing") + (" and others" if len(types) > 10 else "")
