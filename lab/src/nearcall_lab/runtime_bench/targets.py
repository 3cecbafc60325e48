"""The runtime's targets, each with the measurement that decides it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from nearcall_lab.runtime_bench.load_tasks import CURVE, DIRECTIONS
from nearcall_lab.runtime_bench.plugin_peers import PEERS
from nearcall_lab.runtime_bench.plugin_tasks import EVENT_PLUGINS, IDLE_PLUGINS
from nearcall_lab.runtime_bench.results import Collected
from nearcall_lab.stats import Ratio, format_ratio, format_time, paired_ratio, significant

SHM = "nearcall-shm echo-15"
NOT_REACHED = "not reached"
BESIDE = "beside it"
"""In place of a target, where a number is shown only for comparison."""


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
    """The verdict where a series is absent, with the reason."""
    for key in keys:
        for name, problem in collected.problems.items():
            if f"{key} ".startswith(f"{name} "):  # what makes several series fails for all of them
                return Verdict(what, target, f"{name.split()[0]}: {problem}", None)
    return Verdict(what, target, NOT_REACHED, None)


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
        value = samples.quantile(0.99) if samples is not None else None
        if samples is None or value is None:
            return _nothing(what, target, collected, key)
        text = f"{format_time(value)} (p50 {format_time(samples.quantile(0.5))}, n {samples.n:,})"
        return Verdict(what, target, text, value < limit_ns, value)

    return Target(what, target, judge)


def _beside_p99(what: str, key: str, source: str) -> Target:
    """The same for comparison, without a target."""

    def judge(collected: Collected) -> Verdict:
        samples = collected.pooled(key)
        value = samples.quantile(0.99) if samples is not None else None
        if value is None:
            return _nothing(what, BESIDE, collected, key, source)
        return Verdict(what, BESIDE, format_time(value), None, value)

    return Target(what, BESIDE, judge)


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


def _beside(what: str, key: str, show: Callable[[float], str], source: str, bottom: str = "") -> Target:
    """The median of a series over rounds, for comparison, without a target. With `bottom`, also its ratio to that
    series.
    """

    def judge(collected: Collected) -> Verdict:
        value = collected.median(key)
        if value is None:
            return _nothing(what, BESIDE, collected, key, source)
        above, below = collected.values.get(key, {}), collected.values.get(bottom, {})
        both = sorted(above.keys() & below.keys())
        ratio = paired_ratio([above[t] for t in both], [below[t] for t in both]) if both else None
        text = show(value) if ratio is None else f"{show(value)}, {format_ratio(ratio)}"
        return Verdict(what, BESIDE, text, None, value, ratio)

    return Target(what, BESIDE, judge)


def _faster(than: str, series: str, times: float, ours: str = SHM, what: str = "15 B echo over shm") -> Target:
    return _ratio(f"{what}, against {than}", f"≥ {times:g}× faster", series, ours, times, least=True)


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: (
        f"{significant(value / 1e6)} M {unit}/s" if value >= 1e6 else f"{significant(value / 1e3)} K {unit}/s"
    )


def _curve(what: str, target: str, limit: float) -> Target:
    """Throughput by number of clients: the ratio of the largest number's to one client's decides, and all are shown."""

    def judge(collected: Collected) -> Verdict:
        least, most = CURVE[0], CURVE[-1]
        one, many = (collected.values.get(f"clients {count}", {}) for count in (least, most))
        both = sorted(one.keys() & many.keys())
        if not both:
            return _nothing(what, target, collected, "clients")
        ratio = paired_ratio([many[t] for t in both], [one[t] for t in both])
        rates = [(count, collected.median(f"clients {count}")) for count in CURVE]
        curve = ", ".join(f"{count}: {_rate('calls')(rate)}" for count, rate in rates if rate is not None)
        return Verdict(what, target, f"{format_ratio(ratio)}; {curve}", ratio.value >= limit, ratio.value, ratio)

    return Target(what, target, judge)


def _why(collected: Collected, key: str) -> str:
    """Why a series is absent; of gRPC's long error texts only the status."""
    problem = " ".join(collected.problems.get(key, "not reached").split())
    status = re.search(r"(?:StatusCode\.|AioRpcError )([A-Z_]+)", problem)
    return f"no time, since calls fail with the status {status[1]}" if status else problem[:80]


