"""Runs a child from system call to system call, and kills it at one of them: ``ptrace``, without any tool installed."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from pathlib import Path

_SEIZE, _INTERRUPT, _SYSCALL, _LISTEN, _DETACH = 0x4206, 0x4207, 24, 0x4208, 17
_TRACESYSGOOD, _TRACECLONE, _EXITKILL = 0x1, 0x8, 0x100000
_WALL = 0x40000000
_EVENT_STOP = 128
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, thread: int, data: int = 0) -> bool:
    """Whether it worked; a thread that is gone by now is no error."""
    if _libc.ptrace(request, thread, None, data) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.ESRCH:
        return False
    raise OSError(number, f"ptrace({request:#x}): {os.strerror(number)}")


def is_possible() -> str | None:
    """Why this process may not trace its children; ``None`` if it may."""
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        _ptrace(_SEIZE, child)
    except OSError as error:
        return str(error)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, _WALL)
    return None


class Stepper:
    """Traces all threads of a child of this process; of this thread, more exactly, which alone may use it.

    A stop is the moment before or after a system call: between two of them nobody outside can see a difference but in
    shared memory.
    """

    def __init__(self, child: int) -> None:
        self._child = child
        self.stops = 0
        self._settling: set[int] = set()
        known: set[int] = set()
        # Threads may be born while we look.
        while True:
            found = {int(name) for name in os.listdir(f"/proc/{child}/task")} - known
            if not found:
                break
            self._settling |= {thread for thread in found if self._seize(thread)}
            known |= found
        while self._settling:
            self._wait()

    def _seize(self, thread: int) -> bool:
        """Whether it is traced now, and will stop."""
        try:
            if _ptrace(_SEIZE, thread, _TRACESYSGOOD | _TRACECLONE | _EXITKILL):
                _ptrace(_INTERRUPT, thread)
                return True
        except PermissionError:
            # Born of a traced thread, it is traced already; or it has just ended.
            try:
                status = Path(f"/proc/{self._child}/task/{thread}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                return False
            if f"TracerPid:\t{os.getpid()}\n" in status:
                return True
            if "State:\tZ" not in status and "State:\tX" not in status:
                raise
        return False

    def run(self, until: int) -> tuple[str, int]:
        """Lets the child go on until its stop number ``until`` and kills it there: ``("killed", when)``.

        If it ends before that, ``("ended", status)``. When is a time of the monotonic clock, nanoseconds.
        """
        killed = 0
        while True:
            status = self._wait(until if not killed else 0)
            if status is None:
                continue
            if status == "kill":
                killed = time.monotonic_ns()
                os.kill(self._child, signal.SIGKILL)
            else:
                return ("killed", killed) if killed else ("ended", int(status))

    def _wait(self, until: int = 0) -> str | None:
        """Takes in one event. The exit status when the child is gone, and ``kill`` at the wanted stop."""
        thread, status = os.waitpid(-1, _WALL)
        if not os.WIFSTOPPED(status):
            self._settling.discard(thread)
            return str(os.waitstatus_to_exitcode(status)) if thread == self._child else None
        number, event = os.WSTOPSIG(status), status >> 16
        self._settling.discard(thread)
        if number == signal.SIGTRAP | 0x80:
            self.stops += 1
            if self.stops == until:
                return "kill"
            number = 0
        elif event == _EVENT_STOP and number in _STOPS:
            # Stopped like any process would be.
            _ptrace(_LISTEN, thread)
            return None
        elif event:
            number = 0
        _ptrace(_SYSCALL, thread, number)
        return None
