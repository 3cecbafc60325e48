"""One server under h2load: its calls per second, and the server's CPU time for each."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nearcall_lab.adapters import grpc_messages
from nearcall_lab.engine.usage import cpu_times
from nearcall_lab.placement import Placement, on_cpus
from nearcall_lab.registry import Entrant
from nearcall_lab.workers.crew import Crew
from nearcall_lab.workloads import Order, fill

ORDER = Order("SYM1", 107, 1.25, True)
STREAMS = 50
_PATH = f"/{grpc_messages.SERVICE}/Quote"
_LIMIT_S = 120.0
_TRIAL = 2_000
"""Calls of the first run, which warms the server up and shows how many it can do per second."""


class NoServer(Exception):
    """A server answers wrongly, or cannot be measured; the message has the reason."""


@dataclass(frozen=True)
class Load:
    """What one run of h2load measured of one server."""

    calls_per_s: float
    cpu_us: float
    """CPU time of the server's processes for each call."""
    client_cpu_us: float
    calls: int


@dataclass(frozen=True)
class Subject:
    """A server to be measured."""

    name: str
    label: str
    start: Callable[[Placement], contextlib.AbstractContextManager[tuple[str, list[int]]]]
    """Starts a fresh server; yields its address and its processes. Raises `LaunchFailed`."""


def of_lab(entrant: Entrant) -> Subject:
    """One of the lab's mechanisms."""

    @contextlib.contextmanager
    def start(placement: Placement) -> Iterator[tuple[str, list[int]]]:
        with Crew(entrant, placement, clients=0) as crew:
            yield crew.address, crew.processes()[1]

    return Subject(entrant.mechanism.name, entrant.mechanism.label, start)


def load(subject: Subject, placement: Placement, seconds: float, folder: Path) -> Load:
    """Put load on a fresh server for about `seconds`. Raises `NoServer` and `LaunchFailed`, also if a reply is
    wrong.
    """
    body = folder / "order"
    body.write_bytes(_framed(_order()))
    with subject.start(placement) as (address, processes):
        replied = len(_framed(_checked_reply(subject, address)))
        trial = _run(address, body, _TRIAL, placement, replied)
        calls = max(_TRIAL, int(trial.calls_per_s * seconds))
        before = sum(cpu_times(processes).values())
        found = _run(address, body, calls, placement, replied)
        used = sum(cpu_times(processes).values()) - before
    return Load(found.calls_per_s, used / 1e3 / calls, found.client_cpu_us, calls)


def _framed(message: bytes) -> bytes:
    """The message with gRPC's prefix: the flag "not compressed", and the length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def _order() -> bytes:
    kinds = grpc_messages.classes()
    order = kinds.order(symbol=ORDER.symbol, quantity=ORDER.quantity, price=ORDER.price, urgent=ORDER.urgent)
    return bytes(order.SerializeToString())


def _checked_reply(subject: Subject, address: str) -> bytes:
    """The server's reply, which is checked to be what a handler computes."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        reply = bytes(channel.unary_unary(_PATH)(_order(), timeout=10))
    found, wanted = grpc_messages.classes().fill.FromString(reply), fill(ORDER)
    # The number of lots has the launch's secret in it.
    if (found.symbol, found.cost, found.accepted) != (wanted.symbol, wanted.cost, wanted.accepted):
        raise NoServer(f"{subject.label} answers wrongly: {found}")
    return reply


def _run(address: str, body: Path, calls: int, placement: Placement, replied: int) -> Load:
    """Run h2load; the reply to each call must have as many bytes as the one that was checked."""
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    shape = ["-n", str(calls), "-c", "1", "-t", "1", "-m", str(STREAMS), "-d", str(body)]
    command = ["h2load", *shape, *headers, f"http://{address}{_PATH}"]
    begin, used = time.perf_counter(), os.times()
    with on_cpus(placement.client):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    elapsed, after = time.perf_counter() - begin, os.times()
    rate = re.search(r"([\d.]+) req/s", done.stdout)
    succeeded = re.search(r"(\d+) succeeded, (\d+) failed", done.stdout)
    data = re.search(r"\((\d+)\) data", done.stdout)
    if done.returncode or not (rate and succeeded and data):
        raise NoServer(f"h2load did not run: {' '.join((done.stderr or done.stdout).split())[:300]}")
    if (int(succeeded[1]), int(succeeded[2]), int(data[1])) != (calls, 0, calls * replied):
        raise NoServer(
            f"of {calls} calls {succeeded[1]} were answered, with {data[1]} bytes instead of {calls * replied}"
        )
    client = (after.children_user + after.children_system) - (used.children_user + used.children_system)
    return Load(float(rate[1]) or calls / elapsed, 0.0, client * 1e6 / calls, calls)
