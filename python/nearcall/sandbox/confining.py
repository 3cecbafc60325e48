"""Confines this process, and tries out in another process which layers this system provides."""

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
    """Takes away from this process, and from all that it starts, everything that the policy does not name, for ever.

    Call it in a process of its own, while that has one thread, and before it imports code that is not trusted: files
    and modules that are open or imported already stay. Descriptors that the policy does not keep are closed, even if
    Python objects still use them. A refused system call raises :class:`PermissionError` in Python, and the first
    refusal of each call writes one line to the standard error; a few calls that only attacks make end the process by
    ``SIGSYS``.

    Returns:
        The state of each layer.

    Raises:
        SandboxError: the process has several threads, a path cannot be opened, or a layer is missing that the policy
            requires. The process may be confined in part then: end it.
        TypeError: ``policy`` is no :class:`Policy`.
    """
    fields = plain(policy)
    try:
        rows = applying.apply(fields)
    except RuntimeError as error:
        raise SandboxError(str(error)) from None
    return report_of(rows)


def available() -> Report:
    """Which layers this system would provide to a process that this one starts: tries out every layer, in another
    process.

    It changes nothing in this process and may be called at any time. It takes about as long as an interpreter needs to
    start; the result is remembered.

    Raises:
        SandboxError: the layers cannot be tried out; the message says why.
    """
    return _tried()


@functools.cache
def _tried() -> Report:
    import subprocess  # a process that only confines itself does not need this

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
    """Confines this process with every layer there is, and prints their states as JSON."""
    report = confine(Policy(cpu_share=1.0, required=()))
    os.write(1, json.dumps([(layer.name, layer.state, layer.detail) for layer in report.layers]).encode())
