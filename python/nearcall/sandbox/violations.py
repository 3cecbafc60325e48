"""Finds out, for the host, what the sandbox of a confined process has refused."""

from __future__ import annotations

import re
import signal
from typing import Final

__all__ = ["violation"]

_LINE: Final = re.compile(r"^nearcall sandbox: (refused|killed for) ((?:system call )?[a-z0-9_]{1,40})$", re.MULTILINE)
_MOST: Final = 20
"""Names in one sentence, because a process may write any number of them."""


def violation(returncode: int | None, output: str) -> str | None:
    """What a confined process tried that its sandbox refused, in a sentence for the user.

    That the kernel refused is certain; the names come from the process itself, which may write anything.

    Args:
        returncode: How the process ended, as :attr:`subprocess.Popen.returncode` says; ``None`` while it runs.
        output: What the process wrote to its standard error, or the end of that.

    Returns:
        The sentence; ``None`` if nothing indicates the sandbox.
    """
    found = {"refused": dict[str, None](), "killed for": dict[str, None]()}
    for what, name in _LINE.findall(output):
        if len(found[what]) < _MOST:
            found[what][name] = None
    said: list[str] = []
    if returncode == -signal.SIGSYS:
        names = ", ".join(found["killed for"]) or "a system call for another kind of processor"
        said.append(f"the sandbox ended it for {names}")
    elif returncode == -signal.SIGXCPU:
        said.append("it used up its processor time")
    if found["refused"]:
        said.append(f"the sandbox refused {', '.join(found['refused'])}")
    return "; ".join(said) or None
