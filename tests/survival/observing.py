"""What a process holds, seen from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 20.0
"""Seconds after which a condition that does not come true is a failure."""


@dataclass(frozen=True)
class Holdings:
    """Descriptors, threads and pieces of shared memory of a process."""

    descriptors: int
    threads: int
    regions: int

    @classmethod
    def of(cls, pid: int) -> Holdings:
        process = Path(f"/proc/{pid}")
        regions = process.joinpath("maps").read_text().count("memfd:nearcall")
        return cls(len(os.listdir(process / "fd")), len(os.listdir(process / "task")), regions)

    def within(self, before: Holdings, threads: int = 0) -> bool:
        """Whether it is no more than before, but for so many more threads."""
        return (
            self.descriptors <= before.descriptors
            and self.regions <= before.regions
            and self.threads <= before.threads + threads
        )


def resident(pid: int) -> int:
    """Bytes of memory that a process has to itself, and those it shares with nobody yet."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE")


def eventually(condition: Callable[[], bool], what: Callable[[], object] | str) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        time.sleep(0.002)


def comes_back_to(pid: int, before: Holdings, threads: int = 3) -> None:
    """Waits until a process holds what it held before. A server keeps a few threads for the next slow handler."""
    eventually(lambda: Holdings.of(pid).within(before, threads), lambda: f"{Holdings.of(pid)} after {before}")


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """All threads of a process stand still inside the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: all(_state(thread) == "T" for thread in Path(f"/proc/{pid}/task").iterdir()), "not stopped")
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _state(thread: Path) -> str:
    return thread.joinpath("stat").read_text().rpartition(")")[2].split()[0]
