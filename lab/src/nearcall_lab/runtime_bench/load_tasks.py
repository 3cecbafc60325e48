"""The tasks of `make bench` with load: many calls at once, asyncio, much data."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

import numpy as np

from nearcall_lab.placement import Placement
from nearcall_lab.registry import Entrant
from nearcall_lab.results.histogram import latencies
from nearcall_lab.runtime_bench.pair import Pair
from nearcall_lab.runtime_bench.probes import resident_kb
from nearcall_lab.runtime_bench.results import Amounts, Collected
from nearcall_lab.workers.worker import LaunchFailed

LOAD = "nearcall_lab.runtime_bench.load"
GRPC = "grpc-aio-tcp"
CURVE = (1, 5, 10, 20, 50, 100)
"""Clients at once."""
DIRECTIONS = ("to the server", "to the client", "both ways")
ITEM = 1 << 20
"""Octets of an item of the long streams."""


class LoadTasks:
    """Each task is one fresh pair of processes per round, except the long streams, which run once."""

    def __init__(
        self, service: Entrant, grpc: Entrant | None, placement: Placement, amounts: Amounts, collected: Collected
    ) -> None:
        self._service = service
        self._grpc = grpc
        self._placement = placement
        self._amounts = amounts
        self._collected = collected

    def tasks(self) -> dict[str, Callable[[int], None]]:
        """By name."""
        tasks: dict[str, Callable[[int], None]] = {
            "asyncio": self._awaited,
            "pipelined": self._pipelined,
            "clients": self._clients,
            "naps": self._naps,
            "streamed": self._streamed,
            "beside": self._beside,
        }
        return tasks

    def _pair(self) -> Pair:
        return Pair(self._service, self._placement)

    def _grpc_pair(self) -> Pair:
        problem = "no such adapter" if self._grpc is None else self._grpc.problem
        if self._grpc is None or problem:
            raise LaunchFailed(problem)
        return Pair(self._grpc, self._placement)

    def _awaited(self, turn: int) -> None:
        """The three measurements are one task, so that they are made one right after the other."""
        for key, method in (("asyncio client", "echo"), ("asyncio both", "echo_in_loop")):
            with self._pair() as pair:
                median = pair.probe(f"{LOAD}:awaited_echo", 60, seconds=self._amounts.slice_s, method=method)
            self._collected.add(key, turn, median)
        try:
            with self._grpc_pair() as pair:
                self._collected.add(
                    "grpc.aio", turn, pair.probe(f"{LOAD}:grpc_echo", 60, seconds=self._amounts.slice_s)
                )
        except LaunchFailed as error:
            self._collected.problems["grpc.aio"] = str(error)

    def _pipelined(self, turn: int) -> None:
        seconds = self._amounts.slice_s
        for key, kind, arguments in (
            ("tasks", "tasks", {"method": "add"}),
            ("handlers", "tasks", {"method": "add_in_loop"}),
            ("threads", "threads", {}),
        ):
            with self._pair() as pair:
                rate = pair.probe(f"{LOAD}:pipelined_{kind}", 60, **{kind: 64, "seconds": seconds, **arguments})
            self._collected.add(f"pipelined {key}", turn, rate)

    def _clients(self, turn: int) -> None:
        for count in CURVE:
            with self._pair() as pair:
                rate = pair.probe(f"{LOAD}:clients", 60, count=count, seconds=self._amounts.slice_s / 2)
            self._collected.add(f"clients {count}", turn, rate)

    def _naps(self, turn: int) -> None:
        with self._pair() as pair:
            took = pair.probe(f"{LOAD}:naps", 60, calls=self._amounts.naps, seconds=0.1)
        self._collected.add("naps", turn, took["called"])
        self._collected.add("naps alone", turn, took["alone"])
        if turn:
            return  # one round shows whether it can
        try:
            with self._grpc_pair() as pair:
                took = pair.probe(f"{LOAD}:grpc_naps", 60, calls=self._amounts.naps, seconds=0.1)
                self._collected.add("grpc.aio naps", turn, took)
        except LaunchFailed as error:
            self._collected.problems["grpc.aio naps"] = str(error)

    def _streamed(self, turn: int) -> None:
        if turn:
            return
        items = self._amounts.streamed_bytes // ITEM
        for direction in DIRECTIONS:
            arguments = {"direction": direction, "size": ITEM, "pause_s": 0.001, "every": 10}
            with self._pair() as pair:
                pair.probe(f"{LOAD}:streamed", 60, items=4, **arguments)  # one-time costs are not counted
                with _Watched([pair.server_pid, pair.client_pid]) as watched:
                    rate = pair.probe(f"{LOAD}:streamed", 120, items=items, **arguments)
            self._collected.add(f"streamed {direction}", turn, watched.grown_kb())
            self._collected.add(f"streamed {direction} GB/s", turn, rate)

    def _beside(self, turn: int) -> None:
        with self._pair() as pair:
            samples = pair.probe(f"{LOAD}:beside_blocked", 60, seconds=1.0)
        self._collected.add_samples("beside", latencies(np.asarray(samples, dtype=np.int64)))


class _Watched:
    """Watches the memory of processes until its block ends."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = self._most = self._resident()

    def __enter__(self) -> _Watched:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _resident(self) -> int:
        return sum(sum(resident_kb(pid).values()) for pid in self._pids)

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._most = max(self._most, self._resident())

    def grown_kb(self) -> int:
        """KiB by which all of them together grew at most; shared memory counts on each side."""
        return self._most - self._before
