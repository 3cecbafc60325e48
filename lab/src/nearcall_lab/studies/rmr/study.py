"""gRPC for one-way messages: the study's questions answered by new measurements, and the causes of its own numbers."""

from __future__ import annotations

from collections.abc import Mapping

from nearcall_lab.analysis.summary import Summary
from nearcall_lab.stats import format_time, significant
from nearcall_lab.studies.ahead import others_ahead
from nearcall_lab.studies.model import Flaw, ShownTable, Study, Summaries, Value, rows_of, spectrum
from nearcall_lab.studies.replica import Findings

_FAST: dict[str, dict[str, object]] = {
    "20 B": {"operation": "send", "size": 20, "rate": 0.0, "extra_copy": False},
    "4 KB": {"operation": "send", "size": 4_096, "rate": 0.0, "extra_copy": False},
}
_COPIED: dict[str, dict[str, object]] = {
    "20 B, copied": {"size": 20, "rate": 0.0, "extra_copy": True},
    "4 KB, copied": {"size": 4_096, "rate": 0.0, "extra_copy": True},
}


_CALLS: dict[str, dict[str, object]] = {
    "20 B": {"operation": "echo", "size": 20},
    "4 KB": {"operation": "echo", "size": 4_096},
}


def _rates(placement: str, size: int = 20) -> dict[str, dict[str, object]]:
    rates = (100, 850, 4_000, 8_500, 39_000)
    return {f"{rate:,}/s": {"rate": float(rate), "placement": placement, "size": size} for rate in rates}


def corrected(cells: Summaries) -> list[ShownTable]:
    """Throughput, and the distribution at each rate, to its end."""
    one_way = [
        cells.table("sizes", "As fast as it goes, messages/s at the receiver", _FAST, lambda s: s.throughput),
        cells.table("copied", "The same, copied through a ring of the sender's", _COPIED, lambda s: s.throughput),
        _beside(cells),
        cells.table("rates", "From due to arrival, p50 / p99, pinned apart", _rates("apart"), spectrum),
        cells.table("pinning", "The same, not pinned", _rates("free"), spectrum),
        cells.table("rates-4k", "From due to arrival, 4 KB, p50 / p99, pinned apart", _rates("apart", 4_096), spectrum),
        cells.table("pinning-4k", "The same, 4 KB, not pinned", _rates("free", 4_096), spectrum),
        cells.table("longest", "The longest of all from due to arrival, 20 B, pinned apart", _rates("apart"), _slowest),
        cells.table("longest-free", "The longest of all, 20 B, not pinned", _rates("free"), _slowest),
        cells.table("lost", "Messages sent and not delivered, as fast as it goes", _FAST, lambda s: f"{_lost(s):,}"),
    ]
    for table in one_way:
        table.rows = {_one_way_name(label): values for label, values in table.rows.items()}
    calls = cells.table("calls", "A message and the reply to it, p50 / p99", _CALLS, spectrum)
    ahead = others_ahead(cells)
    for work, values in ahead.rows.items():
        if "one-way" in work:
            ahead.rows[work] = [_one_way_name(str(value)) for value in values]
    return [*one_way, calls, ahead]


_SOCKETS = {"REQ/REP": "PUSH/PULL", "Req0/Rep0": "Push0/Pull0"}
"""The sockets that give a row its name, and those that it uses for one-way messages."""


def _one_way_name(label: str) -> str:
    for calls, messages in _SOCKETS.items():
        label = label.replace(calls, messages)
    return label


_PAIRS = (
    *((f"nearcall-route-{scheme}", f"nearcall-{scheme}") for scheme in ("shm", "unix", "tcp", "nats")),
    ("nearcall-route-rmr", "librmr"),
    ("nearcall-nats", "nats"),
    ("nearcall-route-nats", "nats"),
    ("nearcall-route-shm", "iceoryx2"),
    ("nearcall-route-unix", "pyzmq"),
)
"""Whose rate is shown as a share of whose."""


def _beside(cells: Summaries) -> ShownTable:
    table = ShownTable("beside", "The rate of one as a multiple of another's, as fast as it goes", ["20 B", "4 KB"], {})
    for name, other in _PAIRS:
        ratios: list[Value] = []
        labels = ""
        for size in table.columns:
            found = [cells.where(mechanism=each, **_FAST[size]) for each in (name, other)]
            if not all(found):
                continue
            labels = " / ".join(each[0].result.label for each in found)
            top, bottom = (each[0].throughput for each in found)
            ratios.append(top / bottom if top and bottom else "no number of both")
        if ratios:
            table.rows[labels] = ratios
    return table


