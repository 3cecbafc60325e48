"""How many connections a process may hold: the system's limit on open descriptors (``ulimit -n``)."""

from __future__ import annotations

import resource

from nearcall_lab.scenario.cell import Mode

_OTHERS = 200
"""Descriptors that a process has besides its connections: files, pollers, those of threads."""


def allowed() -> int:
    """Open descriptors that a worker may have: the hard limit, up to which it raises its own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 62 if hard == resource.RLIM_INFINITY else hard


def take_all() -> None:
    """Raise this process's limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def too_few(mode: Mode) -> str:
    """Why the limit does not let a server have so many connections, and what to do; empty where it does.

    A mechanism that needs more than one descriptor for a connection may fail in spite of it.
    """
    needed = mode.connections + _OTHERS
    if needed <= allowed():
        return ""
    return f"needs {needed} open descriptors, and {allowed()} are allowed: ulimit -Hn {needed}, as root"
