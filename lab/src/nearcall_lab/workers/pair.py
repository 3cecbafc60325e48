"""One server and one client, driven step by step: what the demo and the runtime's own bench use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.placement import Placement
from nearcall_lab.registry import Entrant
from nearcall_lab.workers.crew import Crew
from nearcall_lab.workers.worker import START_TIMEOUT_S, LaunchFailed, Worker
from nearcall_lab.workloads import Workload

CELL_GRACE_S = 15.0
"""Seconds a cell may take beyond its own budget before it counts as hung."""

__all__ = ["LaunchFailed", "Pair", "Sample"]


@dataclass
class Sample:
    """What one cell of one launch gave."""

    ns: NDArray[np.int64]
    first_ns: int
    """The first call of the warm-up, not part of `ns`."""
    wall_s: float
    client_cpu_s: float
    involuntary_switches: int


class Pair(Crew):
    """A context manager that starts both processes and leaves nothing behind.

    `Pair` raises `LaunchFailed` with one line of reason when the mechanism cannot be started or answers wrongly.
    """

    def __init__(self, entrant: Entrant, placement: Placement) -> None:
        super().__init__(entrant, placement)
        self.connect_ns = 0

    def __enter__(self) -> Pair:
        super().__enter__()
        return self

    @property
    def client(self) -> Worker:
        """The one client."""
        return self.clients[0]

    @property
    def server_pid(self) -> int:
        """Process id of the server."""
        assert self.server is not None
        return self.server.process.pid

    @property
    def client_pid(self) -> int:
        """Process id of the client."""
        return self.client.process.pid

    def connect(self) -> None:
        """Open the client's session."""
        answer, _ = self.client.ask({"do": "connect", "address": self.address}, START_TIMEOUT_S)
        self.connect_ns = answer["connected_ns"]

    def measure(
        self, workload: Workload, seconds: float, warm_s: float = 0.02, max_calls: int = 50_000, min_calls: int = 5
    ) -> Sample:
        """Timed ping-pong calls for about `seconds`, after a warm-up. Every reply is verified, every call counted."""
        before = self.served()[0]
        request = {
            "do": "measure",
            "workload": workload.key,
            "seconds": seconds,
            "warm_s": warm_s,
            "max_calls": max_calls,
            "min_calls": min_calls,
        }
        answer, blob = self.client.ask(request, seconds + warm_s + CELL_GRACE_S)
        handled = answer["served"] if self.server is None else self.served()[0] - before
        if handled != answer["calls"]:
            raise LaunchFailed(f"the client made {answer['calls']} calls, the server handled {handled}")
        samples = np.frombuffer(blob, dtype=np.int64)
        return Sample(samples, answer["first_ns"], answer["wall_s"], answer["cpu_s"], answer["involuntary"])

    def probe(self, target: str, timeout: float, **arguments: Any) -> Any:
        """Run ``module:function`` in the client process and return its result."""
        request = {"do": "probe", "target": target, "arguments": arguments, "address": self.address}
        return self.client.ask(request, timeout)[0]["result"]

    def served(self) -> tuple[int, float]:
        """Requests the server has handled and CPU seconds its process has used; zeros if there is no server process."""
        if self.server is None:
            return 0, 0.0
        answer, _ = self.server.ask({"do": "served"}, CELL_GRACE_S)
        return int(answer["served"]), float(answer["cpu_s"])
