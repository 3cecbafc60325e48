"""The messages between a worker and its parent: the state of a name of the server's health, or a question to all
workers.

A question comes with a socket, through which whoever has an answer sends it (:mod:`.colleagues`). The parent passes it
on, and keeps nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..log import WARNING, log

__all__ = ["ParentsBoard", "Question", "State", "WorkersBoard", "new_board"]

_LONGEST = 1 << 14
"""Longest message, bytes: a name of 1000 characters in JSON, and some room."""
_PATIENCE = 5.0
"""Seconds that a worker waits for a parent that does not read."""


class State(NamedTuple):
    """The health of a service."""

    service: str
    serving: bool


class Question(NamedTuple):
    """A question of one worker to the others."""

    topic: str
    argument: float
    reply: socket.socket
    """Where answers are sent. Closing it says that none will come."""


def new_board() -> tuple[ParentsBoard, WorkersBoard]:
    """The two ends of a board. Messages keep their boundaries, and stay in order."""
    parents, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Also the worker's, which is read whenever something may have come: a socket of Python's with a timeout waits
    # first, whatever the flags say. To send, the worker waits by itself.
    parents.setblocking(False)
    workers.setblocking(False)
    return ParentsBoard(parents), WorkersBoard(workers)


class _Board:
    """One end of a board."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.open = True
        """Whether messages may still arrive."""

    def heard(self) -> Iterator[State | Question]:
        """The messages that have arrived. A question's socket is the caller's."""
        while True:
            try:
                message, sockets, _, _ = socket.recv_fds(
                    self.end, _LONGEST, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                message, sockets = b"", []
            if not message:
                self.open = False
                return
            first, second = json.loads(message)
            if sockets:
                yield Question(first, second, socket.socket(fileno=sockets[0]))
            elif isinstance(second, bool):  # a question without a socket found no descriptor free here
                yield State(first, second)

    def close(self) -> None:
        """Closes this end."""
        self.open = False
        self.end.close()


class WorkersBoard(_Board):
    """The worker's end."""

    def tell(self, service: str, serving: bool) -> None:
        """Tells the parent, which tells the other workers. Any thread may call it."""
        try:
            self._patiently(lambda: self.end.send(_message(service, serving)))
        except TimeoutError:
            log(WARNING, "the other workers have not heard about the health of '%s': their parent is stuck", service)
        except OSError:
            pass  # the parent is gone, or ends all workers

    def ask(self, question: Question) -> None:
        """Asks all other workers. Any thread may call it.

        Raises:
            OSError: the parent is gone, or does not read.
        """
        self._patiently(lambda: _send(self.end, question))

    def _patiently(self, send: Callable[[], object]) -> None:
        """Sends as soon as there is room.

        Raises:
            TimeoutError: the parent does not read.
            OSError: it is gone.
        """
        end = time.monotonic() + _PATIENCE
        poll = select.poll()
        poll.register(self.end, select.POLLOUT)
        while True:
            try:
                send()
                return
            except BlockingIOError:
                # Each thread that waits is woken, and one of them finds the room.
                if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                    raise TimeoutError("the parent does not read") from None


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

    def ask(self, question: Question) -> None:
        """Passes on a question, unless there is no room for it."""
        with contextlib.suppress(OSError):
            _send(self.end, question)

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


def _send(end: socket.socket, question: Question) -> None:
    socket.send_fds(end, [json.dumps([question.topic, question.argument]).encode()], [question.reply.fileno()])


def _message(service: str, serving: bool) -> bytes:
    return json.dumps([service, serving]).encode()
