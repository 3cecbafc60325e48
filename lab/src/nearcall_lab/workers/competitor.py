"""A process that computes all the time on one CPU, as other programs do on a busy machine: for the placement
``busy``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

from nearcall_lab.workers.lifeline import die_with


class Competitors:
    """One such process for each of some CPUs, with ordinary priority, until `end`."""

    def __init__(self, cpus: Sequence[int]) -> None:
        command = (sys.executable, "-m", __name__, str(os.getpid()))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for cpu in cpus:
                self._processes.append(subprocess.Popen([*command, str(cpu)], stdout=subprocess.PIPE))
            for process in self._processes:
                assert process.stdout is not None
                if process.stdout.readline() != b"busy\n":
                    raise RuntimeError("a process that keeps a CPU busy did not start")
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Ends them. Safe to call twice."""
        for process in self._processes:
            process.kill()
            process.wait()
            with contextlib.suppress(AttributeError):
                process.stdout.close()  # type: ignore[union-attr]
        self._processes.clear()


def main() -> None:
    """Entry point of the process."""
    parent, cpu = map(int, sys.argv[1:])
    die_with(parent)
    os.sched_setaffinity(0, [cpu])
    print("busy", flush=True)
    while True:
        sum(range(100_000))


if __name__ == "__main__":
    main()
