"""Workers that start in milliseconds: each is a fork of one warm process, which has imported what all of them need.

The tests start hundreds, and most of an interpreter's start is its imports. `start` stands in for that of
`nearcall_lab.workers.worker`. The warm process has one thread and has imported the lab's part of a worker, but no
adapter. A worker is no child of it: it becomes one of who asks, as any other process that one starts, since the process
between them ends at once, and a `Crew` asks for orphans before it starts anything.

Not as in a process of its own: the command line and the environment that ``/proc`` shows are the warm process's, and so
is the seed of hashes. Who tests those starts an interpreter, by `start_cold`; the commands' tests do so anyway.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

import warm_process
from nearcall_lab.workers.worker import start as start_cold
from warm_process import LARGEST, MODULE, NUMBER

__all__ = ["start", "start_cold", "warm_up"]

_PROGRAM = (sys.executable, "-m", MODULE)
_asking = threading.Lock()


def start(
    command: Sequence[str], log: IO[bytes], descriptors: tuple[int, ...], directory: str | None
) -> subprocess.Popen[bytes]:
    """A worker of this Python is forked; another program is started as ever."""
    if tuple(command[: len(_PROGRAM)]) == _PROGRAM:
        return _Worker(command, log, descriptors, directory)
    return start_cold(command, log, descriptors, directory)


class _Worker(subprocess.Popen[bytes]):
    """Differs in how the process is made."""

    def __init__(
        self, command: Sequence[str], log: IO[bytes], descriptors: tuple[int, ...], directory: str | None
    ) -> None:
        self._request = {
            "arguments": command[len(_PROGRAM) :],
            "environment": dict(os.environ),
            "directory": directory or os.getcwd(),
            "descriptors": descriptors,
        }
        super().__init__(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    # Popen calls it with the ends of the pipes that it has made, in this order in all versions of Python.
    def _execute_child(self, *made: Any) -> None:
        pipes = made[10:16]
        read_input, _, _, write_output, _, write_errors = pipes
        given = [read_input, write_output, write_errors, *self._request["descriptors"]]
        control = warm_up()
        with _asking:
            socket.send_fds(control, [json.dumps(self._request).encode()], given)
            answer = control.recv(NUMBER.size)
        if not answer:
            raise RuntimeError("the warm process has ended")
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self.pid = NUMBER.unpack(answer)[0]


@functools.cache
def warm_up() -> socket.socket:
    """Where to ask for workers. The first call starts the process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)
    # Threads for linear algebra would not survive a fork. Each worker has a path of its own.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ""}
    nothing = subprocess.DEVNULL
    with theirs:
        process = subprocess.Popen(
            [sys.executable, warm_process.__file__, str(theirs.fileno())],
            stdin=nothing,
            stdout=nothing,
            env=environment,
            pass_fds=[theirs.fileno()],
        )

    def close() -> None:
        ours.close()
        process.wait(20)

    atexit.register(close)
    return ours
