"""One cell's launches as the numbers a table shows, with warnings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from nearcall_lab.analysis.quantiles import Quantile, quantile
from nearcall_lab.results.distribution import Distribution, merged
from nearcall_lab.results.failed import Failed, failed_of
from nearcall_lab.results.metric import Metric, metric_of
from nearcall_lab.results.model import CellResult
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import format_time, significant, spread

PERCENTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)
LITTLE_WITHIN = 0.05
SideName = Literal["client", "server"]
SIDES: tuple[SideName, ...] = ("client", "server")
CPU_FULL = 0.9
"""A CPU that was used for so much of the time was the limit, or nearly so."""
FLOOR_SHARE = 0.05
"""Share of a median; where the floor is more than this, a remark tells the reader that it is a part of the number."""


@dataclass(frozen=True)
class Summary:
    """The numbers of one cell, and remarks on them."""

    result: CellResult
    metric: Metric
    launches: int
    values: list[float]
    """The metric of each launch."""
    value: float | None
    """Geometric mean of `values`."""
    spread: float | None
    """Half the 95 % interval of `value`, as a share of it."""
    response: Distribution | None
    quantiles: dict[float, Quantile] = field(default_factory=dict)
    """Quantiles of `response`, except those for which there are too few samples; empty for an overloaded cell."""
    longest_ns: float | None = None
    """The longest of all calls of all launches; None for an overloaded cell, whose times are not latencies. A single
    stall in a closed loop shows in no percentile, but here.
    """
    throughput: float | None = None
    """Calls per second, median over launches."""
    cpu_us_per_call: float | None = None
    """User and system time of both sides' process trees."""
    first_call_ns: float | None = None
    failed: Failed = field(default_factory=lambda: Failed({}, 0))
    """Of all launches."""
    little: float | None = None
    remarks: list[str] = field(default_factory=list)

    def cpu_share(self, side: SideName) -> float:
        """CPU time of a side's processes as a share of the time that passed; 1 is a whole CPU."""
        passed_s = sum(launch.wall_s for launch in self.result.launches)
        used_s = sum(float(getattr(launch, side).cpu_s) for launch in self.result.launches)
        return used_s / passed_s if passed_s else 0.0


def summarise(result: CellResult, floor_ns: float | None = None) -> Summary:
    """The numbers of one cell; `floor_ns` is the median of the floor on the same work, if it was measured."""
    metric, launches = metric_of(result.cell), result.launches
    values = [value for launch in launches if (value := metric.of(launch)) is not None]
    responses = [launch.response for launch in launches if launch.response is not None]
    response = merged(responses)
    quantiles = {}
    if response is not None and result.status != "overloaded":
        found = (quantile(response, p) for p in PERCENTILES)
        quantiles = {q.p: q for q in found if q is not None}
    calls = sum(launch.calls for launch in launches)
    cpu_s = sum(launch.client.cpu_s + launch.server.cpu_s for launch in launches)
    littles = [launch.little for launch in launches if launch.little is not None]
    summary = Summary(
        result,
        metric,
        len(launches),
        values,
        statistics.geometric_mean(values) if values else None,
        spread(values),
        response,
        quantiles,
        None if result.status == "overloaded" else max((r.max for r in responses), default=None),
        statistics.median(launch.throughput for launch in launches) if launches else None,
        1e6 * cpu_s / calls if calls and cpu_s else None,
        _median(launch.first_call_ns for launch in launches if launch.first_call_ns),
        failed_of(launches),
        statistics.median(littles) if littles else None,
    )
    summary.remarks.extend(_remarks(summary, floor_ns))
    return summary


def summaries(recorded: Recorded) -> list[Summary]:
    """Every cell of a run, each summarised with its floor."""
    floors: dict[bytes, float] = {}
    found = []
    for result in recorded.cells:
        if result.cell.mechanism == recorded.info.floor and (value := summarise(result).value) is not None:
            floors[_work(result)] = value
    for result in recorded.cells:
        floor = None if result.cell.mechanism == recorded.info.floor else floors.get(_work(result))
        found.append(summarise(result, floor))
    return found


def without_number(summary: Summary) -> str:
    """Why a cell has no number to compare, with the cell's state."""
    result, launches = summary.result, len(summary.result.launches)
    if result.status == "ok" or (result.status == "overloaded" and launches):
        if not launches:
            return "no launch was recorded"
        calls = sum(launch.calls for launch in result.launches)
        reason = "too few samples for a median" if calls else "no call got done"
        word = "" if result.status == "ok" else f"{result.status}, "
        made = (
            f"{calls:,} {'call' if calls == 1 else 'calls'} in {launches} {'launch' if launches == 1 else 'launches'}"
        )
        advice = "; give it more seconds" if calls else ""
        failed = f"; {summary.failed.sentence()}" if summary.failed.calls else ""
        return f"{word}{reason}: {made}{advice}{failed}"
    return state_text(result)


def state_text(result: CellResult) -> str:
    """The state of a cell, with its reason where one is known."""
    return f"{result.status}: {result.problem}" if result.problem else result.status


def little_problem(little: float | None) -> str:
    """A sentence on what it means that Little's law does not hold; empty where it holds within 5 %, or was not
    measured.

    Calls under way are throughput times the mean response (J. D. C. Little, "A Proof for the Queuing Formula L = λW",
    Operations Research 9, 1961), so a share below 1 is time in which a slot had no call under way.
    """
    if little is None or abs(little - 1) <= LITTLE_WITHIN:
        return ""
    if little < 1:
        return f"slots were idle {1 - little:.0%} of the time: the client is part of the limit"
    return f"Little's law is broken: throughput times response is {little:.2f} times the calls under way"


def _remarks(summary: Summary, floor_ns: float | None) -> list[str]:
    result, found = summary.result, []
    if result.problem:
        found.append(result.problem)
    if summary.failed.calls:
        found.append(summary.failed.sentence())
    problem = little_problem(summary.little)
    # Between two calls of a ping-pong the reply is verified, which costs throughput and no latency.
    if problem and (summary.metric.more_is_better or (summary.little or 0) > 1):
        found.append(problem)
    if floor_ns and summary.value and summary.metric.unit == "ns" and floor_ns > FLOOR_SHARE * summary.value:
        found.append(f"the floor is {floor_ns / summary.value:.0%} of it")
    cold = sum(not launch.warmed_up for launch in result.launches)
    if cold and result.cell.mode.warmup_s:
        found.append(f"not warmed up in {cold} of {summary.launches} launches")
    if probes := [launch.network for launch in result.launches if launch.network is not None]:
        trips = [
            format_time(statistics.median(times))
            for times in zip(*((p.through_ns, p.direct_ns) for p in probes), strict=True)
        ]
        rate = statistics.median(probe.mbit for probe in probes)
        found.append(f"an empty round trip took {trips[0]}, {trips[1]} without the network")
        if rate:
            found.append(f"{significant(rate)} Mbit/s came through")
    if result.cell.mode.kind == "one-way" and (clocks := [c for launch in result.launches if (c := launch.clock)]):
        found.append(f"times of two clocks, uncertain by {format_time(max(c.uncertainty_ns for c in clocks))} at most")
    left = sum(len(launch.left_behind) for launch in result.launches)
    if left:
        found.append(f"left {left} things behind")
    if result.busy_polls or (result.observation is not None and result.observation.busy_polling):
        found.append("polls without pause")
    if result.observation is not None and result.observation.problem:
        found.append(f"not counted: {result.observation.problem}")
    return found


def _work(result: CellResult) -> bytes:
    cell = result.cell
    return repr((cell.work, cell.mode, cell.placement)).encode()


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None