def _naps(what: str, target: str, limit: float) -> Target:
    """Concurrent sleeps of handlers against the same sleeps without calls; and what grpc.aio does."""

    def judge(collected: Collected) -> Verdict:
        called, alone = collected.values.get("naps", {}), collected.values.get("naps alone", {})
        both = sorted(called.keys() & alone.keys())
        if not both:
            return _nothing(what, target, collected, "naps")
        ratio = paired_ratio([called[t] for t in both], [alone[t] for t in both])
        theirs = collected.median("grpc.aio naps")
        took = f"{collected.median('naps') or 0:.2f} s"
        other = _why(collected, "grpc.aio naps") if theirs is None else f"{theirs:.2f} s"
        text = f"{format_ratio(ratio)}; {took}, grpc.aio: {other}"
        return Verdict(what, target, text, ratio.value <= limit, ratio.value, ratio)

    return Target(what, target, judge)


def _streamed(what: str, target: str, limit_mb: float) -> Target:
    """The most memory that any direction took; all directions are shown."""

    def judge(collected: Collected) -> Verdict:
        grown = {way: kb * 1.024e-3 for way in DIRECTIONS if (kb := collected.median(f"streamed {way}")) is not None}
        if not grown:
            return _nothing(what, target, collected, "streamed")
        text = ", ".join(f"{mb:.1f} MB {way}" for way, mb in grown.items())
        worst = max(grown.values())
        return Verdict(what, target, text, worst < limit_mb and len(grown) == len(DIRECTIONS), worst)

    return Target(what, target, judge)


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
    _beside(
        "60 KB echo of bytes over shm, and as a multiple of the ring alone",
        "nearcall-shm echo-60k",
        format_time,
        "ring",
        "ring 60k",
    ),
    _value("1 MB memoryview in, small reply, p50", "≤ 150 µs", "view", 150_000, format_time),
    _value(
        "1 MB memoryview handed over, echo, p50", "≤ 20 µs", "handed over 1m", 20_000, format_time, source="handed over"
    ),
    _faster("grpcio UDS", "grpcio-uds echo-60k", 40, "handed over 60k", "60 KB handed over, echo"),
    _value(
        "1920×1080×3 array handed over, echo, p50",
        "≤ 15 µs",
        "handed over frame",
        15_000,
        format_time,
        source="handed over",
    ),
    _value(
        "1920×1080×3 arrays handed over, one way",
        "≥ 30 K frames/s",
        "handed over frames/s",
        3e4,
        _rate("frames"),
        least=True,
        source="handed over",
    ),
    *(
        _ratio(
            f"{what} over {transport}, against a plain call", "≤ 1.15×", top, f"objects {transport} plain", 1.15, False
        )
        for transport in ("shm", "unix")
        for what, top in (
            ("call of an object", f"objects {transport} object"),
            ("plain call of a client that passes objects", f"objects {transport} plain, passing"),
            ("call back of a client's object", f"objects {transport} back"),
        )
    ),
    _value("server stream of integers", "≥ 1 M items/s", "stream", 1e6, _rate("items"), least=True),
    _value("one-way 20 B", "≥ 1 M msg/s", "one-way 20", 1e6, _rate("msg"), least=True, source="one-way"),
    _value("one-way 4 KB", "≥ 500 K msg/s", "one-way 4096", 5e5, _rate("msg"), least=True, source="one-way"),
    *(
        target
        for size, shown in ((20, "20 B"), (4096, "4 KB"))
        for target in (
            _beside(f"{shown} by the router", f"router {size} routed", _rate("msg"), "router"),
            _ratio(
                f"{shown} by the router, against plain one-way calls beside them",
                "≥ 0.9×",
                f"router {size} routed",
                f"router {size} plain",
                0.9,
                least=True,
            ),
        )
    ),
    _ratio(
        "15 B echo over unix, against a raw socket", "≤ 1.3×", "nearcall-unix echo-15", "raw-unix echo-15", 1.3, False
    ),
    _ratio("15 B echo over tcp, against a raw socket", "≤ 1.3×", "nearcall-tcp echo-15", "raw-tcp echo-15", 1.3, False),
    _p99("15 B echo over shm, not pinned, p99", "< 200 µs", f"{SHM} free", 200_000),
    _p99("15 B echo over shm, both on one CPU, p99", "< 200 µs", f"{SHM} same", 200_000),
    _value("asyncio client, 15 B echo over shm, p50", "≤ 6 µs", "asyncio client", 6000, format_time, source="asyncio"),
    _value("asyncio on both sides, 15 B, p50", "≤ 15 µs", "asyncio both", 15_000, format_time, source="asyncio"),
    _ratio("asyncio on both sides, against grpc.aio TCP", "≥ 20× faster", "grpc.aio", "asyncio both", 20, least=True),
    *(
        _value(
            f"64 {way} that call at once on one connection",
            "≥ 500 K calls/s",
            f"pipelined {way}",
            5e5,
            _rate("calls"),
            least=True,
            source="pipelined",
        )
        for way in ("threads", "tasks")
    ),
    _value(
        "64 tasks that call coroutine handlers at once on one connection",
        "≥ 250 K calls/s",
        "pipelined handlers",
        2.5e5,
        _rate("calls"),
        least=True,
        source="pipelined",
    ),
    _curve("100 clients at once, against one", "≥ 1×", 1),
    _naps("10,000 coroutine handlers at once that wait 0.1 s, against the waits alone", "≤ 2×", 2),
    _streamed("10 GB streamed to a slow consumer, memory of both sides", "< 50 MB", 50),
    _p99("other calls while a handler blocks for 1 s, p99", "< 5 ms", "beside", 5e6),
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
    _beside("import, a server, a client and their first reply in a new process", "first reply", format_time, "import"),
    _value(
        "10,000 coroutine handlers at once that wait 0.1 s, over gRPC",
        "≤ 0.6 s",
        "grpc burst",
        0.6e9,
        lambda v: f"{v / 1e9:.2f} s",
    ),
    _value("server stream of integers over gRPC", "≥ 500 K items/s", "grpc stream", 5e5, _rate("items"), least=True),
    _ratio(
        "typed call to a server of grpc-go, against grpcio's client",
        "≥ 2.5× faster",
        "grpc client grpcio",
        "grpc client nearcall",
        2.5,
        least=True,
    ),
    _value(
        "memory of the server for each of 10,000 connections over gRPC",
        "< 100 KB",
        "grpc connections",
        97.6,
        lambda v: f"{significant(v * 1.024)} KB",
    ),
    _value(
        "growth of the server in 1 M calls over gRPC",
        "< 4 MB",
        "grpc calls",
        3906,
        lambda v: f"{significant(v * 1.024e-3)} MB",
    ),
    _value(
        "call through an extension point with one handler, p50",
        "≤ 6 µs",
        "plugin call plugin",
        6000,
        format_time,
        source="plugin call",
    ),
    *(
        _beside(f"the same call, {peer.label}", f"plugin call {name}", format_time, "plugin call", "plugin call plugin")
        for name, peer in PEERS.items()
    ),
    _value(
        f"event that {EVENT_PLUGINS} plugins hear, p50",
        "< 1 ms",
        "plugin event told",
        1e6,
        format_time,
        source="plugin event",
    ),
    *(
        _beside(
            f"{EVENT_PLUGINS} {what}, each woken to answer a byte",
            f"plugin event woken {kind}",
            format_time,
            "plugin event",
        )
        for kind, what in (("python", "interpreters"), ("c", "programs in C"))
    ),
    _value(
        "start of a plugin to the reply to its first call, beyond the interpreter's start",
        "< 120 ms",
        "plugin start beyond",
        120e6,
        format_time,
        source="plugin start",
    ),
    _beside("start of the interpreter", "plugin start interpreter", format_time, "plugin start"),
    _value(
        f"CPU of {IDLE_PLUGINS} idle plugins together",
        "< 0.05 %",
        "plugin idle share",
        0.0005,
        lambda v: f"{v:.4%}",
        source="plugin idle",
    ),
    _beside(
        "memory of an idle plugin, its own",
        "plugin idle own",
        lambda v: f"{significant(v * 1.024e-3)} MB",
        "plugin idle",
    ),
    _beside(
        "memory of an idle plugin, with its part of what is shared",
        "plugin idle part",
        lambda v: f"{significant(v * 1.024e-3)} MB",
        "plugin idle",
    ),
    _p99(
        "calls through three plugins while one hangs and one dies of each call, p99", "< 1 ms", "plugin disturbed", 1e6
    ),
    _beside_p99("the same without these two, p99", "plugin undisturbed", "plugin disturbed"),
)


def judge(collected: Collected, all_of_them: bool = True) -> list[Verdict]:
    """All verdicts in order, or only those for which something was measured."""
    verdicts = [target.judge(collected) for target in TARGETS]
    return verdicts if all_of_them else [verdict for verdict in verdicts if verdict.measured != NOT_REACHED]


def markdown(verdicts: list[Verdict]) -> str:
    """The table in the form that the README contains."""
    lines = ["| what | target | measured | met |", "|---|---|---|---|"]
    word = {True: "yes", False: "**no**", None: "–"}
    lines += [f"| {v.what} | {v.target} | {v.measured.replace('|', '/')} | {word[v.met]} |" for v in verdicts]
    return "\n".join(lines)
