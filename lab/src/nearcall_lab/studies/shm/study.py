"""Shared memory against gRPC: the study's questions answered by new measurements, and the causes of its own numbers."""

from __future__ import annotations

from collections.abc import Mapping

from nearcall_lab.stats import format_time
from nearcall_lab.studies.model import Flaw, ShownTable, Study, Summaries, cpu_us, rows_of, spectrum
from nearcall_lab.studies.replica import Findings

_SIZES: dict[str, dict[str, object]] = {
    "15 B": {"size": 15},
    "1 KB": {"size": 1_000},
    "10 KB": {"size": 10_000},
    "60 KB": {"size": 60_000},
}


def corrected(cells: Summaries) -> list[ShownTable]:
    """The study's two tables."""
    return [
        cells.table("latency", "Echo, p50 / p99", _SIZES, spectrum),
        cells.table(
            "throughput", "Echo, thousand calls/s", _SIZES, lambda s: s.throughput / 1e3 if s.throughput else None
        ),
        cells.table("cpu", "CPU of both sides per call, µs", _SIZES, cpu_us),
    ]


def _codec(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["codec"]
    rows = ("shm-rpc-bridge", "shm-rpc-bridge-json", "grpcio-uds")
    library, with_json, grpc = (cells.one(mechanism=name, size=60_000) for name in rows)
    return {
        "encoding and decoding 60 KB twice: json, as the study's library did": format_time(numbers["json_us"] * 1e3),
        "orjson, as it does today": format_time(numbers["orjson_us"] * 1e3),
        "Protobuf": format_time(numbers["protobuf_us"] * 1e3),
        f"60 KB, {library.result.label} {library.result.version} / the same with json / {grpc.result.label}": (
            f"{format_time(library.value)} / {format_time(with_json.value)} / {format_time(grpc.value)}"
        ),
    }


def _mean_only(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(name: str) -> Mapping[str, str]:
        summary = cells.one(mechanism=name, size=15)
        mean = format_time(summary.response.mean()) if summary.response else "–"
        return {f"{summary.result.label}, 15 B: mean; p50 / p99": f"{mean}; {spectrum(summary)}"}

    return rows_of(("shm-rpc-bridge", "grpcio-uds", "grpcio-tcp"), show)


def _threads(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["one thread"]
    return {
        "gRPC, UDS, 15 B, one server thread": format_time(numbers["one_thread_us"] * 1e3),
        "ten server threads": format_time(numbers["ten_threads_us"] * 1e3),
        "two clients at once, one server thread": format_time(numbers["two_clients_one_thread_us"] * 1e3),
        "two clients at once, ten server threads": format_time(numbers["two_clients_ten_threads_us"] * 1e3),
    }


def _two_clients(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["two clients"]
    return {
        f"two clients at once, {numbers['calls']:.0f} calls: answered rightly": f"{numbers['right']:.0f}",
        "failed, of these with a Response ID mismatch": f"{numbers['failed']:.0f}, {numbers['mismatch']:.0f}",
    }


def _after_a_timeout(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["after a time-out"]
    return {f"of {numbers['calls']:.0f} calls after the one that took too long, answered": f"{numbers['right']:.0f}"}


def _killed(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers = findings.checks["killed server"]
    return {
        "names in /dev/shm after kill -9": f"{numbers['names']:.0f}",
        "the server starts again beside them": "yes" if numbers["again"] else "no",
    }


STUDY = Study(
    "shm",
    "nearcall_lab.studies.shm",
    corrected,
    (
        Flaw(
            "codec",
            "Shared memory loses at 60 KB.",
            "The library encoded with Python's json then, and does with orjson today. No version of that time can be "
            "installed; here today's runs with either.",
            _codec,
        ),
        Flaw(
            "mean-only",
            "A mean of one run in a fixed order tells which is fastest.",
            "It hides the spread, and what the machine did meanwhile. Replies were not looked at.",
            _mean_only,
        ),
        Flaw(
            "one-thread",
            "gRPC is given one server thread.",
            "Here is what that matters, with one client and with two.",
            _threads,
        ),
        Flaw(
            "one-client",
            "The library connects clients with a server.",
            "One of them: a channel has one buffer for requests and one for replies, and two clients at once take each "
            "other's.",
            _two_clients,
        ),
        Flaw(
            "after-a-timeout",
            "Calls have a time limit.",
            "The late reply stays in the buffer and is taken for the next call's, and so on for ever.",
            _after_a_timeout,
        ),
        Flaw(
            "killed-server",
            "A server is started, used and stopped.",
            "One that is killed leaves its names behind, which keep the next one from starting until somebody removes "
            "them.",
            _killed,
        ),
    ),
    replica_s=(10.0, 500.0),
)