def _lost(summary: Summary) -> int:
    launches = summary.result.launches
    return sum(launch.sent - launch.delivered for launch in launches)


def _slowest(summary: Summary) -> str:
    return format_time(_longest(summary))


def _mixed(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    def show(row: tuple[str, str]) -> Mapping[str, str]:
        label, name = row
        summary = cells.one(mechanism=name, **{**_FAST, **_COPIED}[label])
        return {f"{summary.result.label}, {label}": f"{significant(summary.throughput or 0)} messages/s"}

    return rows_of([(label, name) for label in {**_FAST, **_COPIED} for name in ("grpc-aio-tcp", "pynng")], show)


def _longest(summary: Summary) -> float:
    return float(max(launch.response.max for launch in summary.result.launches if launch.response is not None))


def _tail(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    numbers, shown = findings.checks["cut tail"], {}
    for rate in (8_500, 39_000):
        shown[f"the study's way, {rate:,}/s: share beyond 1 ms, longest"] = (
            f"{numbers[f'{rate}, share']:.1%}, {format_time(numbers[f'{rate}, longest'] * 1e6)}"
        )

    def pinned(row: tuple[str, str]) -> Mapping[str, str]:
        placement, words = row
        summary = cells.one(mechanism="grpc-aio-tcp", rate=8_500.0, placement=placement, size=20)
        p99 = format_time(summary.response.quantile(0.99)) if summary.response is not None else "–"
        return {f"gRPC at 8,500/s, {words}: p99, maximum": f"{p99}, {format_time(_longest(summary))}"}

    return shown | rows_of((("apart", "pinned"), ("free", "not pinned")), pinned)


def _ranking(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    shown = {
        f"the study's way, {name}": f"{significant(row[2])} messages/s"
        for name, row in findings.tables["throughput"].items()
        if row[2] is not None
    }

    def from_python(name: str) -> Mapping[str, str]:
        summary = cells.one(mechanism=name, **_FAST["20 B"])
        return {
            f"{_one_way_name(summary.result.label)}, from Python": f"{significant(summary.throughput or 0)} messages/s"
        }

    return shown | rows_of(("librmr", "nearcall-route-rmr", "nearcall-route-shm"), from_python)


def _pinning(findings: Findings, cells: Summaries) -> Mapping[str, str]:
    free, pinned = next(iter(findings.tables["pinning"].values()))
    shown = {"the study's way, 8,500/s: p99 not pinned, pinned": f"{free:.3g} ms, {pinned:.3g} ms"}

    def both(name: str) -> Mapping[str, str]:
        found = [cells.one(mechanism=name, rate=8_500.0, placement=place, size=20) for place in ("free", "apart")]
        p99 = [format_time(each.quantiles[0.99].value) for each in found]
        return {f"{_one_way_name(found[0].result.label)}: p99 not pinned, pinned": ", ".join(p99)}

    return shown | rows_of(("grpc-aio-tcp", "pyzmq", "nearcall-tcp", "nearcall-route-shm"), both)


STUDY = Study(
    "rmr",
    "nearcall_lab.studies.rmr",
    corrected,
    (
        Flaw(
            "ranking",
            "RMR over SI95 sends several times as many messages a second as gRPC.",
            "It does here, too, between programs in C, where gRPC is Python's. How many more depends on the language "
            "as much as on the transport: a program in Python that calls the same library has to make each message.",
            _ranking,
        ),
        Flaw(
            "pinning",
            "Pinning the receiver takes 40 % off the 99th percentile of gRPC.",
            "One transport, one rate, once. Here are others as well.",
            _pinning,
        ),
        Flaw(
            "mixed-runs",
            "Four transports are compared by their rates.",
            "The runs differ in date, number of messages and receivers; size and host of two rows are not given. "
            "Here all are given the same.",
            _mixed,
        ),
        Flaw(
            "cut-tail",
            "The latency distribution is drawn.",
            "The drawing ends at 1 ms; whatever took longer is one bar.",
            _tail,
        ),
    ),
    replica_s=(80.0, 850.0),
)
