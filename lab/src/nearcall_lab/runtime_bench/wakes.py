"""The floor of an event that many processes hear: each is woken, and answers, and nothing else.

``python -m nearcall_lab.runtime_bench.wakes PROCESSES TIMES`` prints median nanoseconds.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time


def _answer(woken: int, answer: int) -> None:
    while True:
        os.eventfd_read(woken)
        os.eventfd_write(answer, 1)


def main(processes: int, times: int) -> float:
    """Median nanoseconds until that many processes have been woken and have answered, each time after a pause."""
    pairs, children = [(os.eventfd(0), os.eventfd(0)) for _ in range(processes)], []
    try:
        for pair in pairs:
            child = os.fork()
            if child == 0:
                _answer(*pair)
            children.append(child)
        samples = []
        for _ in range(times):
            time.sleep(0.005)
            started = time.perf_counter_ns()
            for woken, _answered in pairs:
                os.eventfd_write(woken, 1)
            for _woken, answered in pairs:
                os.eventfd_read(answered)
            samples.append(time.perf_counter_ns() - started)
        return statistics.median(samples)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    print(main(int(sys.argv[1]), int(sys.argv[2])))
