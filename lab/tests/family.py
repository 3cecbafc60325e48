"""The processes that a test has started."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children() -> set[int]:
    """Process ids of this process's living children."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found
