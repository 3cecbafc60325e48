"""The floor of an event that many processes get: each is woken by a socket, answers a byte, and does nothing else.

``python -m nearcall_lab.runtime_bench.wakes PROCESSES TIMES`` prints median nanoseconds, for processes of each kind.
They are separate programs: forks of one process would share its memory, which would then be in the processor's caches.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PYTHON = "import os\nread, write = os.read, os.write\nwhile read(0, 1): write(0, b'.')"
C = "#include <unistd.h>\nint main(void) { char c; while (read(0, &c, 1) == 1 && write(0, &c, 1) == 1); }\n"


def event(command: Sequence[str], processes: int, times: int) -> float:
    """Median nanoseconds until that many processes have been woken and have answered, each time after a pause.

    Args:
        command: Starts one, which answers each byte of its standard input there.
        processes: How many.
        times: How often.
    """
    with contextlib.ExitStack() as stack:
        ends = []
        for _ in range(processes):
            ours, theirs = socket.socketpair()
            with theirs:
                process = stack.enter_context(subprocess.Popen(command, stdin=theirs.fileno()))
            stack.callback(process.kill)
            ends.append(stack.enter_context(ours).fileno())
        samples = []
        for number in range(times + 1):
            time.sleep(0.005)
            started = time.perf_counter_ns()
            for end in ends:
                os.write(end, b".")
            for end in ends:
                os.read(end, 1)
            if number > 0:  # the first round includes waiting for their start
                samples.append(time.perf_counter_ns() - started)
        return statistics.median(samples)


def floors(processes: int, times: int) -> dict[str, float]:
    """Median nanoseconds of an event, of interpreters and, where there is a compiler, of programs in C."""
    found = {"python": event([sys.executable, "-I", "-S", "-c", PYTHON], processes, times)}
    if (compiler := shutil.which("cc")) is not None:
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder, "answers.c"), Path(folder, "answers")
            source.write_text(C)
            subprocess.run([compiler, "-O2", "-o", program, source], check=True)
            found["c"] = event([str(program)], processes, times)
    return found


if __name__ == "__main__":
    for kind, median in floors(int(sys.argv[1]), int(sys.argv[2])).items():
        print(kind, median)
