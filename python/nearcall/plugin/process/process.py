"""A plugin's process: how it is started, watched and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...client.child import numbered

__all__ = ["Ended", "PluginProcess", "environment"]

_KEPT = ("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "PATH", "TZ")


def environment() -> dict[str, str]:
    """The variables that plugins see: only those of the host's variables that tell the user's home, language, path and
    time zone.
    """
    return {name: value for name in _KEPT if (value := os.environ.get(name)) is not None}


class Ended(NamedTuple):
    """How a process ended."""

    status: int
    """Its exit status; if a signal ended it, minus the signal's number."""

    def __str__(self) -> str:
        if self.status >= 0:
            return f"ended with status {self.status}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = "unknown"
        return f"was ended by signal {-self.status} ({name})"


class PluginProcess:
    """A process in a session of its own, whose standard input is a connection to this one.

    It must be made by a thread that lives as long as the process may: the system kills the process when that thread
    ends.

    Args:
        command: The program and its arguments.
        cwd: Where it runs.
        env: Its environment.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self.connection = numbered(ours)
        with numbered(theirs) as end:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=end.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,
                )
            except BaseException:
                self.connection.close()
                raise
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.pipes = (self._process.stdout, self._process.stderr)
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except BaseException:
            self._process.kill()
            self._process.wait()
            for stream in (self.connection, self._process.stdout, self._process.stderr):
                stream.close()
            raise
        self._closed = False
        self._ending = threading.Lock()

    @property
    def url(self) -> str:
        """The URL for a channel to it."""
        return f"fd://{self.connection.fileno()}"

    def kill(self) -> None:
        """Kills the process, and processes that it has started and that are still in its group. Harmless when it has
        ended.
        """
        with self._ending:
            if not self._closed:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def bury(self) -> Ended:
        """Called when the process has ended: kills what is left of its group, and frees everything. Until then its id
        cannot be reused.
        """
        self.kill()
        with self._ending:
            self._closed = True
        status = self._process.wait()
        os.close(self.pidfd)
        for pipe in self.pipes:
            pipe.close()
        self.connection.close()
        return Ended(status)
