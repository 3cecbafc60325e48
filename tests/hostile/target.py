"""A server under attack and the honest client beside it, as the tests see them; what is asked of both."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from ..e2e import h2_raw
from ..e2e.conftest import TRANSPORTS
from ..e2e.h2_raw import RawClient
from ..e2e.warm import ROOT, WarmProcess
from ..survival.observing import Holdings
from . import raw
from .frames import CALL, METADATA, Frame, frame, pairs
from .honest import HonestProcess
from .lateness import Lateness
from .server import MAX_MEMORY
from .services import TOKEN

BUDGET = 2 * MAX_MEMORY + (64 << 20)
"""Bytes by which the server may grow: what peers can make it keep, the copies that handlers get, and what the
allocator does not give back."""
LOG = 4 << 20
"""Bytes that one attack may make the server write to its log."""
SECONDS = float(os.environ.get("NEARCALL_HOSTILE_SECONDS", "0"))
"""How long an attack lasts in the long form, which is also larger. 0: the short form."""
IN_SHORT = 0.15
BOUND = 1.0 if SECONDS else 5.0
"""Seconds that no honest call takes. How long they took is told at the end of the run. The short form runs beside other
tests, where each thread of the server may have a tenth of a CPU: there it only tells what hangs from what is slow."""


class Broken(AssertionError):
    """The server is not as it should be, and no use to another attack."""


class Server:
    """A server process and its honest client. Both are ended by :meth:`close`, the server by SIGTERM."""

    def __init__(self, url: str, options: dict[str, Any], *, with_clocks: bool = SECONDS > 0) -> None:
        self.options = options
        self._log = tempfile.NamedTemporaryFile(prefix="nc-hostile-", suffix=".log")  # noqa: SIM115 - as long as this
        self.clocks: dict[str, Lateness] = {}
        given = options
        if with_clocks:
            self.clocks = {name: Lateness(Path(f"{self._log.name}.{name}")) for name in ("interpreter", "handlers")}
            given = options | {"clocks": {name: str(clock.path) for name, clock in self.clocks.items()}}
        program = "from tests.hostile.server import main; main()"
        self._process = WarmProcess(program, json.dumps(given), url, stdin=subprocess.DEVNULL, stderr=self._log)
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            assert line, f"no server: {self.log()}"
            self.url: str = json.loads(line)[0]
            self.honest = HonestProcess(self.url, bool(options.get("token")))
        except BaseException:
            self.kill()
            raise
        assert self.honest.newcomer()["failure"] is None
        self.broken = False
        self.at_rest = self.resident()
        self.held = Holdings.of(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def log(self, last: int = 2000) -> str:
        size = os.path.getsize(self._log.name)
        with open(self._log.name, "rb") as file:
            file.seek(max(0, size - last))
            return file.read().decode(errors="backslashreplace")

    def log_size(self) -> int:
        return os.path.getsize(self._log.name)

    def resident(self, what: str = "VmRSS") -> int:
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None, what
        return int(found[1]) << 10

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def stacks(self) -> str:
        """Where all threads are: a file with that."""
        path = ROOT / "out" / "hostile" / f"stacks-{self.pid}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "there is no gdb here\n"
        if shutil.which("gdb"):
            command = ["gdb", "-p", str(self.pid), "-batch", "-ex", "thread apply all bt 25"]
            with contextlib.suppress(subprocess.TimeoutExpired):
                text = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False).stdout
        path.write_text(text)
        return str(path.relative_to(ROOT))

    def terminate(self, seconds: float = 10.0) -> None:
        """As an operator does. Raises Broken if it does not end."""
        self._process.terminate()
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Broken(f"SIGTERM does not end it; see {self.stacks()}") from None
        if status != 0:
            raise Broken(f"SIGTERM ended it with {status}: {self.log()}")

    def kill(self) -> None:
        if self.alive():
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        while self.clocks:
            self.clocks.popitem()[1].close()
        self._log.close()

    def close(self) -> None:
        try:
            self.honest.close()
            if self.alive() and not self.broken:
                self.terminate()
        finally:
            self.kill()
            # A server that had to be killed leaves its socket, which the next one would take over.
            scheme = self.url.partition("://")[0]
            if scheme in ("unix", "grpc+unix", "shm"):
                path = str(raw.address(self.url)[1])
                for name in (path, f"{path}.lock", f"{path.removesuffix('.sock')}.lock"):
                    Path(name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Attack:
    """One attack: what it does and against which server."""

    name: str
    run: Callable[[Scene], None]
    over: tuple[str, ...]
    server: dict[str, Any]
    budget: int
    terminate: bool


ALL = ("unix", "tcp", "tls", "shm")
SOCKETS = ("unix", "tcp", "tls")
GRPC = ("grpc+unix", "grpc", "grpcs")
URLS: dict[str, Callable[[str, Path], str]] = TRANSPORTS | {
    "grpc+unix": lambda name, directory: f"grpc+unix://{directory}/{name}.grpc",
    "grpc": lambda name, directory: "grpc://127.0.0.1:0",
    "grpcs": lambda name, directory: "grpcs://127.0.0.1:0",
}
"""A URL to serve for each, as in the end-to-end tests."""


class Table:
    """The attacks of one file, over these transports unless an attack names some."""

    def __init__(self, over: tuple[str, ...] = ALL) -> None:
        self.attacks: list[Attack] = []
        self._over = over

    def add(
        self,
        *over: str,
        server: dict[str, Any] | None = None,
        budget: int = BUDGET,
        terminate: bool = False,
    ) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
        """Adds a function as an attack.

        Args:
            over: The transports; the table's unless some are named.
            server: Options of the server.
            budget: Bytes by which the server may grow.
            terminate: Whether to end the server while the attackers are connected.
        """

        def register(function: Callable[[Scene], None]) -> Callable[[Scene], None]:
            name = function.__name__
            self.attacks.append(Attack(name, function, over or self._over, server or {}, budget, terminate))
            return function

        return register


def every(table: Table) -> pytest.MarkDecorator:
    """Parameters for a test of all attacks of a table, those of one transport together."""
    over = [in_turn(attack.over, number) for number, attack in enumerate(table.attacks)]
    found = [
        pytest.param(attack, transport, id=f"{attack.name}-{transport}")
        for transport in ALL + GRPC
        for attack, transports in zip(table.attacks, over, strict=True)
        if transport in transports
    ]
    return pytest.mark.parametrize(("attack", "transport"), found)


def in_turn(over: tuple[str, ...], number: int) -> list[str]:
    """Which of its transports one of a table's runs over: in the long form each; in the short one shared memory and one
    kind of socket, the next kind for the next number. What is behind the sockets is the same for all.
    """
    if SECONDS:
        return [*over]
    sockets = [transport for transport in over if transport in SOCKETS + GRPC]
    others = [transport for transport in over if transport not in SOCKETS + GRPC]
    return [*others, sockets[number % len(sockets)]] if sockets else others


@dataclass
class Scene:
    """An attack in progress: what the attacker has."""

    server: Server
    transport: str
    opened: list[Any] = field(default_factory=list)
    closers: list[Callable[[], object]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def seconds(self) -> float:
        """How long to go on with what goes on."""
        return SECONDS or IN_SHORT

    def amount(self, short: int, long: int) -> int:
        return long if SECONDS else short

    def connect(self, **options: Any) -> raw.Peer:
        """An attacker with a proper handshake; connected until all was looked at."""
        peer = raw.connect(self.url, **options)
        self.opened.append(peer)
        return peer

    def dial(self, **options: Any) -> Any:
        """A socket without a handshake."""
        connection = raw.dial(self.url, **options)
        self.opened.append(connection)
        return connection

    def grpc(self, *, window: int = 65_535) -> RawClient:
        """An attacker that has greeted as gRPC's clients do; connected until all was looked at."""
        client = RawClient(raw.dial(self.url), window=window)
        self.opened.append(client)
        return client

    def keep(self, close: Callable[[], object]) -> None:
        """To be closed with the attackers."""
        self.closers.append(close)

    def call(self, peer: raw.Peer, method: str, payload: Any = b"", **options: Any) -> Frame:
        """A call; with the token, if one is needed."""
        if self.server.options.get("token"):
            token = pairs((b"authorization", f"Bearer {TOKEN}".encode()))
            options["metadata"] = options.get("metadata", b"") + token
            options["flags"] = options.get("flags", 0) | METADATA
        return frame(CALL, payload, method=peer.methods[method], **options)

    def close(self) -> None:
        for one in self.opened:
            with contextlib.suppress(OSError):
                one.close()
        for close in self.closers:
            close()


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """In the long form attackers get the processors' time that nobody else wants, as if they were on another machine.
    What an honest client waits is then what their bytes do to the server, and not that they run here. Root only, who
    may take that back.
    """
    if not SECONDS or os.geteuid():
        yield
        return
    # Linux's priorities are a thread's, and those of the threads that it starts.
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


