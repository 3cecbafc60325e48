"""An ssh server for the tests: OpenSSH's own, run by whoever runs the tests, on the loopback, with keys of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

MARK = "NEARCALL_LAB_TEST_OF_HOSTS"
"""Variable in the environment of all that the server starts."""


def program() -> str:
    """Where sshd is. Skips the test where it is not."""
    found = os.environ.get("NEARCALL_LAB_SSHD") or shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not found or shutil.which("ssh") is None:
        pytest.skip("no sshd or ssh here: make ssh-server installs them (Debian)")
    return found


@dataclass
class Sshd:
    """One that listens."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    mark: str
    address: str = "127.0.0.1"

    def command(self, key: str = "user", known: str = "known") -> str:
        """For `nearcall_lab.hosts.connection.COMMAND`."""
        files = f"-o IdentityFile={self.directory / key} -o UserKnownHostsFile={self.directory / known}"
        return f"ssh -F /dev/null -o IdentitiesOnly=yes -o IdentityAgent=none {files}"

    def started(self) -> list[int]:
        """Processes that it has started for somebody, and what these have started."""
        return processes_with(self.mark)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def processes_with(mark: str) -> list[int]:
    """Those with the mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def nothing_stays(mark: str, seconds: float = 30.0) -> list[int]:
    """Waits until no process with the mark is left; returns those that are."""
    until = time.monotonic() + seconds
    while (left := processes_with(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def start(directory: Path, before: tuple[str, ...] = (), address: str = "127.0.0.1") -> Sshd:
    """Starts one; `before` is a command that is to run it."""
    sshd = program()
    if os.getuid() == 0:  # the server insists on it then
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    directory.chmod(0o700)
    for key in ("host", "user", "wrong"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mark = uuid.uuid4().hex
    settings = {
        "Port": port,
        "ListenAddress": address,
        "HostKey": directory / "host",
        "AuthorizedKeysFile": directory / "user.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "yes",
        "PidFile": "none",
        "SetEnv": f"{MARK}={mark}",
    }
    (directory / "config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    public = " ".join((directory / "host.pub").read_text().split()[:2])
    (directory / "known").write_text(f"[{address}]:{port} {public}\n")
    (directory / "nobody-known").touch()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*before, sshd, "-D", "-e", "-f", directory / "config"], stderr=log)
    until = time.monotonic() + 20
    while b"Server listening" not in (directory / "log").read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            process.wait()
            pytest.skip(f"sshd does not start here: {(directory / 'log').read_text().strip()[-300:]}")
        time.sleep(0.02)
    return Sshd(process, port, directory, mark, address)
