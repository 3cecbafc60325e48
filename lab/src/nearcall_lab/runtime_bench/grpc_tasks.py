"""The tasks of `make bench` over gRPC: many calls at once, many connections, many items, and a server in Go."""

from __future__ import annotations

from collections.abc import Callable

from nearcall_lab.placement import Placement
from nearcall_lab.registry import discover, entrants_of, named
from nearcall_lab.runtime_bench.pair import Pair
from nearcall_lab.runtime_bench.probes import resident_kb
from nearcall_lab.runtime_bench.results import Amounts, Collected
from nearcall_lab.workers.crew import Crew
from nearcall_lab.workers.worker import LaunchFailed

SERVICE = "nearcall_lab.runtime_bench.grpc_service"
LOAD = "nearcall_lab.runtime_bench.load"
PROBES = "nearcall_lab.runtime_bench.probes"
HOLDERS = 2
"""Processes among which many connections are divided: each connection takes three descriptors of its client."""


class GrpcTasks:
    """Each task is one fresh pair of processes per round; those that take long run once."""

    def __init__(self, placement: Placement, amounts: Amounts, collected: Collected) -> None:
        self._service = entrants_of(SERVICE)[0]
        self._placement = placement
        self._amounts = amounts
        self._collected = collected

    def tasks(self) -> dict[str, Callable[[int], None]]:
        """By name."""
        return {
            "grpc burst": self._burst,
            "grpc stream": self._stream,
            "grpc connections": self._connections,
            "grpc calls": self._calls,
            "grpc client": self._client,
        }

    def _pair(self, clients: int = 1) -> Pair:
        return Pair(self._service, self._placement, clients)

    def _burst(self, turn: int) -> None:
        with self._pair() as pair:
            took = pair.probe(f"{LOAD}:naps", 60, calls=self._amounts.naps, seconds=0.1)
        self._collected.add("grpc burst", turn, took["called"] * 1e9)

    def _stream(self, turn: int) -> None:
        with self._pair() as pair:
            rate = pair.probe(f"{PROBES}:stream", 120, items=self._amounts.stream_items)
        self._collected.add("grpc stream", turn, rate)

    def _connections(self, turn: int) -> None:
        """KiB of the server for each connection that has made a call and is still open."""
        if turn:
            return
        with self._pair(HOLDERS) as pair:
            each = self._amounts.connections // HOLDERS
            pair.probe(f"{PROBES}:hold", 60, clients=1)  # one-time costs of the first connection are not counted
            before = resident_kb(pair.server_pid)["private"]
            for holder in range(HOLDERS):
                pair.probe(f"{PROBES}:hold", 300, holder, clients=each)
            grown = resident_kb(pair.server_pid)["private"] - before
        self._collected.add("grpc connections", turn, grown / (each * HOLDERS))

    def _calls(self, turn: int) -> None:
        """KiB by which the server grows over many calls."""
        if turn:
            return
        with self._pair() as pair:
            pair.probe(f"{SERVICE}:calls", 60, count=10_000)
            before = resident_kb(pair.server_pid)["private"]
            right = pair.probe(f"{SERVICE}:calls", 300, count=self._amounts.calls)
            grown = resident_kb(pair.server_pid)["private"] - before
        if right != self._amounts.calls:
            raise ValueError(f"{right} of {self._amounts.calls} calls were answered rightly")
        self._collected.add("grpc calls", turn, grown)

    def _client(self, turn: int) -> None:
        """Typed calls to grpc-go's server."""
        peer = named("grpc-go", discover())
        if peer is None or peer.problem:
            raise LaunchFailed(f"grpc-go: {peer.problem if peer else 'it is no mechanism here'}")
        with Crew(peer, self._placement, clients=0) as server, self._pair() as pair:
            seconds = 2 * self._amounts.slice_s
            found = pair.probe(f"{SERVICE}:beside_grpcio", 60, address=server.address, seconds=seconds)
        for name, nanoseconds in found.items():
            self._collected.add(f"grpc client {name}", turn, nanoseconds)