class Trial:
    """Runs one attack: before, during, after. Fails with all that was not as it should be, in one message."""

    def __init__(self, attack: Attack, server: Server, transport: str, bystander: Server | None) -> None:
        self.attack = attack
        self.server = server
        self.transport = transport
        self.bystander = bystander
        self.complaints: list[str] = []
        self.row: dict[str, Any] = {"attack": attack.name, "transport": transport}

    def complain(self, what: str, *, broken: bool = False) -> None:
        self.complaints.append(what)
        self.server.broken |= broken

    def run(self) -> dict[str, Any]:
        """What was measured. Raises AssertionError."""
        server = self.server
        server.forget_peak()
        self.row["kept"] = server.resident() - server.at_rest
        log = server.log_size()
        server.honest.begin()
        if self.bystander is not None:
            self.bystander.honest.begin()
        for clock in server.clocks.values():
            clock.begin()
        scene = Scene(server, self.transport)
        begun = time.monotonic()
        try:
            try:
                with _elsewhere():
                    self.attack.run(scene)
            except (AssertionError, OSError, raw.Gone, h2_raw.Gone) as error:
                self.complain(f"the attack itself: {type(error).__name__}: {error}; the server says: {server.log()}")
            self.row["seconds"] = time.monotonic() - begun
            # The attackers are there still.
            self._look("beside the attackers")
            if self.attack.terminate and not server.broken:
                server.honest.close()
                try:
                    server.terminate()
                except Broken as error:
                    self.complain(str(error))
                server.broken = True
        finally:
            scene.close()
            if self.bystander is not None:
                self.bystander.honest.rest()
        if not server.broken:
            self._look("after the attack")
            server.honest.rest()
        if server.alive() and not server.broken:
            self._comes_back()
        if (wrote := server.log_size() - log) > LOG:
            self.complain(f"{wrote >> 20} MiB of log")
        if "panicked at" in (said := server.log(1 << 16)):
            self.complain(f"a panic: {said[said.index('panicked at') :][:300]}")
        if self.complaints:
            raise AssertionError(f"{self.attack.name} over {self.transport}: " + "; ".join(self.complaints))
        return self.row

    def _look(self, when: str) -> None:
        server, row = self.server, self.row
        if not server.alive():
            self.complain(f"{when}: the server is dead: {server.log()}", broken=True)
            return
        calls = server.honest.report()["calls"]
        end = time.monotonic() + 3 * BOUND
        while True:
            # Nothing that is under way now began before the attack was over.
            report = server.honest.report()
            if report["calls"] >= calls + 20 or time.monotonic() > end:
                break
            time.sleep(0.005)
        row |= {name: report[name] for name in ("calls", "p50", "p99", "longest", "failures")}
        later = report["later_than_p99"]
        row |= {name: clock.after(later) for name, clock in server.clocks.items()}
        if self.bystander is not None:
            row["bystander"] = self.bystander.honest.report(later)["but_for"]
        row["grown"] = max(row.get("grown", 0), server.resident("VmHWM") - server.at_rest)
        if report["failures"]:
            self.complain(f"{when}: {report['failures']} honest calls failed: {report['first_failures']}", broken=True)
        if report["calls"] < calls + 20:
            self.complain(f"{when}: the honest client hangs; see {server.stacks()}", broken=True)
        elif report["longest"] > BOUND:
            self.complain(f"{when}: an honest call took {report['longest']:.2f} s")
        if row["grown"] > self.attack.budget:
            self.complain(f"{when}: the server grew by {row['grown'] >> 20} MiB, over {self.attack.budget >> 20} MiB")
            self.server.broken = True
        if not server.broken:
            new = server.honest.newcomer()
            row["newcomer"] = max(row.get("newcomer", 0.0), new["took"])
            if new["failure"] is not None:
                self.complain(f"{when}: a newcomer is not served: {new['failure']}; see {server.stacks()}", broken=True)
            elif new["took"] > BOUND:
                self.complain(f"{when}: a newcomer waited {new['took']:.2f} s")

    def _comes_back(self) -> None:
        """To the descriptors, threads and regions it held at the beginning."""
        end = time.monotonic() + 10
        while not Holdings.of(self.server.pid).within(self.server.held, threads=40):
            if time.monotonic() > end:
                self.complain(f"it holds {Holdings.of(self.server.pid)} after {self.server.held}", broken=True)
                return
            time.sleep(0.01)


class Stopped:
    """Sends processes to sleep and lets them go on; use it in a ``with`` statement, which lets them go on."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def __enter__(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
