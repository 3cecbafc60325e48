"""All processes of one launch: a fresh server, if the mechanism has one, here or on another machine, and one or several
fresh clients.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from nearcall_lab.contract import DEFAULT_MAX_MESSAGE, LOOPBACK
from nearcall_lab.placement import Placement
from nearcall_lab.registry import Entrant
from nearcall_lab.workers import worker
from nearcall_lab.workers.competitor import Competitors
from nearcall_lab.workers.network import Relay
from nearcall_lab.workers.orphans import Orphans
from nearcall_lab.workers.worker import LaunchFailed, Part, Unsupported, Worker, end_family, tree
from nearcall_lab.workloads import MOST_SECRET


class FarServer(Part, Protocol):
    """A server on another machine, ready for requests."""

    address: str
    host: str
    """IPv4 address of its machine."""
    secret: int

    def traces(self) -> int:
        """What `traces_of_connections` counts, there."""
        ...

    def begin(self) -> None:
        """The timed part begins."""
        ...

    def conclude(self) -> dict[str, Any]:
        """The timed part is over: what was used there, as `engine.meter.Used`."""
        ...

    def log(self) -> bytes:
        """What its process has written so far, or the end of that; nothing where it cannot be had."""
        ...

    def here_ns(self, stamps_ns: Any) -> Any:
        """Stamps of its clock as this machine's, since `begin`."""
        ...


StartElsewhere = Callable[["Crew"], FarServer]
"""Starts the server of a crew on another machine. Raises `LaunchFailed`."""


