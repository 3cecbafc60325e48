"""The messages between a worker and its parent about the server's health: a name and a state in each."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

from ..log import WARNING, log

__all__ = ["ParentsBoard", "WorkersBoard", "new_board"]

_LONGEST = 1 << 14
"""Longest message, bytes: a name of 1000 characters in JSON, and some room."""
_PATIENCE = 5.0
"""Seconds that a worker waits for a parent that does not read."""


def new_board() -> tuple[ParentsBoard, WorkersBoard]:
    """The two ends of a board. Messages keep their boundaries, and stay in order."""
    parents, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parents.setblocking(False)
    workers.settimeout(_PATIENCE)
    return ParentsBoard(parents), WorkersBoard(workers)


class _Board:
    """One end of a board."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.open = True
        """Whether messages may still arrive."""

    def heard(self) -> Iterator[tuple[str, bool]]:
        """The messages that have arrived."""
        while True:
            try:
                message = self.end.recv(_LONGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self.open = False
                return
            service, serving = json.loads(message)
            yield service, serving

    def close(self) -> None:
        """Closes this end."""
        self.open = False
        self.end.close()


class WorkersBoard(_Board):
    """The worker's end."""

    def tell(self, service: str, serving: bool) -> None:
        """Tells the parent, which tells the other workers. Any thread may call it."""
        try:
            self.end.send(_message(service, serving))
        except TimeoutError:
            log(WARNING, "the other workers have not heard about the health of '%s': their parent is stuck", service)
        except OSError:
            pass  # the parent is gone, or ends all workers


class ParentsBoard(_Board):
    """The parent's end, which never waits."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        self.untold: dict[str, bool] = {}
        """The states that were not sent yet: for each name the latest."""

    def tell(self, service: str, serving: bool) -> None:
        """Tells the worker, as soon as there is room for the message."""
        self.untold[service] = serving
        self.flush()

    def flush(self) -> None:
        """Sends as many states as there is room for. A signal's handler may call :meth:`tell` in the middle of it."""
        while self.open and self.untold:
            service, serving = next(iter(self.untold.items()))
            try:
                self.end.send(_message(service, serving))
            except BlockingIOError:
                return
            except OSError:
                self.untold.clear()
                return
            with contextlib.suppress(KeyError):
                if self.untold[service] is serving:
                    del self.untold[service]


def _message(service: str, serving: bool) -> bytes:
    return json.dumps([service, serving]).encode()
