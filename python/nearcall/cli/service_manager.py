"""What a service manager, such as systemd, and a server tell each other: sockets that were passed, and how it goes."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import MutableMapping

from . import UsageError

__all__ = ["ServiceManager", "passed_sockets"]

FIRST = 3
"""The first descriptor that is passed."""


def passed_sockets(environment: MutableMapping[str, str] = os.environ) -> list[int]:
    """The listening sockets that the manager has passed (``LISTEN_FDS``), if they are for this process.

    The variables are removed: processes that this one starts were passed nothing.

    Raises:
        UsageError: the variables are malformed.
    """
    count, of = (environment.pop(name, "") for name in ("LISTEN_FDS", "LISTEN_PID"))
    environment.pop("LISTEN_FDNAMES", None)
    if not count or of != str(os.getpid()):
        return []
    if not count.isdecimal():
        raise UsageError(f"LISTEN_FDS must be a number of descriptors, not {count!r}")
    passed = list(range(FIRST, FIRST + int(count)))
    for number in passed:
        try:
            os.set_inheritable(number, False)
        except OSError:
            raise UsageError(f"LISTEN_FDS={count}, and descriptor {number} is not open") from None
    return passed


class ServiceManager:
    """Who waits to hear from this process, if anybody does (``NOTIFY_SOCKET``)."""

    def __init__(self) -> None:
        # Of this process only: what it starts has nothing to say.
        path = os.environ.pop("NOTIFY_SOCKET", "")
        self._path = path if path.startswith(("/", "@")) else ""

    def ready(self) -> None:
        """Clients can connect; or a reload is over."""
        self._tell("READY=1")

    def reloading(self, begins: bool) -> None:
        """The workers begin to be replaced, or that is over."""
        if begins:
            # With the time of now: systemd tells by it which of several reloads this is.
            self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        else:
            self.ready()

    def stopping(self) -> None:
        """Serving ends; calls under way may go on for a while."""
        self._tell("STOPPING=1")

    def _tell(self, what: str) -> None:
        if not self._path:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.connect("\0" + self._path[1:] if self._path[0] == "@" else self._path)
                manager.send(what.encode())
        except OSError as error:
            print(f"cannot tell the service manager at {self._path}: {error}", file=sys.stderr, flush=True)
