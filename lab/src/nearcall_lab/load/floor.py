"""What measuring itself costs, and what the machine needs for the simplest possible call.

Where a mechanism's times come near these floors, the floors are a large part of what is measured: the report prints
them as its last rows and marks the results of which they are more than a twentieth.
"""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nearcall_lab.load.closed import closed
from nearcall_lab.load.slot import Slot
from nearcall_lab.placement import Placement, choose
from nearcall_lab.runtime_bench import floor as ring_floor
from nearcall_lab.workloads import describe_mismatch, same_bytes

RING_PROGRAM = Path("target/release/examples/ring_floor")
_CALLS = 5_000
_TIMES = 60
_ECHO_S = 0.15


def _best(measure: Callable[[], float], times: int = _TIMES) -> float:
    """The smallest of several: whatever a fixed piece of work takes beyond that is interference."""
    return min(measure() for _ in range(times))


def clock_pair_ns() -> float:
    """Two readings of the clock, one after the other: the least that a timed call can show."""
    now = time.monotonic_ns

    def once() -> float:
        begin = now()
        for _ in itertools.repeat(None, _CALLS):
            now()
            now()
        return (now() - begin) / _CALLS

    return _best(once)


def _noop(value: bytes) -> bytes:
    return value


def _bare_loop_ns() -> float:
    """A call of a function that does nothing, in a loop that does nothing else."""
    values = itertools.islice(itertools.cycle([b"one", b"two"]), _CALLS)
    begin = time.monotonic_ns()
    for value in values:
        _noop(value)
    return (time.monotonic_ns() - begin) / _CALLS


def noop_call_ns() -> float:
    """The cost of calling a Python function."""
    return _best(_bare_loop_ns)


def _loop_ns() -> float:
    slot = Slot(0, _noop, [b"one", b"two"], same_bytes, describe_mismatch)
    slot.restart(_CALLS)
    begin = time.monotonic_ns()
    closed(slot, time.monotonic_ns, 1 << 62, _CALLS)
    return (time.monotonic_ns() - begin) / _CALLS


def harness_overhead() -> float:
    """Nanoseconds that the closed loop adds to each call: two readings of the clock, two stores, the check of the
    reply, and the loop. It lowers the rate of calls; the time measured for a call includes only half of the clock pair.

    The difference between the loop around a function that does nothing and that function in a bare loop.
    """
    return _best(_loop_ns) - noop_call_ns()


# The least between two processes, in Python


def _by_descriptors(read: Callable[[], bytes], write: Callable[[bytes], object]) -> Callable[[bytes], bytes]:
    def echo(data: bytes) -> bytes:
        write(data)
        got = read()
        while len(got) < len(data):
            got += read()
        return got

    return echo


