"""What a launch uses during its timed part, read on each machine that takes part in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from nearcall_lab.engine import usage
from nearcall_lab.engine.machine import Watch
from nearcall_lab.results.model import ClockComparison, Side
from nearcall_lab.workers.crew import Crew, FarServer

_ANSWER_LIMIT_S = 15.0


class Used(msgspec.Struct):
    """What both sides used on one machine, or on all, and what else its CPUs did."""

    client: Side
    server: Side
    steal_share: float | None = None
    others_share: float | None = None
    clock: ClockComparison | None = None


def together(machines: Sequence[Used]) -> Used:
    """What was used on all machines; of shares the largest, for the launch was disturbed where one was."""
    return Used(
        _sum(machine.client for machine in machines),
        _sum(machine.server for machine in machines),
        max((m.steal_share for m in machines if m.steal_share is not None), default=None),
        max((m.others_share for m in machines if m.others_share is not None), default=None),
        next((m.clock for m in machines if m.clock is not None), None),
    )


def _sum(sides: Iterable[Side]) -> Side:
    parts = [msgspec.to_builtins(side) for side in sides]
    return Side(**{name: sum(part[name] for part in parts) for name in parts[0]})


class Meter:
    """Of a crew's processes on this machine, from `begin` to `conclude`."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._trees: tuple[list[int], list[int]]
        self._served: tuple[int, ...]
        self._before: list[usage.Snapshot]
        self._watch: Watch
        self._relay_ns: int

    def begin(self) -> None:
        """The timed part begins."""
        self._trees = self._crew.processes()
        usage.forget_peaks([pid for tree in self._trees for pid in tree])
        self._served = self._switches_of_server()
        self._before = [usage.snapshot(tree) for tree in self._trees]
        self._relay_ns = self._cpu_of_relay_ns()
        self._watch = Watch(self._crew.cpus)

    def conclude(self, answers: Sequence[dict[str, Any]]) -> Used:
        """It is over; `answers` are those of the clients of this machine, in their order."""
        self._watch.stop()
        # At once, and of the processes known from before: one that polls goes on using its CPU while the lab looks for
        # new ones.
        known = [usage.cpu_times(tree) for tree in self._trees]
        after = [usage.snapshot(tree, seen) for tree, seen in zip(self._crew.processes(), known, strict=True)]
        exact = {
            client.process.pid: (answer["used"]["voluntary"], answer["used"]["involuntary"])
            for client, answer in zip(self._crew.clients, answers, strict=True)
            if "used" in answer  # a program in another language may not know
        }
        if self._crew.server is not None and self._served:
            now = self._switches_of_server()
            exact[self._crew.server.process.pid] = (now[0] - self._served[0], now[1] - self._served[1])
        client, server = (usage.side(first, last, exact) for first, last in zip(self._before, after, strict=True))
        client.waiting_s = sum(float(answer.get("waiting_s", 0.0)) for answer in answers)
        client.cpu_s = max(0.0, client.cpu_s - client.waiting_s)
        relay_s = (self._cpu_of_relay_ns() - self._relay_ns) / 1e9
        own_s = client.cpu_s + client.waiting_s + server.cpu_s + relay_s
        return Used(client, server, self._watch.steal_share(), self._watch.others_share(own_s))

    def _cpu_of_relay_ns(self) -> int:
        """It works for the launch, though on neither side."""
        return usage.cpu_ns(self._crew.relay.process.pid) if self._crew.relay is not None else 0

    def _switches_of_server(self) -> tuple[int, ...]:
        if self._crew.server is None:
            return ()
        answer, _ = self._crew.server.ask({"do": "served"}, _ANSWER_LIMIT_S)
        return (answer["voluntary"], answer["involuntary"]) if "voluntary" in answer else ()


class FarMeter:
    """The same of a server on another machine, where a `Meter` reads it."""

    def __init__(self, server: FarServer) -> None:
        self._server = server

    def begin(self) -> None:
        """The timed part begins."""
        self._server.begin()

    def conclude(self, answers: Sequence[dict[str, Any]]) -> Used:
        """It is over."""
        return msgspec.convert(self._server.conclude(), Used)
