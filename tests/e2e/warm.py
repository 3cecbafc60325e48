"""Programs that start in milliseconds: each is a fork of one warm process, which has imported what they need.

The first start of a test run makes the warm process, ``python -m tests.e2e.warm``. It has one thread and has made no
object of nearcall: a fork of it is what ``python -c`` would be after the same imports. It is asked over a socket, which
brings the new program's input and outputs, and it ends when that socket does, so never outlives who asks.

Not as in a process of its own: the seed of hashes is the warm process's, and what is imported is not imported again.
Who tests imports, the interpreter's options or its environment variables starts an interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_NUMBER = struct.Struct("i")
"""What comes back of each program: its process id when it starts, and its exit status when it has ended."""
_LARGEST = 1 << 17
"""Bytes of the largest request: the program, its arguments and its environment. A socket takes that much at once."""


class WarmProcess(subprocess.Popen[Any]):
    """A Python program, to be used as any other ``Popen``.

    It has its starter's environment, and ``-X faulthandler -W error`` hold. Only the methods that make and await a
    process differ: the program is a child of the warm process, which tells its exit status.
    """

    def __init__(
        self, code: str, *arguments: str, file: str = "", start_new_session: bool = False, **standard: Any
    ) -> None:
        """``standard`` says as in ``Popen`` where input, output and errors are; the first two are pipes by default.

        With ``file`` it is ``python FILE`` whose text is ``code``, and not ``python -c``.
        """
        self._request = {
            "code": code,
            "file": file,
            "arguments": arguments,
            "environment": dict(os.environ),
            "session": start_new_session,
        }
        self._telling: socket.socket | None = None
        self._one_waits = threading.Lock()
        standard = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} | standard
        super().__init__([file] if file else ["-c", code, *arguments], **standard)

    # Popen calls it with where to start and the ends of the pipes that it has made, in this order in all versions of
    # Python.
    def _execute_child(self, *made: Any) -> None:
        self._request["directory"] = os.fspath(made[5] or ROOT)
        pipes = made[10:16]
        read_input, _, _, write_output, _, write_errors = pipes
        theirs = [own if end == -1 else end for own, end in enumerate((read_input, write_output, write_errors))]
        self._telling, tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tell:
            request = json.dumps(self._request).encode()
            socket.send_fds(_warm_process(), [request], [*theirs, tell.fileno()])
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self.pid = self._hear()

    def _hear(self) -> int:
        assert self._telling is not None
        said = self._telling.recv(_NUMBER.size)
        if not said:
            raise RuntimeError("the warm process has ended")
        return int(_NUMBER.unpack(said)[0])

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if not self._one_waits.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        try:
            if self.returncode is None and self._telling is not None:
                if timeout is not None and not select.select([self._telling], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout)
                self.returncode = self._hear()
                with self._telling:
                    self._telling.shutdown(socket.SHUT_WR)
                    self._telling.recv(1)  # nothing, when the process is buried
        finally:
            self._one_waits.release()
        return self.returncode


@functools.cache
def _warm_process() -> socket.socket:
    """Where to ask for programs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "tests.e2e.warm", str(theirs.fileno())]
    # Its input and output are pipes because those of its programs are: Python looks at that only once.
    pipe = subprocess.PIPE
    # numpy's threads for linear algebra would not survive a fork.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with theirs:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, pass_fds=[theirs.fileno()]
        )

    def close() -> None:
        ours.close()
        process.communicate(timeout=20)

    atexit.register(close)
    return ours


def _serve(control: socket.socket) -> tuple[types.CodeType, dict[str, Any]] | None:
    """Returns in each program, with what it is to run; in the warm process nothing, when nobody will ask any more."""
    running: dict[int, tuple[int, int]] = {}  # its process id and where to tell, by what is readable when it has ended
    ended: dict[int, int] = {}  # its process id, by where its exit status was told
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready in running:
                poller.unregister(ready)
                os.close(ready)
                pid, tell = running.pop(ready)
                _tell(tell, _exit_status(pid))
                ended[tell] = pid
                poller.register(tell, select.POLLIN)
            elif ready in ended:
                # Its starter knows. Until then nobody else gets its process id.
                poller.unregister(ready)
                os.waitpid(ended.pop(ready), 0)
                os.close(ready)
            else:
                request, descriptors, *_ = socket.recv_fds(control, _LARGEST, 4)
                if not request:
                    return None
                pid = os.fork()
                if pid == 0:
                    tells = [tell for _, tell in running.values()]
                    return _become(json.loads(request), descriptors, [*running, *tells, *ended, control.detach()])
                *standard, tell = descriptors
                for descriptor in standard:
                    os.close(descriptor)
                _tell(tell, pid)
                end = os.pidfd_open(pid)
                running[end] = (pid, tell)
                poller.register(end, select.POLLIN)


def _exit_status(pid: int) -> int:
    """As ``Popen`` says it; the process stays what it is, one that has ended and is not buried."""
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert result is not None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _tell(where: int, number: int) -> None:
    # Who asked may be gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(where, _NUMBER.pack(number))


def _become(
    request: dict[str, Any], descriptors: list[int], inherited: list[int]
) -> tuple[types.CodeType, dict[str, Any]]:
    """Makes this fork what a new interpreter is; the random generator of Python does so itself."""
    for standard, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, standard)
    for descriptor in (*descriptors, *inherited):
        os.close(descriptor)
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "numpy.random" in sys.modules:  # new versions of numpy import it late
        sys.modules["numpy.random"].seed()
    os.chdir(request["directory"])
    sys.argv = [request["file"] or "-c", *request["arguments"]]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    place = os.path.realpath(request["file"]) if request["file"] else "<string>"
    sys.path[0] = os.path.dirname(place)
    if request["file"]:
        main.__file__ = place
    return compile(request["code"], place, "exec", dont_inherit=True), main.__dict__


def _wait_for_requests(descriptor: int) -> tuple[types.CodeType, dict[str, Any]] | None:
    from . import services  # noqa: F401 - with it come nearcall and numpy

    # Who interrupts the tests means them and the programs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was made until now is never garbage: no program copies its pages to look for some.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control:
        return _serve(control)


if __name__ == "__main__":
    program = _wait_for_requests(int(sys.argv[1]))
    if program is not None:
        exec(*program)
