"""Which CPU the client and the server of a pair run on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["apart", "same", "free", "busy"]
"""``apart``: different CPUs. ``same``: one CPU for both. ``free``: wherever the kernel likes. ``busy``: the same, while
a process on each CPU computes all the time."""


@dataclass(frozen=True)
class Placement:
    """CPU sets for both sides of a pair."""

    client: tuple[int, ...]
    server: tuple[int, ...]
    mode: Mode
    more_clients: tuple[int, ...] = ()
    """CPUs for further client processes, if the machine has any besides those of `client` and `server`."""

    def client_cpus(self, number: int) -> tuple[int, ...]:
        """CPUs of the client process with that number, from 0. They take turns where CPUs are fewer than processes."""
        if self.mode != "apart":
            return self.client
        choice = (*self.client, *self.more_clients)
        return (choice[number % len(choice)],)

    def competitors(self) -> tuple[int, ...]:
        """CPUs on which a competing process is to compute during the measurement."""
        return self.client if self.mode == "busy" else ()

    def describe(self) -> str:
        """The placement as one phrase for the report."""
        if self.mode == "busy":
            return f"not pinned, each of {len(self.client)} CPU(s) kept busy by another process"
        if self.mode == "free":
            return f"not pinned, {len(self.client)} CPU(s) available"
        if self.mode == "same":
            return f"client and server both pinned to CPU {self.client[0]}"
        return f"client pinned to CPU {self.client[0]}, server to CPU {self.server[0]}"


def _siblings(cpu: int) -> str:
    """An identifier shared by hardware threads of one core; falls back to the CPU's own number."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)


def choose(mode: Mode = "apart") -> Placement:
    """Pick CPUs from those this process may use, on different cores where there are any.

    With a single CPU, ``apart`` falls back to ``free``.
    """
    allowed = sorted(os.sched_getaffinity(0))
    everywhere = tuple(allowed)
    if mode == "busy":
        return Placement(everywhere, everywhere, "busy")
    if mode == "free" or (mode == "apart" and len(allowed) < 2):
        return Placement(everywhere, everywhere, "free")
    if mode == "same":
        return Placement((allowed[0],), (allowed[0],), "same")
    client = allowed[0]
    other_cores = [cpu for cpu in allowed[1:] if _siblings(cpu) != _siblings(client)]
    server = (other_cores or allowed[1:])[0]
    taken = {_siblings(client), _siblings(server)}
    more = tuple(cpu for cpu in allowed if _siblings(cpu) not in taken)
    return Placement((client,), (server,), "apart", more)


@contextlib.contextmanager
def on_cpus(cpus: Iterable[int]) -> Iterator[None]:
    """Pins this thread to these CPUs inside the block, and with it what it starts there.

    A function that a new process runs before its program (`preexec_fn`) may hang where there are other threads.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
