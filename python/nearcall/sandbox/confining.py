"""Confining this process, and trying out in another one what this system would give."""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Final

from . import applying
from .policy import Policy, plain
from .report import Report, SandboxError, report_of

__all__ = ["available", "confine", "try_out"]

_TRY: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import nearcall.sandbox.confining as it; it.try_out()"
)
"""Run by another interpreter, with the search path of this one as its argument."""


def confine(policy: Policy) -> Report:
    """Takes everything away from this process that the policy does not name: for ever, and for all that it starts.

    Call it in a process of its own, while that has one thread, and before it imports what it does not trust: what is
    open or imported already stays. Descriptors that are not kept are closed, whoever has them. A refused system call is
    a :class:`PermissionError` in Python, and one line on the standard error for each that is met; a few that only
    attacks make end the process by ``SIGSYS``.

    Returns:
        What came of each layer.

    Raises:
        SandboxError: the process has several threads, a path cannot be opened, or a layer is missing that the policy
            requires. The process may be confined in part then: end it.
        TypeError: it is no :class:`Policy`.
    """
    fields = plain(policy)
    try:
        rows = applying.apply(fields)
    except RuntimeError as error:
        raise SandboxError(str(error)) from None
    return report_of(rows)


def available() -> Report:
    """What this system would give to a process that this one starts: every layer is tried out, in another process.

    Nothing is changed here. It may be called at any time, takes about as long as an interpreter needs to start, and is
    remembered.

    Raises:
        SandboxError: it cannot be tried out; says why.
    """
    return _tried()


@functools.cache
def _tried() -> Report:
    import subprocess  # not what a process needs that only confines itself

    path = json.dumps([entry for entry in sys.path if entry])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"the sandbox cannot be tried out: {error}") from error
    try:
        return report_of(json.loads(done.stdout))
    except ValueError:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SandboxError(f"the sandbox cannot be tried out: {said or f'status {done.returncode}'}") from None


def try_out() -> None:
    """Confines this process with every layer there is, and prints what came of them, as JSON."""
    report = confine(Policy(cpu_share=1.0, required=()))
    os.write(1, json.dumps([(layer.name, layer.state, layer.detail) for layer in report.layers]).encode())
