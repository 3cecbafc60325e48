"""Objects that pass each other about at random: what is held can be called and is itself, what is not held goes."""

from __future__ import annotations

import gc
import itertools
import time
import weakref

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import nearcall

PATIENCE = 30.0
GONE = (nearcall.Unavailable, nearcall.Cancelled)
ALIVE: weakref.WeakSet[Node] = weakref.WeakSet()
_numbers = itertools.count()


@nearcall.service
class Node:
    """Something that keeps others."""

    def name(self) -> str:
        raise NotImplementedError

    def keep(self, other: Node) -> None:
        raise NotImplementedError

    def kept(self) -> list[Node]:
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError

    def names(self) -> list[str]:
        raise NotImplementedError


@nearcall.service
class Maker:
    def make(self) -> Node:
        raise NotImplementedError

    def pass_on(self, node: Node) -> Node:
        raise NotImplementedError


class HereNode(Node):
    def __init__(self) -> None:
        self._name = f"node {next(_numbers)}"
        self._others: list[Node] = []
        ALIVE.add(self)

    def name(self) -> str:
        return self._name

    def keep(self, other: Node) -> None:
        self._others.append(other)

    def kept(self) -> list[Node]:
        return self._others

    def drop(self) -> None:
        self._others = []

    def names(self) -> list[str]:
        return [other.name() for other in self._others]


class HereMaker(Maker):
    def make(self) -> Node:
        return HereNode()

    def pass_on(self, node: Node) -> Node:
        return node


URLS: dict[str, str] = {}


@pytest.fixture(autouse=True, params=["inproc", "unix"])
def url(request: pytest.FixtureRequest, key: str, runtime_dir: object) -> None:
    URLS["base"] = f"inproc://g{key}" if request.param == "inproc" else f"unix://{runtime_dir}/g{key}"


class Graph(RuleBasedStateMachine):
    """Two servers and a client of each, all in this process, so that everything can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Node] = {}
        self.gone: list[Node] = []
        """References of connections that have ended."""

    @initialize()
    def begin(self) -> None:
        self.urls = [f"{URLS['base']}-{next(_numbers)}" for _ in range(2)]
        self.servers = [nearcall.Server(HereMaker(), url).start() for url in self.urls]
        self.makers: list[Maker] = []
        self.clients: list[nearcall.Client[Maker]] = []
        for url in self.urls:
            self.clients.append(nearcall.connect(url, Maker))
            self.makers.append(self.clients[-1].service)

    @rule(side=st.integers(0, 1))
    def make(self, side: int) -> None:
        node = self.makers[side].make()
        self.known[node.name()] = node

    @rule()
    def make_here(self) -> None:
        node = HereNode()
        self.known[node.name()] = node

    @precondition(lambda self: self.known)
    @rule(data=st.data(), side=st.integers(0, 1))
    def pass_on(self, data: st.DataObject, side: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        assert self.makers[side].pass_on(self.known[name]) is self.known[name]

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        names = sorted(self.known)
        one, other = self.known[data.draw(st.sampled_from(names))], data.draw(st.sampled_from(names))
        one.keep(self.known[other])
        assert other in one.names()
        assert other in [each.name() for each in one.kept()]

    @precondition(lambda self: self.known)
    @rule(data=st.data(), explicitly=st.booleans())
    def let_go(self, data: st.DataObject, explicitly: bool) -> None:
        node = self.known.pop(data.draw(st.sampled_from(sorted(self.known))))
        node.drop()
        if explicitly:
            nearcall.release(node)
            self.forget_what_cannot_be_called()

    @rule(side=st.integers(0, 1))
    def reconnect(self, side: int) -> None:
        self.clients[side].close()
        self.clients[side] = nearcall.connect(self.urls[side], Maker)
        self.makers[side] = self.clients[side].service
        # What came over the old connection is gone.
        for name, node in list(self.known.items()):
            try:
                node.name()
            except GONE:
                self.gone.append(self.known.pop(name))
        self.forget_what_cannot_be_called()

    def forget_what_cannot_be_called(self) -> None:
        """What keeps a reference that was released, or whose connection has ended, forgets it."""
        for node in self.known.values():
            try:
                node.names()
            except (*GONE, nearcall.FailedPrecondition):
                node.drop()

    @invariant()
    def what_is_held_can_be_called(self) -> None:
        for name, node in self.known.items():
            assert node.name() == name
        for node in self.gone:
            with pytest.raises(GONE):
                node.name()

    def teardown(self) -> None:
        while self.known:
            self.known.popitem()[1].drop()
        self.gone.clear()
        for client in getattr(self, "clients", []):
            client.close()
        for server in getattr(self, "servers", []):
            server.stop()
        end = time.monotonic() + PATIENCE
        while ALIVE:
            assert time.monotonic() < end, f"{len(ALIVE)} objects are kept by nobody that is known"
            gc.collect()
            time.sleep(0.002)


def test_graphs_of_references() -> None:
    run_state_machine_as_test(
        Graph,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
