"""One connection to another machine for a whole run: OpenSSH's own client, with its configuration and keys."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearcall_lab.hosts import ship, station
from nearcall_lab.hosts.problem import HostFailed, Step, why_no_connection
from nearcall_lab.scenario.host import Host
from nearcall_lab.workers.protocol import Channel, PeerGone, Timeout

COMMAND = "NEARCALL_LAB_SSH"
"""Environment variable with the command in place of ``ssh``, such as ``ssh -F FILE``."""
LEASE_S = 60.0
"""Seconds of silence after which what runs there ends."""
BEAT_S = 15.0
_CONNECT_LIMIT_S = 30.0
_INSTALL_LIMIT_S = 600.0
_END_S = 10.0
_OLDEST = (3, 10)
_MOST_GREETING = 1 << 16

_OPTIONS = (
    # No question can be answered here; `ssh` itself asks when one tries it, as the messages say.
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    # A peer that is gone without a word is noticed after 15 s.
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    *("-T", "-a", "-x", "-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none"),
    *("-o", "ControlPersist=no"),
)


class Session:
    """One command there, and its channel. Safe to tell from two threads."""

    def __init__(self, host: Host, command: Sequence[str], remote: str) -> None:
        self.host = host
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the session
        try:
            # In a session of its own, so that Ctrl-C does not end it before the lab has.
            self.process = subprocess.Popen(
                [*command, remote],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._said.close()
            raise HostFailed(host, "connect", f"{command[0]}: {error.strerror}", "install OpenSSH's client") from None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self.channel = Channel(self._output.fileno(), self._input.fileno())
        self._telling = threading.Lock()

    def tell(self, message: dict[str, Any], blob: bytes = b"") -> None:
        """Raises `PeerGone`."""
        with self._telling:
            self.channel.send(message, blob)

    def ask(self, message: dict[str, Any], step: Step, timeout: float, blob: bytes = b"") -> dict[str, Any]:
        """One question to the station. Raises `HostFailed`."""
        try:
            self.tell(message, blob)
            answer, _ = self.channel.receive(timeout)
        except PeerGone:
            raise self.broken(step) from None
        except (Timeout, ValueError) as error:
            raise HostFailed(self.host, step, str(error) or "no answer", "is that machine overloaded?") from None
        if "error" in answer:
            raise HostFailed(self.host, answer.get("step", step), answer["error"], answer.get("todo", ""))
        return answer

    def broken(self, step: Step) -> HostFailed:
        """Why the channel ended."""
        status, said = self.ended(), self.said()
        if status == 255 and step == "connect":
            return why_no_connection(self.host, said)
        lines = said.strip().splitlines()
        what = f"the connection broke{f': {lines[-1]}' if lines else ''}"
        return HostFailed(self.host, step, what, "what ran there has ended, or will within a minute; --resume goes on")

    def ended(self) -> int | None:
        """The status that the command ended with, if it does so at once."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        return self.process.poll()

    def said(self) -> str:
        """What came on the standard error."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def close(self, seconds: float) -> None:
        """End the input, at which what runs there ends, and wait for it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._input.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._output.close()
        self._said.close()


