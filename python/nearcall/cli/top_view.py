"""The data that ``nearcall top`` shows: the difference between two readings of a server's statistics."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from ..introspection import MethodStatistics, Statistics

__all__ = ["Row", "View", "compare"]


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


class View(msgspec.Struct, frozen=True):
    """The state of a server at one moment; with ``--json``, one line."""

    url: str
    pid: int
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


def compare(url: str, last: Statistics, now: Statistics) -> View:
    """The view for two readings."""
    begun = {} if last.measurement != now.measurement else {method.method: method for method in last.methods}
    seconds = now.seconds - (last.seconds if begun else 0.0)
    return View(
        url=url,
        pid=now.pid,
        version=now.version,
        measured_seconds=now.seconds,
        seconds=seconds,
        watchers=now.watchers,
        connections=now.connections,
        threads=now.threads,
        idle_threads=now.idle_threads,
        queued=now.queued,
        in_flight=now.in_flight,
        memory=now.memory,
        max_memory=now.max_memory,
        methods=[_row(begun.get(method.method), method, seconds) for method in now.methods],
    )


def _row(last: MethodStatistics | None, now: MethodStatistics, seconds: float) -> Row:
    def rate(of: Callable[[MethodStatistics], int]) -> float:
        return (of(now) - (0 if last is None else of(last))) / seconds if seconds > 0 else 0.0

    before = {} if last is None else dict(last.latency)
    buckets = [(upper, count - before.get(upper, 0)) for upper, count in now.latency]
    return Row(
        method=now.method,
        kind=now.kind,
        started=now.started,
        ended=now.ended,
        in_flight=now.in_flight,
        items_in=now.items_in,
        items_out=now.items_out,
        bytes_in=now.bytes_in,
        bytes_out=now.bytes_out,
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
