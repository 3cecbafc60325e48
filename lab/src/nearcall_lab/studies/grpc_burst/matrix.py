"""Every client at every server: whether a rate is the server's own, or that of whoever calls it."""

from __future__ import annotations

from collections.abc import Callable

from nearcall_lab.analysis.summary import CPU_FULL, Summary
from nearcall_lab.registry import AT
from nearcall_lab.results.model import Side
from nearcall_lab.stats import significant
from nearcall_lab.studies.model import NOT_PLANNED, ShownTable, Summaries, Value, shown_value, spectrum

PARTIES = ("grpcio-tcp", "grpc-aio-uvloop-tcp", "nearcall-aio-grpc", "grpc-go", "tonic", "grpc-java", "grpc-node")
OUTSTANDING = 50
"""Which tells the cells of the matrix from the others."""


def tables(cells: Summaries) -> list[ShownTable]:
    """Rates, latencies and CPU shares; a row for each client, a column for each server."""
    what = f"Client (row) at server (column), {OUTSTANDING} calls under way, one CPU for each side"
    return [
        _table(cells, "matrix-rate", f"{what}: calls/s; (client): its CPU was full, and the server's was not", _rate),
        _table(cells, "matrix-latency", f"{what}: p50 / p99", spectrum),
        _table(cells, "matrix-cpu", f"{what}: share of its CPU that the client used / the server", _shares),
    ]


def pair(cells: Summaries, client: str, server: str) -> Summary:
    """The cell of a client at a server. Raises `LookupError` where there is none with numbers."""
    return cells.one(mechanism=_name(client, server), outstanding=OUTSTANDING)


def clients(summary: Summary) -> list[Side]:
    """What the clients used, by launch."""
    return [launch.client for launch in summary.result.launches]


def servers(summary: Summary) -> list[Side]:
    """What the servers used, by launch."""
    return [launch.server for launch in summary.result.launches]


def _name(client: str, server: str) -> str:
    return client if client == server else f"{client}{AT}{server}"


def _table(cells: Summaries, id: str, title: str, value: Callable[[Summary], Value]) -> ShownTable:
    labels = {name: found[0].result.label for name in PARTIES if (found := cells.where(mechanism=name))}
    rows: dict[str, list[Value]] = {}
    for client, label in labels.items():
        row = [cells.where(mechanism=_name(client, server), outstanding=OUTSTANDING) for server in labels]
        rows[label] = [shown_value(found[0], value) if found else NOT_PLANNED for found in row]
    return ShownTable(id, title, list(labels.values()), rows)


def _rate(summary: Summary) -> Value:
    limited = summary.cpu_share("client") >= CPU_FULL > summary.cpu_share("server")
    return f"{significant(summary.throughput or 0)} (client)" if limited else summary.throughput


def _shares(summary: Summary) -> Value:
    return f"{summary.cpu_share('client'):.0%} / {summary.cpu_share('server'):.0%}"
