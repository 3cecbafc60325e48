"""One launch: a fresh server process and a fresh client process, driven by the lab."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.placement import Placement
from nearcall_lab.registry import Entrant
from nearcall_lab.workers.protocol import Channel, PeerGone, Timeout
from nearcall_lab.workloads import Workload

START_TIMEOUT_S = 15.0
CELL_GRACE_S = 15.0
"""Seconds a cell may take beyond its own budget before it counts as hung."""


class LaunchFailed(Exception):
    """A mechanism that did not start, answer, or answer truly; the message goes into the table."""


@dataclass
class Sample:
    """What one cell of one launch gave."""

    ns: NDArray[np.int64]
    first_ns: int
    """The first call of the warm-up, not part of `ns`."""
    wall_s: float
    client_cpu_s: float
    involuntary_switches: int


class _Worker:
    """One child process with its channel and its log."""

    def __init__(self, role: str, entrant: Entrant, cpus: tuple[int, ...], directory: Path, token: str) -> None:
        self.role = role
        self.log = directory / f"{role}.log"
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        config = {
            "parent": os.getpid(),
            "cpus": list(cpus),
            "module": entrant.module,
            "mechanism": entrant.mechanism.name,
            "directory": str(directory),
            "token": token,
            "read_fd": to_child,
            "write_fd": from_child,
        }
        log: IO[bytes]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"nearcall_lab.workers.{role}", json.dumps(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(to_child, from_child),
                start_new_session=True,
            )
        os.close(to_child)
        os.close(from_child)
        self.channel = Channel(to_parent, from_parent)

    def ask(self, message: dict[str, Any] | None, timeout: float) -> tuple[dict[str, Any], bytes]:
        """Send `message` (if any) and wait for the answer; every way to fail becomes `LaunchFailed`."""
        try:
            if message is not None:
                self.channel.send(message)
            answer, blob = self.channel.receive(timeout)
        except PeerGone:
            raise LaunchFailed(f"{self.role} ended unexpectedly{self._last_words()}") from None
        except Timeout:
            raise LaunchFailed(f"{self.role} did not answer within {timeout:.0f} s{self._last_words()}") from None
        if "error" in answer:
            raise LaunchFailed(f"{self.role}: {answer['error']}")
        return answer, blob

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.2)
        code = self.process.returncode
        status = ""
        if code is not None and code < 0:
            status = f" ({signal.Signals(-code).name})"
        elif code is not None:
            status = f" (exit status {code})"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"{status}: {lines[-1][:200]}" if lines else status

    def end(self, ask_first: bool) -> None:
        """Make the process go: politely, then by signal. Returns when it is gone."""
        if ask_first and self.process.poll() is None:
            with contextlib.suppress(PeerGone):
                self.channel.send({"do": "stop"})
            self._gone_within(2.0)
        if self.process.poll() is None:
            self.process.terminate()
            self._gone_within(1.0)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self.channel.close()

    def _gone_within(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)


class Pair:
    """A context manager that starts both processes and leaves nothing behind.

    `Pair` raises `LaunchFailed` with one line of reason when the mechanism cannot be started or answers wrongly.
    """

    def __init__(self, entrant: Entrant, placement: Placement) -> None:
        self.entrant = entrant
        self.placement = placement
        self.token = f"nclab{uuid.uuid4().hex[:10]}"
        self.address = ""
        self.connect_ns = 0
        self.left_behind: list[str] = []
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self.token}-"))
        self._client: _Worker | None = None
        self._server: _Worker | None = None
        self._failed = False

    def __enter__(self) -> Pair:
        try:
            self._start()
        except BaseException:
            self._failed = True
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = self._failed or error is not None
        self.close()

    @property
    def server_pid(self) -> int:
        """Process id of the server."""
        assert self._server is not None
        return self._server.process.pid

    @property
    def client_pid(self) -> int:
        """Process id of the client."""
        assert self._client is not None
        return self._client.process.pid

    def _start(self) -> None:
        alone = self.entrant.mechanism.same_process
        client_cpus = self.placement.client
        if alone:  # both sides live in one process, which therefore gets both CPUs
            client_cpus = tuple(sorted({*self.placement.client, *self.placement.server}))
        else:
            self._server = self._worker("server", self.placement.server)
        self._client = self._worker("client", client_cpus)
        if self._server is not None:
            answer, _ = self._server.ask(None, START_TIMEOUT_S)
            self.address = answer["ready"]
        self._client.ask(None, START_TIMEOUT_S)

    def _worker(self, role: str, cpus: tuple[int, ...]) -> _Worker:
        return _Worker(role, self.entrant, cpus, self._directory, self.token)

    def connect(self) -> None:
        """Open the client's session."""
        assert self._client is not None
        answer, _ = self._client.ask({"do": "connect", "address": self.address}, START_TIMEOUT_S)
        self.connect_ns = answer["connected_ns"]

    def measure(
        self, workload: Workload, seconds: float, warm_s: float = 0.02, max_calls: int = 50_000, min_calls: int = 5
    ) -> Sample:
        """Timed ping-pong calls for about `seconds`, after a warm-up. Every reply is verified, every call counted."""
        assert self._client is not None
        before = self.served()[0]
        request = {
            "do": "measure",
            "workload": workload.key,
            "seconds": seconds,
            "warm_s": warm_s,
            "max_calls": max_calls,
            "min_calls": min_calls,
        }
        answer, blob = self._client.ask(request, seconds + warm_s + CELL_GRACE_S)
        handled = answer["served"] if self._server is None else self.served()[0] - before
        if handled != answer["calls"]:
            raise LaunchFailed(f"the client made {answer['calls']} calls, the server handled {handled}")
        samples = np.frombuffer(blob, dtype=np.int64)
        return Sample(samples, answer["first_ns"], answer["wall_s"], answer["cpu_s"], answer["involuntary"])

    def probe(self, target: str, timeout: float, **arguments: Any) -> Any:
        """Run ``module:function`` in the client process and return its result."""
        assert self._client is not None
        request = {"do": "probe", "target": target, "arguments": arguments, "address": self.address}
        return self._client.ask(request, timeout)[0]["result"]

    def served(self) -> tuple[int, float]:
        """Requests the server has handled and CPU seconds its process has used; zeros if there is no server process."""
        if self._server is None:
            return 0, 0.0
        answer, _ = self._server.ask({"do": "served"}, CELL_GRACE_S)
        return int(answer["served"]), float(answer["cpu_s"])

    def close(self) -> None:
        """End both processes and remove what they left. Safe to call twice."""
        for worker in (self._client, self._server):
            if worker is not None:
                worker.end(ask_first=not self._failed)
        for leftover in Path("/dev/shm").glob(f"*{self.token}*"):
            self.left_behind.append(str(leftover))
            with contextlib.suppress(OSError):
                leftover.unlink()
        shutil.rmtree(self._directory, ignore_errors=True)
