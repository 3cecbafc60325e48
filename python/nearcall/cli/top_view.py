"""The data that ``nearcall top`` shows: the difference between two readings of the statistics of a server, of all its
workers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from ..introspection import ConnectionStatistics, MethodStatistics, Statistics
from ..route.service import EndpointStatus

__all__ = ["MOST_CONNECTIONS", "ClientRow", "Row", "View", "WorkerRow", "compare"]

MOST_CONNECTIONS = 1_000
"""Connections of which one view tells."""


class Row(msgspec.Struct, frozen=True):
    """One method: its counts since measuring began, and its rates and times since the last reading."""

    method: str
    kind: str
    started: int
    ended: dict[str, int]
    in_flight: int
    items_in: int
    items_out: int
    bytes_in: int
    bytes_out: int
    calls_per_second: float
    errors_per_second: float
    bytes_in_per_second: float
    bytes_out_per_second: float
    p50_seconds: float | None
    """``None`` if no call has ended since the last reading."""
    p99_seconds: float | None


class WorkerRow(msgspec.Struct, frozen=True):
    """One of the processes that serve together."""

    worker: int | None
    """Its number; ``None`` if it serves alone."""
    pid: int
    calls_per_second: float
    in_flight: int
    queued: int
    connections: int
    threads: int
    memory: int
    loop_held_up: float
    """Seconds for which its event loop of coroutine handlers has not turned; 0 if it turns."""


class ClientRow(ConnectionStatistics, frozen=True, kw_only=True):
    """One connection, as the server tells of it, and its rate since the last reading."""

    calls_per_second: float


class View(msgspec.Struct, frozen=True):
    """The state of a server at one moment; with ``--json``, one line. Of a server with workers, numbers are sums."""

    url: str
    pid: int
    """The process that answers."""
    version: str
    measured_seconds: float
    """Seconds for which the server has measured; the rows' counts are of this time."""
    seconds: float
    """Seconds since the last reading; the rows' rates and times are of this time."""
    watchers: int
    connections: int
    threads: int
    idle_threads: int
    queued: int
    in_flight: int
    memory: int
    """Bytes kept for clients, of at most ``max_memory``."""
    max_memory: int
    methods: list[Row]
    missing: int
    """Workers that did not answer."""
    workers: list[WorkerRow]
    endpoints: list[EndpointStatus] = []
    """To whom it sends messages, if it is a node of the router; the counts are of all its time."""
    clients: list[ClientRow] = []
    """The first 1000 connections, if they were asked for."""


class _Step:
    """What one process did between two readings."""

    def __init__(self, last: Statistics | None, now: Statistics) -> None:
        self.now = now
        same = last is not None and last.measurement == now.measurement
        self.begun = {method.method: method for method in last.methods} if last is not None and same else {}
        self.seconds = now.seconds - (last.seconds if last is not None and same else 0.0)

    def rate(self, method: MethodStatistics, of: Callable[[MethodStatistics], int]) -> float:
        """How much of something there was in a second."""
        last = self.begun.get(method.method)
        return (of(method) - (0 if last is None else of(last))) / self.seconds if self.seconds > 0 else 0.0

    def buckets(self, method: MethodStatistics) -> Counter[int]:
        """The calls that ended, by the time that they took."""
        last = self.begun.get(method.method)
        before = {} if last is None else dict(last.latency)
        return Counter({upper: count - before.get(upper, 0) for upper, count in method.latency})


Clients: TypeAlias = "Sequence[ConnectionStatistics]"


def compare(
    url: str,
    last: Sequence[Statistics],
    now: Sequence[Statistics],
    pid: int,
    clients: tuple[Clients, Clients] = ((), ()),
) -> View:
    """The view for two readings of all workers, or of the server if it has none.

    Args:
        url: Where the server is.
        last: The reading before.
        now: This reading.
        pid: The process that answers.
        clients: The connections of both readings.
    """
    begun = {each.pid: each for each in last}
    steps = [_Step(begun.get(each.pid), each) for each in now]

    def total(of: Callable[[Statistics], int]) -> int:
        return sum(map(of, now))

    methods: dict[str, list[tuple[_Step, MethodStatistics]]] = {}
    for step in steps:
        for method in step.now.methods:
            methods.setdefault(method.method, []).append((step, method))
    return View(
        url=url,
        pid=pid,
        version=now[0].version,
        measured_seconds=max(each.seconds for each in now),
        seconds=max(step.seconds for step in steps),
        watchers=max(each.watchers for each in now),
        connections=total(lambda each: each.connections),
        threads=total(lambda each: each.threads),
        idle_threads=total(lambda each: each.idle_threads),
        queued=total(lambda each: each.queued),
        in_flight=total(lambda each: each.in_flight),
        memory=total(lambda each: each.memory),
        max_memory=total(lambda each: each.max_memory),
        methods=[_row(parts) for parts in methods.values()],
        missing=max(max(each.workers for each in now) - len(now), 0),
        workers=[_worker(step) for step in steps],
        clients=_client_rows(*clients),
    )


def _client_rows(last: Clients, now: Clients) -> list[ClientRow]:
    before = {(each.pid, each.number): each for each in last}
    rows: list[ClientRow] = []
    for each in now:
        then = before.get((each.pid, each.number))
        # One that is new since has made its calls since.
        done, seconds = (each.ended, each.age) if then is None else (each.ended - then.ended, each.age - then.age)
        rate = done / seconds if seconds > 0 else 0.0
        rows.append(ClientRow(**msgspec.structs.asdict(each), calls_per_second=rate))
    return rows


def _worker(step: _Step) -> WorkerRow:
    now = step.now
    return WorkerRow(
        worker=now.worker,
        pid=now.pid,
        calls_per_second=sum(step.rate(method, lambda each: each.calls) for method in now.methods),
        in_flight=now.in_flight,
        queued=now.queued,
        connections=now.connections,
        threads=now.threads,
        memory=now.memory,
        loop_held_up=now.loop_held_up,
    )


def _row(parts: Sequence[tuple[_Step, MethodStatistics]]) -> Row:
    """A method, in all processes."""

    def total(of: Callable[[MethodStatistics], int]) -> int:
        return sum(of(method) for _, method in parts)

    def rate(of: Callable[[MethodStatistics], int]) -> float:
        return sum(step.rate(method, of) for step, method in parts)

    ended, times = Counter[str](), Counter[int]()
    for step, method in parts:
        ended.update(method.ended)
        times.update(step.buckets(method))
    buckets = sorted(times.items())
    return Row(
        method=parts[0][1].method,
        kind=parts[0][1].kind,
        started=total(lambda method: method.started),
        ended=dict(ended),
        in_flight=total(lambda method: method.in_flight),
        items_in=total(lambda method: method.items_in),
        items_out=total(lambda method: method.items_out),
        bytes_in=total(lambda method: method.bytes_in),
        bytes_out=total(lambda method: method.bytes_out),
        calls_per_second=rate(lambda method: method.calls),
        errors_per_second=rate(lambda method: method.calls - method.ended.get("OK", 0)),
        bytes_in_per_second=rate(lambda method: method.bytes_in),
        bytes_out_per_second=rate(lambda method: method.bytes_out),
        p50_seconds=_percentile(buckets, 0.5),
        p99_seconds=_percentile(buckets, 0.99),
    )


def _percentile(buckets: list[tuple[int, int]], share: float) -> float | None:
    """Seconds within which that share of the calls ended (nearest rank)."""
    left = math.ceil(share * sum(count for _, count in buckets))
    for upper, count in buckets:
        left -= count
        if count and left <= 0:
            return upper / 1e9
    return None
