"""A service whose calls wait until another call lets them go on."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Protocol

import nearcall


@nearcall.service
class Listener(Protocol):
    def said(self, text: str) -> str: ...


@nearcall.service
class Gates:
    def __init__(self) -> None:
        self._gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._entered: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._given_up: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._notes: Counter[str] = Counter()
        self._servers: list[nearcall.Server] = []

    def serve_at(self, url: str) -> None:
        """Serves at another URL as well."""
        self._servers.append(nearcall.Server(Gates(), url).start())

    def _stop(self) -> None:
        for server in self._servers:
            server.stop()

    def open(self, name: str) -> None:
        self._gates[name].set()

    def wait(self, name: str) -> str:
        self._entered[name].set()
        while not self._gates[name].wait(0.005):
            if nearcall.context().cancelled:
                self._given_up[name].set()
                break
        return name

    def await_entered(self, name: str) -> None:
        assert self._entered[name].wait(20)

    def has_entered(self, name: str) -> bool:
        return self._entered[name].is_set()

    def await_given_up(self, name: str) -> None:
        assert self._given_up[name].wait(20)

    def stream(self, names: list[str]) -> Iterator[str]:
        for name in names:
            yield self.wait(name)

    def count(self, names: Iterator[str]) -> int:
        return sum(1 for _ in names)

    def count_behind(self, gate: str, names: Iterator[str]) -> int:
        self.wait(gate)
        return sum(1 for _ in names)

    def echo(self, names: Iterator[str]) -> Iterator[str]:
        yield from names

    @nearcall.oneway
    def note(self, gate: str, text: str) -> None:
        self.wait(gate)
        self._notes[gate] += 1

    def noted(self, gate: str) -> int:
        return self._notes[gate]


@nearcall.service
class Telling:
    def tell(self, listener: Listener, text: str) -> str:
        return listener.said(text)
