"""What the runtime must reach, each with the measurement that decides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nearcall_lab.runtime_bench.measure import Collected
from nearcall_lab.stats import Ratio, format_ratio, format_time, paired_ratio, quantile, significant

SHM = "nearcall-shm echo-15"


@dataclass(frozen=True)
class Verdict:
    """One line of the table. `met` is None where there is nothing to judge."""

    what: str
    target: str
    measured: str
    met: bool | None
    value: float | None = None
    ratio: Ratio | None = None


@dataclass(frozen=True)
class Target:
    """One target: how to judge it from what was collected."""

    what: str
    target: str
    judge: Callable[[Collected], Verdict]


def _nothing(what: str, target: str, collected: Collected, *keys: str) -> Verdict:
    """The verdict where a series is absent: its reason."""
    for key in keys:
        if key in collected.problems:
            return Verdict(what, target, f"{key.split()[0]}: {collected.problems[key]}", None)
    return Verdict(what, target, "not reached", None)


def _value(
    what: str, target: str, key: str, limit: float, show: Callable[[float], str], least: bool = False, source: str = ""
) -> Target:
    """The median of a series over rounds, at most (or at least) `limit`."""

    def judge(collected: Collected) -> Verdict:
        value = collected.median(key)
        if value is None:
            return _nothing(what, target, collected, source or key)
        return Verdict(what, target, show(value), value >= limit if least else value <= limit, value)

    return Target(what, target, judge)


def _p99(what: str, target: str, key: str, limit_ns: float) -> Target:
    """The 99th percentile over all samples of all rounds, below `limit_ns`."""

    def judge(collected: Collected) -> Verdict:
        samples = collected.pooled(key)
        value = quantile(samples, 0.99)
        if value is None:
            return _nothing(what, target, collected, key)
        text = f"{format_time(value)} (p50 {format_time(quantile(samples, 0.5))}, n {len(samples):,})"
        return Verdict(what, target, text, value < limit_ns, value)

    return Target(what, target, judge)


def _ratio(what: str, target: str, top: str, bottom: str, limit: float, least: bool) -> Target:
    """Paired ratio of two series, ``top / bottom``; at least or at most `limit`."""

    def judge(collected: Collected) -> Verdict:
        above, below = collected.values.get(top, {}), collected.values.get(bottom, {})
        both = sorted(above.keys() & below.keys())
        if not both:
            return _nothing(what, target, collected, top, bottom)
        ratio = paired_ratio([above[t] for t in both], [below[t] for t in both])
        met = ratio.value >= limit if least else ratio.value <= limit
        return Verdict(what, target, format_ratio(ratio), met, ratio.value, ratio)

    return Target(what, target, judge)


def _faster(than: str, series: str, times: float, ours: str = SHM, what: str = "15 B echo over shm") -> Target:
    return _ratio(f"{what}, against {than}", f"≥ {times:g}× faster", series, ours, times, least=True)


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: (
        f"{significant(value / 1e6)} M {unit}/s" if value >= 1e6 else f"{significant(value / 1e3)} K {unit}/s"
    )


TARGETS = (
    _value("15 B echo over shm, p50", "≤ 2.5 µs", SHM, 2500, format_time),
    _ratio("15 B echo over shm, against the ring alone in Rust", "≤ 3×", SHM, "ring", 3, least=False),
    _faster("grpcio TCP", "grpcio-tcp echo-15", 100),
    _faster("shm-rpc-bridge", "shm-rpc-bridge echo-15", 30),
    _faster("Pyro4", "pyro4 echo-15", 30),
    _faster("iceoryx2 (Python)", "iceoryx2 echo-15", 5),
    _value("dataclass call over shm, p50", "≤ 5 µs", "nearcall-shm quote", 5000, format_time),
    _faster("grpcio UDS", "grpcio-uds echo-60k", 10, "nearcall-shm echo-60k", "60 KB echo of bytes over shm"),
    _faster("grpcio UDS", "grpcio-uds echo-60k", 25, "nearcall-shm-view echo-60k", "60 KB echo of memoryview over shm"),
    _value("1 MB memoryview in, small reply, p50", "≤ 150 µs", "view", 150_000, format_time),
    _value("server stream of integers", "≥ 1 M items/s", "stream", 1e6, _rate("items"), least=True),
    _value("one-way 20 B", "≥ 1 M msg/s", "one-way 20", 1e6, _rate("msg"), least=True, source="one-way"),
    _value("one-way 4 KB", "≥ 500 K msg/s", "one-way 4096", 5e5, _rate("msg"), least=True, source="one-way"),
    _ratio(
        "15 B echo over unix, against a raw socket", "≤ 1.3×", "nearcall-unix echo-15", "raw-unix echo-15", 1.3, False
    ),
    _ratio("15 B echo over tcp, against a raw socket", "≤ 1.3×", "nearcall-tcp echo-15", "raw-tcp echo-15", 1.3, False),
    _p99("15 B echo over shm, not pinned, p99", "< 200 µs", f"{SHM} free", 200_000),
    _p99("15 B echo over shm, both on one CPU, p99", "< 200 µs", f"{SHM} same", 200_000),
    _value("CPU of an idle server with 100 idle clients", "< 0.5 %", "idle", 0.005, lambda v: f"{v:.3%}"),
    _value(
        "memory of an idle connection, both sides, without ring pages",
        "< 300 KB",
        "memory private",
        293,
        lambda v: f"{significant(v * 1.024)} KB",
        source="idle",
    ),
    _value("connection set-up to the first reply", "< 1 ms", "set-up", 1e6, format_time),
    _value("import time", "< 60 ms", "import", 60e6, format_time),
)


def judge(collected: Collected) -> list[Verdict]:
    """All verdicts in order."""
    return [target.judge(collected) for target in TARGETS]


def markdown(verdicts: list[Verdict]) -> str:
    """The table as the README carries it."""
    lines = ["| what | target | measured | met |", "|---|---|---|---|"]
    word = {True: "yes", False: "**no**", None: "–"}
    lines += [f"| {v.what} | {v.target} | {v.measured.replace('|', '/')} | {word[v.met]} |" for v in verdicts]
    return "\n".join(lines)
