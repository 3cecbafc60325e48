"""A run as an SQLite file for questions that the lab's own reports do not answer: ``cells``, ``launches``, and
``failures``, which are the calls that failed, by kind.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from nearcall_lab.results.distribution import decode
from nearcall_lab.results.model import CellResult, Latencies, Launch, RunInfo

_CELLS = (
    "digest TEXT PRIMARY KEY, mechanism TEXT, label TEXT, family TEXT, version TEXT, settings TEXT, tuned INTEGER, "
    "title TEXT, operation TEXT, size INTEGER, mode TEXT, connections INTEGER, outstanding INTEGER, rate REAL, "
    "placement TEXT, status TEXT, problem TEXT, cell TEXT"
)
_LAUNCHES = (
    "digest TEXT REFERENCES cells, counted INTEGER, number INTEGER, position INTEGER, started TEXT, calls INTEGER, "
    "failed INTEGER, wall_s REAL, throughput REAL, p50_ns REAL, p99_ns REAL, p999_ns REAL, mean_ns REAL, "
    "max_ns INTEGER, first_call_ns INTEGER, client_cpu_s REAL, server_cpu_s REAL, "
    "little REAL, canary_ns INTEGER, steal_share REAL, others_share REAL, waited_share REAL, "
    "client_involuntary INTEGER, server_involuntary INTEGER, breach TEXT, PRIMARY KEY (digest, position)"
)

_FAILURES = (
    "digest TEXT REFERENCES cells, position INTEGER, kind TEXT, calls INTEGER, PRIMARY KEY (digest, position, kind)"
)


def write_database(path: Path, info: RunInfo, cells: list[CellResult]) -> None:
    """Write the file anew. Raises `OSError`."""
    path.unlink(missing_ok=True)
    try:
        connection = sqlite3.connect(path)
        try:
            with connection:
                connection.execute("CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT)")
                connection.execute(f"CREATE TABLE cells ({_CELLS})")
                connection.execute(f"CREATE TABLE launches ({_LAUNCHES})")
                connection.execute(f"CREATE TABLE failures ({_FAILURES})")
                connection.executemany("INSERT INTO run VALUES (?, ?)", _info(info))
                for cell in cells:
                    _insert(connection, cell)
        finally:
            connection.close()
    except sqlite3.OperationalError as error:  # a full disk is one of the causes
        raise OSError(error.args[0]) from None


def _info(info: RunInfo) -> list[tuple[str, str]]:
    values = msgspec.to_builtins(info)
    return [(name, v if isinstance(v, str) else msgspec.json.encode(v).decode()) for name, v in values.items()]


def _insert(connection: sqlite3.Connection, result: CellResult) -> None:
    cell = result.cell
    row = (
        *(result.digest, cell.mechanism, result.label, result.family, result.version, result.settings, result.tuned),
        *(cell.title(), cell.work.operation, cell.work.size, cell.mode.kind, cell.mode.connections),
        *(cell.mode.outstanding, cell.mode.rate, cell.placement, result.status, result.problem),
        cell.canonical().decode(),
    )
    connection.execute(f"INSERT INTO cells VALUES ({_marks(row)})", row)
    for counted, launches in ((1, result.launches), (0, result.disturbed)):
        for launch in launches:
            values = _launch(result.digest, counted, launch)
            connection.execute(f"INSERT INTO launches VALUES ({_marks(values)})", values)
            kinds = [(result.digest, launch.position, kind, calls) for kind, calls in launch.errors.items()]
            connection.executemany("INSERT INTO failures VALUES (?, ?, ?, ?)", kinds)


def _launch(digest: str, counted: int, launch: Launch) -> tuple[object, ...]:
    return (
        *(digest, counted, launch.number, launch.position, launch.started, launch.calls, sum(launch.errors.values())),
        *(launch.wall_s, launch.throughput, *_quantiles(launch.response), launch.first_call_ns),
        *(launch.client.cpu_s, launch.server.cpu_s, launch.little, launch.canary_ns, launch.steal_share),
        *(launch.others_share, launch.waited_share),
        *(launch.client.involuntary_switches, launch.server.involuntary_switches, launch.breach),
    )


def _quantiles(response: Latencies | None) -> tuple[float | int | None, ...]:
    if response is None:
        return (None,) * 5
    found = decode(response)
    return (*(found.quantile(p) for p in (0.5, 0.99, 0.999)), response.mean, response.max)


def _marks(row: tuple[object, ...]) -> str:
    return ", ".join("?" for _ in row)
