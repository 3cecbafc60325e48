"""What a worker and its parent tell each other of the server's health: a name and a state in each message."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

from ..log import WARNING, log

__all__ = ["ParentsBoard", "WorkersBoard", "new_board"]

_LONGEST = 1 << 14
"""Bytes of a message: a name of 1000 characters in JSON, and some."""
_PATIENCE = 5.0
"""Seconds that a worker waits for a parent that does not read."""


def new_board() -> tuple[ParentsBoard, WorkersBoard]:
    """Two ends. Messages keep their boundaries, and stay in order."""
    parents, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parents.setblocking(False)
    workers.settimeout(_PATIENCE)
    return ParentsBoard(parents), WorkersBoard(workers)


class _Board:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.open = True
        """Whether there is anything to be heard."""

    def heard(self) -> Iterator[tuple[str, bool]]:
        """What the other end has said meanwhile."""
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
    """The end of a worker."""

    def tell(self, service: str, serving: bool) -> None:
        """Tells the parent, which tells the others. Any thread may call it."""
        try:
            self.end.send(_message(service, serving))
        except TimeoutError:
            log(WARNING, "the other workers have not heard about the health of '%s': their parent is stuck", service)
        except OSError:
            pass  # the parent is gone, or ends all workers


class ParentsBoard(_Board):
    """The end of the parent, which never waits."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        self.untold: dict[str, bool] = {}
        """What the worker is still to hear: of each name the last."""

    def tell(self, service: str, serving: bool) -> None:
        """Tells the worker, as soon as it listens."""
        self.untold[service] = serving
        self.flush()

    def flush(self) -> None:
        """Tells what there is room for. A signal's handler may call :meth:`tell` in the middle of it."""
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
