"""One server and its clients, usually one, in which functions are run: for measurements that a cell cannot describe."""

from __future__ import annotations

from typing import Any

from nearcall_lab.workers.crew import Crew

_ANSWER_LIMIT_S = 15.0


class Pair(Crew):
    """A context manager that starts both processes and leaves nothing behind.

    Raises `LaunchFailed` with one line of reason when the mechanism cannot be started, or a function fails.
    """

    def __enter__(self) -> Pair:
        super().__enter__()
        return self

    @property
    def server_pid(self) -> int:
        """Process id of the server."""
        assert self.server is not None
        return self.server.process.pid

    @property
    def client_pid(self) -> int:
        """Process id of the client."""
        return self.clients[0].process.pid

    def probe(self, target: str, timeout: float, client: int = 0, /, **arguments: Any) -> Any:
        """Run ``module:function`` in a client process, the first if none is named, and return its result."""
        request = {"do": "probe", "target": target, "arguments": arguments, "address": self.address}
        return self.clients[client].ask(request, timeout)[0]["result"]

    def server_cpu_s(self) -> float:
        """CPU seconds the server's process has used."""
        assert self.server is not None
        return float(self.server.ask({"do": "served"}, _ANSWER_LIMIT_S)[0]["cpu_s"])
