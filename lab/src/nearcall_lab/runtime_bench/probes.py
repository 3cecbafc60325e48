"""Measurements other than a ping-pong. Each runs in the client process and returns plain numbers."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearcall_lab.contract import Spec
from nearcall_lab.runtime_bench.service import service
from nearcall_lab.stats import quantile


def view_call(spec: Spec, size: int, seconds: float) -> dict[str, float | None]:
    """`size` bytes in as a memoryview, a small integer back: p50 and p99 in nanoseconds."""
    import nearcall
    import numpy as np

    samples = []
    with nearcall.connect(spec.address, service()) as client:
        values = [memoryview(bytes([i]) * size) for i in (1, 2)]
        end = time.perf_counter() + seconds
        turn = 0
        while time.perf_counter() < end or turn < 100:
            value = values[turn & 1]
            started = time.perf_counter_ns()
            reply = client.digest(value)
            finished = time.perf_counter_ns()
            if reply != size + value[-1]:
                raise ValueError(f"wrong reply: {reply!r}")
            turn += 1
            if turn > 20:
                samples.append(finished - started)
    array = np.asarray(samples, dtype=np.int64)
    return {"p50_ns": quantile(array, 0.5), "p99_ns": quantile(array, 0.99), "n": len(samples)}


def stream(spec: Spec, items: int) -> float:
    """Items per second of a server stream of integers, all of them summed and the sum checked."""
    import nearcall

    with nearcall.connect(spec.address, service()) as client:
        sum(client.countdown(1000))
        started = time.perf_counter()
        total = sum(client.countdown(items))
        elapsed = time.perf_counter() - started
    if total != items * (items + 1) // 2:
        raise ValueError(f"wrong sum of {items} items: {total}")
    return float(items / elapsed)


def one_way(spec: Spec, size: int, messages: int, timeout_s: float) -> float:
    """Messages per second, timed and counted in the receiver; every message and octet must arrive."""
    import nearcall

    data = b"x" * size
    with nearcall.connect(spec.address, service()) as client:
        drop = client.drop
        for count in (min(1000, messages), messages):  # the first round is the warm-up
            elapsed_ns = until_arrived(client, drop, data, count, timeout_s)
    return float(messages / (elapsed_ns / 1e9))


def until_arrived(client: Any, send: Callable[[bytes], object], data: bytes, count: int, timeout_s: float) -> int:
    """Nanoseconds until `data`, sent so often by `send`, has arrived; `client` asks the receiver, which times it."""
    client.expect(count)
    for _ in range(count):
        send(data)
    end = time.monotonic() + timeout_s
    while True:
        left, octets, elapsed_ns = client.arrived()
        if left == 0:
            break
        if time.monotonic() > end:
            raise TimeoutError(f"{left} of {count} one-way messages missing after {timeout_s:.0f} s")
        time.sleep(0.001)
    if octets != count * len(data):
        raise ValueError(f"{octets} octets arrived instead of {count * len(data)}")
    return int(elapsed_ns)


def set_up(spec: Spec, times: int) -> dict[str, float]:
    """Medians in nanoseconds: until `connect` has returned, and until the first reply has arrived."""
    import nearcall

    interface = service()
    connected, replied = [], []
    for _ in range(times):
        with contextlib.ExitStack() as stack:
            started = time.perf_counter_ns()
            client = stack.enter_context(nearcall.connect(spec.address, interface))
            middle = time.perf_counter_ns()
            reply = client.echo(b"first")
            finished = time.perf_counter_ns()
        if reply != b"first":
            raise ValueError(f"wrong reply: {reply!r}")
        connected.append(middle - started)
        replied.append(finished - started)
    return {"connected_ns": statistics.median(connected), "replied_ns": statistics.median(replied)}


_held = contextlib.ExitStack()


def hold(spec: Spec, clients: int) -> None:
    """Open that many clients, make one call on each, and keep them until the process ends or `release` is called."""
    import nearcall

    interface = service()
    for _ in range(clients):
        client: Any = _held.enter_context(nearcall.connect(spec.address, interface))
        client.echo(b"hello")


def release(spec: Spec) -> None:
    """Close what `hold` opened."""
    _held.close()


def resident_kb(pid: int) -> dict[str, int]:
    """Resident KiB of a process: ``private`` (anonymous and file pages) and ``shared`` (memfd and tmpfs pages)."""
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem"):
            fields[name] = int(value.split()[0])
    return {"private": fields["RssAnon"] + fields["RssFile"], "shared": fields["RssShmem"]}
