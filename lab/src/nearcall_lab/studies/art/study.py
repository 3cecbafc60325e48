"""The add-on runtime study: its questions answered by new measurements, and the causes of its own numbers."""

from __future__ import annotations

from collections.abc import Mapping

from nearcall_lab.analysis.summary import Summary
from nearcall_lab.stats import format_time, significant
from nearcall_lab.studies.model import Flaw, ShownTable, Study, Summaries, cpu_us, rows_of, spectrum
from nearcall_lab.studies.replica import Findings

_LEVELS = (1, 5, 10, 20, 50, 100)
_SIZES = {"1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}


def corrected(cells: Summaries) -> list[ShownTable]:
    """The study's tables, and the use of CPU and memory, which it praises but does not measure."""
    one: dict[str, object] = {"operation": "echo", "size": 15, "connections": 1}
    levels: dict[str, dict[str, object]] = {
        str(level): {"operation": "echo", "size": 15, "connections": level} for level in _LEVELS
    }
    sizes: dict[str, dict[str, object]] = {
        title: {"operation": "echo", "size": size, "connections": 1} for title, size in _SIZES.items()
    }
    return [
        cells.table("simple", "Simple call, 15 bytes, one at a time", {"p50 / p99": one}, spectrum),
        cells.table(
            "stream", "Stream of 1000 integers, items/s", {"items/s": {"operation": "count"}}, lambda s: s.value
        ),
        cells.table("payload", "Each size by itself, p50 / p99", sizes, spectrum),
        cells.table("concurrency", "N clients with a connection each, calls/s", levels, lambda s: s.throughput),
        cells.table("cpu", "CPU of both sides per call, µs", {"µs": one}, cpu_us),
        cells.table("memory", "Peak resident memory of both sides, MB", {"MB": one}, _memory_mb),
    ]


def _memory_mb(summary: Summary) -> float:
    launches = summary.result.launches
    peaks = [launch.client.peak_rss_kb + launch.server.peak_rss_kb for launch in launches]
    return sorted(peaks)[len(peaks) // 2] / 1e3


def _same_row(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    table = findings.tables["concurrency"]
    return {
        f"{name}: simple call × 200 / batch at concurrency 1": (
            f"{format_time(row[0] * 200e3)} / {format_time(batch * 1e6)}"
        )
        for name, row in findings.tables["simple"].items()
        if (batch := table[f"{name}, ms"][0]) is not None and row[0] is not None
    }


def _serialised(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def connections(mechanism: str, number: int) -> float | None:
        return cells.one(mechanism=mechanism, operation="echo", size=15, connections=number).throughput

    def show(row: tuple[str, str]) -> Mapping[str, str]:
        name, mechanism = row
        rates = findings.tables["concurrency"][f"{name}, calls/s"]
        return {
            f"{name}, 1 to 100 calls behind a semaphore, one connection": _change(rates[0], rates[-1]),
            f"{name}, 1 to 100 connections": _change(connections(mechanism, 1), connections(mechanism, 100)),
        }

    return rows_of((("Pyro4", "pyro4-tcp"), ("ZeroMQ", "pyzmq-tcp")), show)


def _change(first: float | None, last: float | None) -> str:
    if not first or not last:
        raise LookupError("not measured")
    return f"{significant(first)} to {significant(last)} calls/s"


def _one_process(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(row: tuple[str, str]) -> Mapping[str, str]:
        name, mechanism = row
        mean = findings.tables["simple"][name][0]
        own = cells.one(mechanism=mechanism, operation="echo", size=15, connections=1).value
        return {f"{name}: in one process / in two": f"{format_time((mean or 0) * 1e3)} / {format_time(own)}"}

    return rows_of(
        (("gRPC", "grpc-aio-tcp"), ("Pyro4", "pyro4-tcp"), ("RPyC", "rpyc-tcp"), ("ZeroMQ", "pyzmq-tcp")), show
    )


def _logging(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["logging"]
    as_it_was = findings.tables["simple"]["gRPC"][0]
    own = cells.one(mechanism="grpc-aio-tcp", operation="echo", size=15, connections=1).value
    return {
        "gRPC as the study did it": format_time((as_it_was or 0) * 1e3),
        "the same after 2000 calls": format_time(numbers["with_log_us"] * 1e3),
        "and without the log lines": format_time(numbers["without_log_us"] * 1e3),
        "and in two processes": format_time(own),
    }


def _streams(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(row: tuple[str, str]) -> Mapping[str, str]:
        name, mechanism = row
        as_published = findings.tables["stream"][name][1]
        own = cells.one(mechanism=mechanism, operation="count").value
        return {
            f"{name}: as the study did it / its own stream": (
                f"{significant(as_published or 0)} / {significant(own or 0)} items/s"
            )
        }

    return rows_of((("gRPC", "grpc-aio-tcp"), ("Pyro4", "pyro4-tcp"), ("RPyC", "rpyc-tcp")), show)


def _averaged(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(name: str) -> Mapping[str, str]:
        alone = findings.checks["averaged sizes"]
        times = (findings.tables["payload"][name][0], alone[f"{name}, 1 KB, ms"], alone[f"{name}, 1000 KB, ms"])
        return {
            f"{name}: the mean of four / 1 KB alone / 1 MB alone": " / ".join(
                format_time((value or 0) * 1e6) for value in times
            )
        }

    return rows_of(("gRPC", "Pyro4", "RPyC", "ZeroMQ"), show)


def _resources(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(mechanism: str) -> Mapping[str, str]:
        summary = cells.one(mechanism=mechanism, operation="echo", size=15, connections=1)
        cpu = significant(summary.cpu_us_per_call or 0)
        return {summary.result.label: f"{cpu} µs CPU per call, {_memory_mb(summary):.0f} MB"}

    return rows_of(("pyro4-tcp", "grpc-aio-tcp", "rpyc-tcp", "pyzmq-tcp"), show)


STUDY = Study(
    "art",
    "nearcall_lab.studies.art",
    corrected,
    (
        Flaw(
            "same-row",
            "The table of simple calls and the table of concurrency are two results.",
            "They are one: each simple call is the batch of 200 at concurrency 1, divided by 200.",
            _same_row,
        ),
        Flaw(
            "serialised",
            "Pyro4 and ZeroMQ stay remarkably stable up to 100 concurrent clients.",
            "There is one client. A semaphore lets 100 calls wait for one connection that takes them one by one.",
            _serialised,
        ),
        Flaw(
            "one-process",
            "Out-of-process calls are measured.",
            "Client and server share a process, and gRPC and ZeroMQ even an event loop; two cost something else.",
            _one_process,
        ),
        Flaw(
            "logging",
            "gRPC is the slowest.",
            "It alone writes about four log lines in each timed call. And the first thousand calls of a process, all "
            "that are timed, take longer than later ones.",
            _logging,
        ),
        Flaw(
            "streams",
            "Streaming is compared.",
            "Four different things are: a list built in one job, a hop per item, a request per item, and a stream.",
            _streams,
        ),
        Flaw(
            "averaged",
            "Large payloads are compared by one mean.",
            "It averages four sizes and is nearly all the largest one.",
            _averaged,
        ),
        Flaw(
            "resources",
            "Pyro4 showed excellent memory utilization and CPU efficiency.",
            "Neither was measured. Here they are.",
            _resources,
        ),
    ),
    replica_s=(10.0, 75.0),
)