class _Shared:
    """One message each way in shared memory; both sides look at a counter until it moves."""

    def __init__(self, memory: mmap.mmap, out: int, back: int, room: int) -> None:
        self._memory, self._out, self._in, self._room = memory, out, back, room
        self._turn = 0

    def write(self, data: bytes) -> None:
        start = 64 + self._room * (self._out // 8)
        self._memory[start : start + len(data)] = data
        self._memory[self._out] = self._turn = (self._turn + 1) & 0xFF

    def read(self, size: int) -> bytes:
        memory, at, turn = self._memory, self._in, self._turn
        while memory[at] != turn:
            pass
        start = 64 + self._room * (at // 8)
        return memory[start : start + size]

    def echo(self, data: bytes) -> bytes:
        self.write(data)
        return self.read(len(data))

    def serve(self, size: int) -> None:
        while True:
            self._turn = (self._turn + 1) & 0xFF
            data = self.read(size)
            self._turn = (self._turn - 1) & 0xFF
            self.write(data)


def echo_ns(kind: str, size: int = 15, placement: Placement | None = None) -> float:
    """Median nanoseconds of an echo between two Python processes over a ``pipe``, a Unix socket (``uds``) or shared
    memory with both sides looking all the time (``shm``)."""
    placement = placement or choose()
    memory: mmap.mmap | None = None
    if kind == "pipe":
        (there, out), (back, here) = os.pipe(), os.pipe()
        passed = [there, here]
        echo = _by_descriptors(lambda: os.read(back, size), lambda data: os.write(out, data))
        own = [out, back]
    elif kind == "uds":
        mine, yours = socket.socketpair(socket.AF_UNIX)
        passed, own = [yours.detach()], [mine.detach()]
        echo = _by_descriptors(lambda: os.read(own[0], size), lambda data: os.write(own[0], data))
    elif kind == "shm":
        descriptor = os.memfd_create("nearcall-lab-floor")
        length = 64 + 2 * (size + 64)
        os.ftruncate(descriptor, length)
        memory = mmap.mmap(descriptor, length)
        passed, own = [descriptor], []
        echo = _Shared(memory, 0, 8, size + 64).echo
    else:
        raise ValueError(f"no such floor: {kind!r}; there are pipe, uds and shm")
    command = [sys.executable, "-m", "nearcall_lab.load.floor", kind, str(size), str(os.getpid())]
    command += [",".join(map(str, placement.server)), *map(str, passed)]
    peer = subprocess.Popen(command, pass_fds=passed, stdout=subprocess.PIPE)
    before = os.sched_getaffinity(0)
    try:
        for each in passed:
            os.close(each)
        assert peer.stdout is not None
        if peer.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the echo process of the floor {kind} did not start")
        os.sched_setaffinity(0, placement.client)
        slot = Slot(0, echo, [bytes([65 + i]) * size for i in range(2)], same_bytes, describe_mismatch)
        closed(slot, time.monotonic_ns, time.monotonic_ns() + int(_ECHO_S * 0.2e9), 1 << 30)
        slot.restart(_CALLS)
        closed(slot, time.monotonic_ns, time.monotonic_ns() + int(_ECHO_S * 1e9), 1 << 30)
        return float(np.median(slot.recorder.column("done") - slot.recorder.column("started")))
    finally:
        os.sched_setaffinity(0, before)
        peer.kill()
        peer.wait()
        assert peer.stdout is not None
        peer.stdout.close()
        for each in own:
            os.close(each)
        if memory is not None:
            memory.close()


def _serve_echo() -> None:
    """The other process of `echo_ns`."""
    from nearcall_lab.workers.lifeline import die_with

    kind, size, parent, cpus, *descriptors = sys.argv[1:]
    die_with(int(parent))
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    first = int(descriptors[0])
    print("ready", flush=True)
    if kind == "shm":
        _Shared(mmap.mmap(first, 64 + 2 * (int(size) + 64)), 8, 0, int(size) + 64).serve(int(size))
    last = int(descriptors[-1])
    while data := os.read(first, int(size)):
        os.write(last, data)


def ring_ns(program: Path | None = None, placement: Placement | None = None) -> float | None:
    """Median of 15 bytes there and back through the runtime's ring, without Python; None where it is not built."""
    program = program or RING_PROGRAM
    if not os.access(program, os.X_OK):
        return None
    return ring_floor.measure(str(program.absolute()), placement or choose())[15]


def floors(program: Path | None = None) -> dict[str, float]:
    """All floors of this machine in nanoseconds, by name."""
    found = {
        "clock pair": clock_pair_ns(),
        "no-op call": noop_call_ns(),
        "harness overhead": harness_overhead(),
        "pipe echo, Python": echo_ns("pipe"),
        "Unix socket echo, Python": echo_ns("uds"),
        "shared memory echo, Python": echo_ns("shm"),
    }
    ring = ring_ns(program)
    if ring is not None:
        found["shared memory ring, Rust"] = ring
    return found


if __name__ == "__main__":
    _serve_echo()
