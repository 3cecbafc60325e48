"""One child process of a launch, with its channel and its log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from nearcall_lab.contract import DEFAULT_MAX_MESSAGE, LOOPBACK
from nearcall_lab.placement import on_cpus
from nearcall_lab.registry import Entrant
from nearcall_lab.workers.protocol import Channel, PeerGone, Timeout

START_TIMEOUT_S = 15.0
_LOOK_EVERY_S = 0.25


class LaunchFailed(Exception):
    """A mechanism did not start, did not answer, or answered wrongly; the message goes into the table."""

    logs: Path | None = None
    """Directory with what the workers of the failed launch wrote, one file each. The code that catches this exception
    has to remove it.
    """


class Unsupported(LaunchFailed):
    """Not a failure: the mechanism does not claim to be able to do this."""


class Part(Protocol):
    """A process of a launch, on this machine or on another."""

    def ask(
        self, message: dict[str, Any] | None, timeout: float, beside: Sequence[Part] = ()
    ) -> tuple[dict[str, Any], bytes]: ...

    def must_live(self, note: str = "") -> None: ...

    def gone_within(self, seconds: float) -> None: ...

    def end(self, ask_first: bool) -> list[str]: ...


def start(
    command: Sequence[str], log: IO[bytes], descriptors: tuple[int, ...], directory: str | None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, which gets these descriptors under the numbers that they have here."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=descriptors,
        start_new_session=True,
        cwd=directory,
    )


class Worker:
    """One child process with its channel and its log."""

    def __init__(
        self,
        role: str,
        entrant: Entrant,
        cpus: tuple[int, ...],
        directory: Path,
        token: str,
        number: int = 0,
        max_message: int = DEFAULT_MAX_MESSAGE,
        host: str = LOOPBACK,
    ) -> None:
        self.role = f"{role} {number}" if number else role
        self.log = directory / f"{self.role.replace(' ', '-')}.log"
        # No pipe: its other end could be opened in /proc by any process of the same user, and the secret read there.
        to_child, from_parent = (end.detach() for end in socket.socketpair())
        to_parent, from_child = os.pipe()
        config = {
            "parent": os.getpid(),
            "cpus": list(cpus),
            "module": entrant.module,
            "mechanism": entrant.mechanism.name,
            "variant": entrant.mechanism.variant,
            "directory": str(directory),
            "token": token,
            "max_message": max_message,
            "host": host,
            "read_fd": to_child,
            "write_fd": from_child,
        }
        program = entrant.program or (sys.executable, "-m", "nearcall_lab.workers")
        # Some runtimes make as many threads as there are CPUs when they start, and some have no way to pin themselves.
        with self.log.open("wb") as log, on_cpus(cpus):
            try:
                self.process = start(
                    [*program, role, json.dumps(config)], log, (to_child, from_child), entrant.directory or None
                )
            except OSError as error:
                for descriptor in (from_parent, to_parent):
                    os.close(descriptor)
                raise LaunchFailed(f"{role} does not start: {error}") from None
            finally:
                os.close(to_child)
                os.close(from_child)
        self.channel = Channel(to_parent, from_parent)

    def tell(self, message: dict[str, Any]) -> None:
        """Send `message`; `answer` fetches what comes back."""
        try:
            self.channel.send(message)
        except PeerGone:
            raise LaunchFailed(f"{self.role} ended unexpectedly{self._last_words()}") from None

    def answer(self, timeout: float, beside: Sequence[Part] = ()) -> tuple[dict[str, Any], bytes]:
        """The next answer; every way to fail becomes `LaunchFailed`.

        If a worker among `beside` ends meanwhile, that is given as the reason, whatever this worker reports: a client
        whose server died may report anything, or wait for ever.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer, blob = self.channel.receive(min(_LOOK_EVERY_S, max(0.0, deadline - time.monotonic())))
                break
            except PeerGone:
                raise LaunchFailed(f"{self.role} ended unexpectedly{self._last_words()}") from None
            except ValueError as reason:
                why = f"{self.role} sent something that is not a message ({reason})"
                raise LaunchFailed(f"{why}{self._last_words()}"[:400]) from None
            except Timeout:
                for other in beside:
                    other.must_live()
                if time.monotonic() >= deadline:
                    raise LaunchFailed(
                        f"{self.role} did not answer within {timeout:.0f} s{self._last_words()}"
                    ) from None
        if "unsupported" in answer:
            raise Unsupported(str(answer["unsupported"]))
        if "error" in answer:
            for other in beside:
                other.gone_within(0.1)
                other.must_live(f"; {self.role}: {answer['error']}")
            raise LaunchFailed(f"{self.role}: {answer['error']}")
        return answer, blob

    def ask(
        self, message: dict[str, Any] | None, timeout: float, beside: Sequence[Part] = ()
    ) -> tuple[dict[str, Any], bytes]:
        """Send `message` (if any) and wait for the answer."""
        if message is not None:
            self.tell(message)
        return self.answer(timeout, beside)

    def must_live(self, note: str = "") -> None:
        """Raise `LaunchFailed` if the process has ended."""
        if self.process.poll() is not None:
            raise LaunchFailed(f"{self.role} ended unexpectedly{self._last_words()}{note}")

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

    def end(self, ask_first: bool) -> list[str]:
        """End the process and all its descendants: first by a request, then by signal. Returns when they have ended.

        Returned are the names of processes that had to be ended although their parent was gone: the mechanism left them
        behind.
        """
        family = tree(self.process.pid)[1:]
        if ask_first and self.process.poll() is None:
            with contextlib.suppress(PeerGone):
                self.channel.send({"do": "stop"})
            self.gone_within(2.0)
        if self.process.poll() is None:
            self.process.terminate()
            self.gone_within(1.0)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self.channel.close()
        return end_family(family)

    def gone_within(self, seconds: float) -> None:
        """Wait that long at most for the process to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)


def tree(root: int) -> list[int]:
    """Process ids of a process and of all its descendants; only `root` itself if it has ended."""
    try:
        return [root, *(process.pid for process in psutil.Process(root).children(recursive=True))]
    except psutil.Error:
        return [root]


def end_family(pids: list[int]) -> list[str]:
    """End processes that have had time to end by themselves; returns the names of those that were still running."""
    family = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            family.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(family, timeout=0.5 if family else 0)
    names = []
    for process in alive:
        with contextlib.suppress(psutil.Error):
            names.append(f"process {process.name()}")
            process.kill()
    psutil.wait_procs(alive, timeout=2.0)
    return names
