"""RPyC against HTTP: the study's questions answered by new measurements, and the causes of its own numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nearcall_lab.analysis.summary import Summary
from nearcall_lab.results.distribution import merged
from nearcall_lab.scenario.cell import format_size
from nearcall_lab.stats import format_time
from nearcall_lab.studies.ahead import others_ahead
from nearcall_lab.studies.model import (
    NOT_PLANNED,
    Flaw,
    ShownTable,
    Study,
    Summaries,
    Value,
    quantile_us,
    rows_of,
    shown_value,
    spectrum,
    why_no_number,
)
from nearcall_lab.studies.replica import Findings

_ONE: dict[str, object] = {"operation": "echo", "kind": "closed", "connections": 1, "size": 15}
_TEN: dict[str, object] = {"operation": "echo", "kind": "closed", "connections": 10}
_SIZES, _CONNECTIONS = (15, 1_000, 10_000, 100_000, 1_000_000), (1, 4, 16, 64)
_CONNECT: dict[str, object] = {"kind": "connect"}
_PHASES = ("made", "connected", "first reply")


def corrected(cells: Summaries) -> list[ShownTable]:
    """All tables on loopback."""
    return [*_tables(cells), others_ahead(cells)]


def elsewhere(cells: Summaries) -> list[ShownTable]:
    """The same tables with the servers on another machine."""
    return [
        ShownTable(f"{each.id}-remote", f"{each.title}, second host", each.columns, each.rows)
        for each in _tables(cells)
    ]


def _tables(cells: Summaries) -> list[ShownTable]:
    """Set-up in three phases, single calls, and ten clients, each with a connection of its own."""
    set_up = ShownTable("connection", "Set-up, median of each phase", ["object made", "connected", "first reply"], {})
    latency = ShownTable("latency", "One call at a time, µs", ["p50", "p90", "p99"], {})
    for name, label in cells.fastest_first(_CONNECT):
        for summary in cells.where(mechanism=name, **_CONNECT):
            set_up.rows[label] = _phases(summary)
    for name, label in cells.fastest_first(_ONE):
        for summary in cells.where(mechanism=name, **_ONE):
            latency.rows[label] = [
                shown_value(summary, lambda s, p=p: quantile_us(s, p))  # type: ignore[misc]
                for p in (0.5, 0.9, 0.99)
            ]
    return [
        set_up,
        latency,
        cells.table("concurrency", "10 clients in two processes, p50 / p99 of a call", {"p50 / p99": _TEN}, spectrum),
        cells.table("rate", "10 clients in two processes, calls/s", {"calls/s": _TEN}, lambda s: s.throughput),
        _sweep(cells, "sweep-rate", "Size by connections, calls/s", lambda summary: summary.throughput),
        _sweep(cells, "sweep-p99", "Size by connections, p99", _p99),
    ]


def _sweep(cells: Summaries, id: str, title: str, value: Callable[[Summary], Value]) -> ShownTable:
    """What the authors planned; a mechanism's row for each number of connections."""
    table = ShownTable(id, title, [format_size(size) for size in _SIZES], {})
    for name, label in cells.fastest_first(_TEN):
        for number in _CONNECTIONS:
            wanted = {**_ONE, "mechanism": name, "connections": number}
            found = [cells.where(**{**wanted, "size": size}) for size in _SIZES]
            if sum(map(bool, found)) > 1:
                place = f"{label}, {number} connection{'s' if number > 1 else ''}"
                table.rows[place] = [shown_value(each[0], value) if each else NOT_PLANNED for each in found]
    return table


def _p99(summary: Summary) -> Value:
    found = summary.quantiles.get(0.99)
    return format_time(found.value) if found else None


def _phases(summary: Summary) -> list[Value]:
    if summary.value is None:
        return [why_no_number(summary)]
    medians: list[Value] = []
    for phase in _PHASES:
        found = merged(launch.phases.get(phase) for launch in summary.result.launches)
        medians.append(format_time(found.quantile(0.5)) if found is not None else None)
    return medians


def _overwritten(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["overwritten"]
    shown = {name: f"{value:.3g} ms" for name, value in numbers.items()}
    for name, row in findings.tables["latency"].items():
        mean, duration = row[0], findings.tables["concurrency"][name][2]
        if mean is not None and duration is not None:
            shown[f"{name}: mean × 100 / published as duration of the concurrent run"] = (
                f"{mean / 10:.3g} s / {duration:.3g} s"
            )
    return shown


def _no_connection(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["no connection"]
    return {
        "HTTP, object made": f"{numbers['object_made_ms']:.3g} ms",
        "HTTP, first reply": f"{numbers['first_reply_ms']:.3g} ms",
    }


def _two_trips(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    return {name: f"{value:.3g}" for name, value in findings.checks["two round trips"].items()}


def _nodelay(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    return {name: f"{value:.3g} ms" for name, value in findings.checks["nodelay"].items()}


def _pickle(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    return {name: f"{value:.0f}" for name, value in findings.checks["pickle"].items()}


def _wall_clock(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["clock"]
    return {
        "time.time(), which the study reads, may be set while it is measured": "yes" if numbers["wall"] else "no",
        "time.perf_counter()": "yes" if numbers["monotonic"] else "no",
    }


def _development(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(name: str) -> Mapping[str, str]:
        summary = cells.one(mechanism=name, **_ONE)
        return {summary.result.label: format_time(summary.value)}

    return rows_of(("flask", "http-uvicorn", "http-granian", "rpyc-tcp"), show)


STUDY = Study(
    "rpyc-http",
    "nearcall_lab.studies.rpyc_http",
    corrected,
    (
        Flaw(
            "overwritten",
            "Connection, latency of 1000 requests and concurrency are three results.",
            "They are stored under one key and overwrite each other: all three tables are the last run, ten threads of "
            "one process with 100 requests each, which share its interpreter lock.",
            _overwritten,
        ),
        Flaw(
            "no-connection",
            "HTTP connects 15 to 20 times faster.",
            "Its connection time is the making of an object that opens no socket.",
            _no_connection,
        ),
        Flaw(
            "two-trips",
            "The latency of RPyC is that of one request.",
            "It is that of two: the method is looked up at the server before each call.",
            _two_trips,
        ),
        Flaw(
            "nodelay",
            "RPyC over TCP is measured as it comes.",
            "TCP_NODELAY is off, on both sides. One call at a time does not show it; of two messages in a row, one may "
            "wait 40 ms for an acknowledgement, and setting it on one side only can make that worse.",
            _nodelay,
        ),
        Flaw(
            "pickle",
            "RPyC uses pickle.",
            "Not on this path: arguments and results of plain types go by its own codec, and pickle is off by default.",
            _pickle,
        ),
        Flaw(
            "wall-clock",
            "The times are differences of two readings of a clock.",
            "Of the wall clock, which time synchronisation sets and slews; a difference may even be negative.",
            _wall_clock,
        ),
        Flaw(
            "development-server",
            "Flask's development server stands for HTTP.",
            "It closes the connection after each reply; servers made for production do not.",
            _development,
        ),
    ),
    elsewhere=elsewhere,
    replica_s=(15.0, 10.0),
)
