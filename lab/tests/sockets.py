"""The TCP connections of other processes, looked at from here: what options a mechanism gave them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_PIDFD_GETFD = 438
"""Number of the system call on every architecture that has it (Linux 5.6). Python has no name for it."""


def nodelay(pid: int) -> list[bool]:
    """Whether TCP_NODELAY is set, for each connected TCP socket of a descendant. Raises `OSError` without the right."""
    return [
        bool(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        for each in _sockets(pid)
        if each.family in (socket.AF_INET, socket.AF_INET6) and _connected(each)
    ]


def _sockets(pid: int) -> Iterator[socket.socket]:
    """A copy of each socket that a process has."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if not os.readlink(entry).startswith("socket:"):
                    continue
                copied = libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
                if copied < 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                with socket.socket(fileno=copied) as each:
                    yield each
    finally:
        os.close(process)


def _connected(each: socket.socket) -> bool:
    try:
        each.getpeername()
    except OSError:
        return False
    return True
