"""A Python gRPC framework against others: the study's questions answered by new measurements, and the causes of its own
numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from nearcall_lab.analysis.summary import Summary
from nearcall_lab.stats import significant
from nearcall_lab.studies.grpc_burst import matrix
from nearcall_lab.studies.model import Flaw, ShownTable, Study, Summaries, Value, cpu_us, rows_of, spectrum
from nearcall_lab.studies.replica import Findings
from nearcall_lab.studies.show import shown

_SIZES = (100, 1_000, 10_000, 30_000)
_BURSTS: dict[str, dict[str, object]] = {str(n): {"kind": "burst", "calls": n, "operation": "wait"} for n in _SIZES}
_BARE: dict[str, dict[str, object]] = {
    "1 under way": {"kind": "closed", "outstanding": 1},
    "100 under way": {"kind": "closed", "outstanding": 100},
    "1000 at once": {"kind": "burst", "operation": "quote"},
}
_LARGER = {name: wanted for name, wanted in _BURSTS.items() if name != str(_SIZES[0])}
_FRAMEWORK = ("protobuf", "json", "orjson", "dataclass")


def corrected(cells: Summaries) -> list[ShownTable]:
    """Bursts with their failures, and the same handlers without the wait."""
    return [
        cells.table("seconds", "Seconds until the last call of a burst is done, median of launches", _BURSTS, _seconds),
        cells.table("rate", "The same, calls/s", _BURSTS, lambda s: _of_whole(s, s.throughput)),
        cells.table(
            "growth", "Calls/s, in comparison with the next smaller burst", _LARGER, lambda s: _growth(cells, s)
        ),
        cells.table("tails", "Time of a burst's calls, p50 / p99", _BURSTS, lambda s: _of_whole(s, spectrum(s))),
        cells.table("memory", "Most memory of the client / the server during a burst, MB", _BURSTS, _memory),
        cells.table("failed", "Share of the calls that failed, and how they ended", _BURSTS, _failed),
        cells.table("bare", "Without the wait, warmed up, calls/s", _BARE, lambda s: s.throughput),
        cells.table("bare-latency", "Without the wait, p50 / p99", _BARE, spectrum),
        cells.table("cpu", "Without the wait, CPU of both sides per call, µs", _BARE, cpu_us),
        *matrix.tables(cells),
    ]


def _failed(summary: Summary) -> Value:
    failed = summary.failed
    return f"{failed.share:.1%}: {failed.reasons}" if failed.calls else "none"


def _growth(cells: Summaries, summary: Summary) -> Value:
    cell = summary.result.cell
    smaller = str(_SIZES[_SIZES.index(cell.mode.calls) - 1])
    try:
        before = cells.one(mechanism=cell.mechanism, **_BURSTS[smaller])
    except LookupError:
        return f"no {smaller} to compare with"
    if before.failed.calls or not (before.throughput and summary.throughput):
        return f"no {smaller} to compare with"
    return _of_whole(summary, f"{summary.throughput / before.throughput - 1:+.0%}")


def _memory(summary: Summary) -> Value:
    sides = (matrix.clients(summary), matrix.servers(summary))
    peaks = [statistics.median(each.peak_rss_kb for each in side) / 1e3 for side in sides]
    return " / ".join(significant(peak) for peak in peaks)


def _burst_s(summary: Summary) -> list[float]:
    """Seconds of a burst, ascending: for each launch the mean of the bursts that it made."""
    return sorted(launch.phases["burst"].mean / 1e9 for launch in summary.result.launches if "burst" in launch.phases)


def _seconds(summary: Summary) -> Value:
    times = _burst_s(summary)
    return _of_whole(summary, times[len(times) // 2]) if times else None


def _of_whole(summary: Summary, value: Value) -> Value:
    """The number of a burst without failures. One with failures has none, since refusing calls is quick."""
    return f"none: {summary.failed.share:.1%} failed" if summary.failed.calls else value


def _sleep(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(column: str) -> Mapping[str, str]:
        floor = findings.checks["sleep"][f"{column} sleeps in one process, s"]
        own = _seconds(cells.one(mechanism="grpc-aio-uvloop-tcp", **_BURSTS[column]))
        unit = " s" if isinstance(own, float) else ""
        return {f"{column} calls: the sleeps alone / grpc.aio + uvloop": f"{significant(floor)} s / {shown(own)}{unit}"}

    return rows_of(_BURSTS, show)


def _one_burst(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(name: str) -> Mapping[str, str]:
        summary = cells.one(mechanism=name, kind="burst", calls=1_000)
        times = _burst_s(summary)
        return {f"{summary.result.label}, 1000 calls, launches: {len(times)}": f"{times[0]:.3f} to {times[-1]:.3f} s"}

    return rows_of(("grpc-aio-uvloop-tcp", "grpc-framework-protobuf"), show)


def _failures(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    kinds = findings.checks.get("error kinds", {})

    def how(name: str) -> str:
        return ", ".join(kind.removeprefix(f"{name}: ") for kind in kinds if kind.startswith(f"{name}: "))

    found = {
        name: f"{count:,.0f}{f': {how(name)}' if count else ''}"
        for name, count in findings.checks["errors"].items()
        if name.endswith("10000 calls, failed")
    }
    room = findings.checks.get("room", {}).items()
    return found | {name: f"{count:,.0f}" for name, count in room}


def _decoding(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(codec: str) -> Mapping[str, str]:
        summary = cells.one(mechanism=f"grpc-framework-{codec}", kind="closed", outstanding=100)
        return {f"{summary.result.label}, with an argument, no wait": f"{significant(summary.throughput or 0)} calls/s"}

    return rows_of(_FRAMEWORK, show)


def _ceiling(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def rate(client: str, server: str) -> str:
        summary = matrix.pair(cells, client, server)
        used = f"{summary.cpu_share('client'):.0%} / {summary.cpu_share('server'):.0%}"
        return f"{significant(summary.throughput or 0)} ({used})"

    def show(name: str) -> Mapping[str, str]:
        label = matrix.pair(cells, name, name).result.label
        own = f"{label}: calls/s (CPU of client / server) with its own client, and with tonic's"
        return {own: f"{rate(name, name)}; {rate('tonic', name)}"}

    return rows_of(("grpc-aio-uvloop-tcp", "grpc-java", "grpc-node", "grpc-go"), show)


STUDY = Study(
    "grpc-burst",
    "nearcall_lab.studies.grpc_burst",
    corrected,
    (
        Flaw(
            "sleep",
            "Calls per second are compared.",
            "Every handler waits 0.1 s: at 100 calls nobody can do more than 1000 a second; most of it is the wait.",
            _sleep,
        ),
        Flaw(
            "one-burst",
            "One burst, once, tells 3 % apart.",
            "Bursts of one program differ by more than its rows do.",
            _one_burst,
        ),
        Flaw(
            "ceiling",
            "The rate of a burst is the server's.",
            "Four rows are within 3 % of each other, and the two sides shared the CPUs: it may as well be the rate of "
            "whoever called. Here each side has a CPU of its own, and the client's is shown.",
            _ceiling,
        ),
        Flaw(
            "failures",
            "A rate is given for each burst.",
            "Whether calls of a burst failed does not show in it. Here only those that were answered are counted. A "
            "gRPC server on its C core refuses calls that its program does not take up fast enough: some from 1000 "
            "waiting ones on, all from 3000 (grpc.server.max_pending_requests and its _hard_limit); the client is told "
            "CANCELLED. A server of tonic ends the connection (GOAWAY, ENHANCE_YOUR_CALM, too_many_data_frames): the "
            "h2 below it gives DATA frames that are short and not yet read a budget, from 0.4.16 on, which grows with "
            "initial_connection_window_size; with 64 MiB no call of 30,000 failed. The last number is the same burst "
            "at the C core with room for all of them.",
            _failures,
        ),
        Flaw(
            "no-argument",
            "The codecs of the framework are compared.",
            "The handler takes no argument: nothing is ever decoded at the server, and the wait hides the rest.",
            _decoding,
        ),
    ),
    replica_s=(80.0, 0.0),
)