class Connection:
    """A machine that is ready to start servers. Raises `HostFailed` where it cannot be made so."""

    def __init__(self, host: Host, cargo: ship.Cargo) -> None:
        self.host = host
        self._directory = Path(tempfile.mkdtemp(prefix="nclab-ssh-"))
        self._sessions: list[Session] = []
        self._over = threading.Event()
        try:
            self._station = self._open_station()
            self.about = self._station.ask({"do": "look", "lease_s": LEASE_S}, "find Python", _CONNECT_LIMIT_S)
            self._must_be_usable()
            self.address = self._address()
            self._prepare(cargo)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._beat, name="lease of another machine", daemon=True).start()

    def _ssh(self) -> list[str]:
        command = shlex.split(os.environ.get(COMMAND, "")) or ["ssh"]
        port = ("-p", str(self.host.port)) if self.host.port else ()
        user = ("-l", self.host.user) if self.host.user else ()
        return [*command, *_OPTIONS, "-S", str(self._directory / "control"), *port, *user]

    def _pythons(self) -> list[str]:
        """Those that are tried there, in turn."""
        return [self.host.python] if self.host.python else ["python{}.{}".format(*sys.version_info), "python3"]

    def _open_station(self) -> Session:
        """The first session, which the others share the connection of. It lasts as long as its input."""
        chosen = [shlex.quote(each) for each in self._pythons()]
        # The program is read up to a zero byte; where the input ends within it, it has no last line, and does nothing.
        read = "import os;exec(bytes().join(iter(lambda:os.read(0,1)or bytes(1),bytes(1))))"
        tried = " ".join(f'command -v {each} >/dev/null 2>&1 && exec {each} -c "{read}";' for each in chosen)
        remote = f"exec sh -c {shlex.quote(tried + ' exit 127')}"
        session = Session(self.host, [*self._ssh(), "-M", "--", self.host.name], remote)
        self._sessions.append(session)
        source = Path(station.__file__).read_bytes()
        try:
            with contextlib.suppress(OSError):  # why it is gone, reading says
                _write(session, source + b"\0")
            session.channel.skip_to(station.MARK, _CONNECT_LIMIT_S, _MOST_GREETING)
        except (PeerGone, ValueError, Timeout) as error:
            if session.ended() == 127:
                names = " and no ".join(self._pythons())
                todo = "install one there, or name one by ?python=/path/to/python"
                raise HostFailed(self.host, "find Python", f"there is no {names}", todo) from None
            if session.process.poll() is None:
                raise HostFailed(self.host, "find Python", str(error), "does its Python start?") from None
            if session.process.returncode != 255:
                what = (session.said().strip().splitlines() or ["its Python ended at once"])[-1]
                raise HostFailed(self.host, "find Python", what, "name another by ?python=/path/to/python") from None
            raise session.broken("connect") from None
        return session

    def _must_be_usable(self) -> None:
        version = tuple(self.about["version"])
        if version[:2] < _OLDEST or self.about["implementation"] != platform.python_implementation():
            what = f"{self.about['executable']} is {self.about['implementation']} {_dotted(version)}"
            todo = f"the lab needs CPython {_dotted(_OLDEST)} or newer there: name one by ?python=/path/to/python"
            raise HostFailed(self.host, "find Python", what, todo)
        if self.about["system"] != "Linux":
            raise HostFailed(self.host, "find Python", f"it runs {self.about['system']}", "the lab needs Linux there")

    def remark(self) -> str:
        """How it differs from this machine where that matters for what is compared; empty where it does not."""
        here, there = sys.version_info[:3], tuple(self.about["version"])
        return f"its Python is {_dotted(there)}, here it is {_dotted(here)}" if here != there else ""

    def _address(self) -> str:
        found: str = self.host.address or self.about["address"]
        if not found or ":" in found:
            what = f"ssh reached it at {found or 'an unknown address'}, and servers listen at an IPv4 address"
            raise HostFailed(self.host, "connect", what, "name one that this machine reaches: ?address=10.0.0.2")
        return found

    def _prepare(self, cargo: ship.Cargo) -> None:
        request = {
            "do": "keep",
            "digest": cargo.digest(f"{self.about['executable']} {self.about['version']} {self.about['machine']}"),
            "directory": self.host.directory,
            "requirements": cargo.requirements,
        }
        self._kept = self._station.ask(request, "copy", _INSTALL_LIMIT_S, cargo.files)

    @property
    def source(self) -> str:
        """Where the lab's files are there."""
        return str(self._kept["source"])

    def start_agent(self) -> Session:
        """A session over the same connection, with an agent in it."""
        environment = f"PYTHONPATH={shlex.quote(self.source)}"
        remote = f"exec env {environment} {shlex.quote(self._kept['python'])} -m nearcall_lab.hosts.agent"
        # Where the first one's connection is gone, `ssh` would make another, by this command.
        shared = ("-o", "ControlMaster=no", "-o", "ProxyCommand=exit 255")
        session = Session(self.host, [*self._ssh(), *shared, "--", self.host.name], remote)
        self._sessions.append(session)
        return session

    def alive(self) -> bool:
        """Whether the connection is still there."""
        return self._station.process.poll() is None

    def end(self, session: Session) -> None:
        """Close one of the sessions, at which what runs in it ends. Safe to call twice."""
        if session in self._sessions:
            self._sessions.remove(session)
            session.close(_END_S)

    def close(self) -> None:
        """End all that runs there. Safe to call twice."""
        self._over.set()
        # The first session carries the others, so that it is the last.
        for session in reversed(self._sessions):
            session.close(_END_S)
        self._sessions.clear()
        for file in self._directory.glob("*"):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._directory.rmdir()

    def _beat(self) -> None:
        """Renews the leases."""
        while not self._over.wait(BEAT_S):
            for session in list(self._sessions):
                with contextlib.suppress(PeerGone, OSError, ValueError):  # it has just been closed
                    session.tell({"do": "beat"})


def _write(session: Session, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(session.process.stdin.fileno(), view) :]  # type: ignore[union-attr]


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