class Crew:
    """A context manager that starts the processes and leaves nothing behind.

    Raises `LaunchFailed` with one line of reason when they cannot be started.
    """

    def __init__(
        self,
        entrant: Entrant,
        placement: Placement,
        clients: int = 1,
        same_process: bool = False,
        max_message: int = DEFAULT_MAX_MESSAGE,
        keep_logs: bool = False,
        host: str = LOOPBACK,
        start_elsewhere: StartElsewhere | None = None,
        make_relay: Callable[[], Relay] | None = None,
    ) -> None:
        """`host` is where a server that is started here listens."""
        self.entrant = entrant
        self.placement = placement
        self.token = f"nclab{uuid.uuid4().hex[:10]}"
        self.address = ""
        self.audited = (0, 0)
        """Requests that the clients had made in all, and those that the server had handled, after the last cell."""
        self.secret = 0
        """The number that typed replies carry and that only the server knows; 0 where the server is no process of its
        own.
        """
        self.left_behind: list[str] = []
        self.server: Worker | None = None
        self.clients: list[Worker] = []
        self.far: FarServer | None = None
        """The server, where it is on another machine; `server` is None then."""
        self.max_message = max_message
        self._host = host
        self.relay: Relay | None = None
        """The network between clients and server, where there is one."""
        self.probed: dict[str, float] = {}
        """What a probe saw of it."""
        self._start_elsewhere = start_elsewhere
        self._make_relay = make_relay
        self._count = clients
        self._alone = same_process or entrant.mechanism.same_process
        self._keep_logs = keep_logs
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self.token}-"))
        self._failed = False
        self._competitors: Competitors | None = None
        self._orphans = Orphans()

    def __enter__(self) -> Crew:
        try:
            self._start()
        except BaseException as error:
            self._give_up(error)
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._give_up(error)
        self.close()

    @property
    def the_server(self) -> Worker | FarServer | None:
        """The server's process, wherever it is; None where the clients' process is the server's."""
        return self.server or self.far

    @property
    def parts(self) -> list[Part]:
        """All of them, the server first, wherever it is."""
        return [*([self.the_server] if self.the_server else []), *self.clients]

    @property
    def workers(self) -> list[Worker]:
        """Those on this machine, the server first."""
        return [*([self.server] if self.server else []), *self.clients]

    @property
    def cpus(self) -> tuple[int, ...]:
        """Every CPU of this machine that one of the processes may use."""
        clients = (cpu for number in range(self._count) for cpu in self.placement.client_cpus(number))
        return tuple(sorted({*clients, *(() if self._start_elsewhere else self.placement.server)}))

    def _start(self) -> None:
        self._competitors = Competitors(self.placement.competitors())
        if self._start_elsewhere is not None:
            self.far = self._start_elsewhere(self)
            self.address, self.secret, self._host = self.far.address, self.far.secret, self.far.host
        elif not self._alone:
            self.server = self._worker("server", self.placement.server)
        if self._make_relay is not None:
            self._start_behind_relay(self._make_relay)
        for number in range(self._count):
            cpus = self.placement.client_cpus(number)
            if self._alone:  # both sides live in one process, which therefore gets both CPUs
                cpus = tuple(sorted({*cpus, *self.placement.server}))
            self.clients.append(self._worker("client", cpus, number))
        self._wait_for_server()
        for client in self.clients:
            client.ask(None, worker.START_TIMEOUT_S)

    def _wait_for_server(self) -> None:
        if self.server is None or self.address:
            return
        answer, _ = self.server.ask(None, worker.START_TIMEOUT_S)
        if not isinstance(answer.get("ready"), str):
            raise LaunchFailed(f"server: its first answer must be where it is ready, not {answer!r}"[:200])
        self.address = answer["ready"]
        self._tell_secret(self.server)

    def _start_behind_relay(self, make: Callable[[], Relay]) -> None:
        """The clients are told the relay's address, and believe the server to be on the loopback."""
        self._wait_for_server()
        self.relay = make()
        self.probed = self.relay.probe()
        self.address, self._host = self.relay.to(self.address, self._host), LOOPBACK

    def _tell_secret(self, server: Worker) -> None:
        """Send the server its secret. A program in another language that has no typed calls need not support this."""
        secret = 1 + secrets.randbelow(MOST_SECRET)
        with contextlib.suppress(Unsupported):
            server.ask({"do": "secret", "value": secret}, worker.START_TIMEOUT_S)
        self.secret = secret

    def processes(self) -> tuple[list[int], list[int]]:
        """Process ids of the clients' and of the server's side: workers, their descendants, and orphans of both.

        An orphan belongs to the worker whose session it is in. One that has left it is counted as the server's: that
        side is where a mechanism starts its daemons. Where there is no server, all are counted as the clients'.
        """
        clients = [client.process.pid for client in self.clients]
        servers = [self.server.process.pid] if self.server else []
        for orphan, session in self._orphans.found({*clients, *servers}).items():
            (servers if servers and session not in clients else clients).append(orphan)
        return [pid for root in clients for pid in tree(root)], [pid for root in servers for pid in tree(root)]

    def _worker(self, role: str, cpus: tuple[int, ...], number: int = 0) -> Worker:
        client, server = self.entrant.sides or (self.entrant, self.entrant)
        side = server if role == "server" else client
        return Worker(role, side, cpus, self._directory, self.token, number, self.max_message, self._host)

    def _give_up(self, error: BaseException) -> None:
        self._failed = True
        if self._keep_logs and isinstance(error, LaunchFailed) and not isinstance(error, Unsupported):
            if self.far is not None:
                self.keep_log("server", self.far.log())
            kept = Path(tempfile.mkdtemp(prefix="nearcall-lab-logs-"))
            for log in self._directory.glob("*.log"):
                shutil.copy(log, kept)
            error.logs = kept

    def keep_log(self, role: str, text: bytes) -> None:
        """Keep what a process on another machine wrote, beside what those here did."""
        (self._directory / f"{role}.log").write_bytes(text)

    def close(self) -> None:
        """End all processes and remove what they left. Safe to call twice."""
        for each in reversed(self.parts):
            self.left_behind += each.end(ask_first=not self._failed)
        self.server, self.far, self.clients = None, None, []
        if self._competitors is not None:
            self._competitors.end()
        if self.relay is not None:
            self.relay.end()
        self.left_behind += end_family([pid for orphan in self._orphans.found(set()) for pid in tree(orphan)])
        self._orphans.release()
        for leftover in Path("/dev/shm").glob(f"*{self.token}*"):
            self.left_behind.append(str(leftover))
            with contextlib.suppress(OSError):
                leftover.unlink()
        shutil.rmtree(self._directory, ignore_errors=True)
