"""The process that :mod:`warm` asks for workers, and each of them: ``warm_process.py DESCRIPTOR``.

It imports what a worker of the lab needs, and nothing else: a fork of it is what an interpreter would be then.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any

MODULE = "nearcall_lab.workers"
NUMBER = struct.Struct("i")
"""The answer: a process id."""
LARGEST = 1 << 17
"""Bytes of the largest request. A socket takes that much at once."""


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Returns in each worker, with what was asked for; in the warm process nothing, when nobody will ask any more."""
    while True:
        message, descriptors, *_ = socket.recv_fds(control, LARGEST, 16)
        if not message:
            return None
        told, tell = os.pipe()
        let_go, hold = os.pipe()
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker:
                os.write(tell, NUMBER.pack(worker))
                os._exit(0)
            os.close(hold)
            os.read(let_go, 1)  # nothing, when this process's parent is who asked
            control.detach()
            request: dict[str, Any] = json.loads(message)
            _arrange(descriptors, [0, 1, 2, *request["descriptors"]])
            return request
        number = os.read(told, NUMBER.size)
        os.waitpid(between, 0)
        for descriptor in (told, tell, let_go, hold, *descriptors):
            os.close(descriptor)
        control.send(number)


def _arrange(descriptors: Sequence[int], wanted: Sequence[int]) -> None:
    """Gives these descriptors the numbers that are wanted, and closes all others."""
    beyond = max(*descriptors, *wanted) + 1
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, beyond) for descriptor in descriptors]
    for other in map(int, os.listdir("/proc/self/fd")):
        if other not in copies:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(other)
    for copy, number in zip(copies, wanted, strict=True):
        os.dup2(copy, number)
        os.close(copy)


def _become(request: dict[str, Any]) -> None:
    """Makes this fork what a new interpreter is, and runs the worker."""
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [MODULE, *request["arguments"]]
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:1] = [request["directory"], *places]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


def main() -> None:
    """The warm process, and each worker."""
    import nearcall_lab.workers.client
    import nearcall_lab.workers.server  # noqa: F401

    # Who interrupts the tests means them and the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was made until now is never garbage: no worker copies its pages to look for some.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        request = _serve(control)
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main()
