"""Processes that have left their parents become children of the lab, which counts them and ends them.

A server that forks twice and leaves its session has no parent any more that the lab knows. Linux gives such an orphan
to the nearest ancestor that has asked for orphans, ``PR_SET_CHILD_SUBREAPER`` of prctl(2), and only then to process 1.
The lab asks for orphans while a launch runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

import psutil

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


def _reaps(wanted: bool | None = None) -> bool:
    """Whether this process gets its descendants' orphans. `wanted` changes it; what is returned is the state before the
    change.
    """
    if sys.platform != "linux":
        return False
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if wanted is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)


class Orphans:
    """The orphans of one launch, from `__init__` to `release`.

    They are distinguished from other children of this process by their session: each worker begins one of its own, and
    no process can join the lab's session from another.
    """

    def __init__(self) -> None:
        self._before = _reaps(True)
        self._known = set(psutil.Process().children())

    def release(self) -> None:
        """Let the kernel give orphans to the same process as before `__init__`."""
        _reaps(self._before)

    def found(self, workers: set[int]) -> dict[int, int]:
        """Process ids with their sessions, `workers` and their living descendants left out."""
        sessions = {}
        for child in psutil.Process().children():
            if child in self._known or child.pid in workers:
                continue
            with contextlib.suppress(OSError):
                session = os.getsid(child.pid)
                if session != os.getsid(0):
                    sessions[child.pid] = session
        return sessions
