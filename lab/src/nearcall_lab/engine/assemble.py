"""From raw nanoseconds to a `Launch`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcall_lab.load.arrivals import Arrivals
from nearcall_lab.load.units import CONNECTION_PHASES, FIRST_ITEM
from nearcall_lab.load.warmup import settled
from nearcall_lab.results.histogram import latencies
from nearcall_lab.results.model import Latencies, Launch
from nearcall_lab.scenario.cell import Cell

INTERVALS = 20
GROWTH = 0.01
"""By how much later calls must be answered at the end of the timed part than at its beginning, as a share of its
length, and steadily, for the delay to count as growing: this much builds up when the rate is one per cent above what
can be done.
"""
_STEADY = 0.7

Column = NDArray[np.int64]


class ClientPart:
    """The results of one client process."""

    def __init__(self, prepared: dict[str, Any], warmup: bytes = b"") -> None:
        """`warmup` is when the calls of the last part of the warm-up began, and when they were done, where the client
        leaves it to the lab to see whether it has warmed up.
        """
        self.first_call_ns = int(prepared["first_call_ns"])
        self.warmup_calls = int(prepared["warmup_calls"])
        self.warmed_up = bool(prepared["warmed_up"])
        if warmup:
            started, done = np.frombuffer(warmup, dtype="<i8").reshape(2, -1)
            self.warmed_up = settled((done - started)[np.argsort(done, kind="stable")])
        self.slots = int(prepared["slots"])
        self.columns: dict[str, Column] = {}
        self.rows = self.due = self.sent = self.dropped = self.requests = self.failed = 0
        self.errors: Counter[str] = Counter()
        self.first_error = ""
        self.bursts: list[int] = []
        self.secrets: list[int] = []

    def take(self, answer: dict[str, Any], blob: bytes) -> None:
        """Add the results of the timed part."""
        names = answer["columns"]
        table = np.frombuffer(blob, dtype="<i8").astype(np.int64).reshape(len(names), answer["rows"])
        self.columns = dict(zip(names, table, strict=True))
        self.rows = int(answer["rows"])
        for name in ("due", "sent", "dropped", "requests", "failed"):
            setattr(self, name, int(answer.get(name, 0)))
        self.errors = Counter(answer.get("errors", {}))
        self.first_error = answer.get("first_error", "")
        self.bursts = answer.get("bursts", [])
        self.secrets = answer.get("secrets", [])


def interval_medians(stamps: Column, values: Column, begin_ns: int, end_ns: int, count: int = INTERVALS) -> list[int]:
    """Medians of the values whose stamp falls into each of `count` equal intervals; 0 for an empty one."""
    length = max(1, end_ns - begin_ns)
    place = np.clip((stamps - begin_ns) * count // length, 0, count - 1)
    return [int(np.median(values[place == at])) if (place == at).any() else 0 for at in range(count)]


def grows(due: Column, response: Column, begin_ns: int, end_ns: int) -> bool:
    """Whether calls that were due later were answered later, steadily and by more than `GROWTH` of the time."""
    medians = [m for m in interval_medians(due, response, begin_ns, end_ns) if m > 0]
    if len(medians) < 8:
        return False
    ranks = np.argsort(np.argsort(medians))
    steady = float(np.corrcoef(ranks, np.arange(len(medians)))[0, 1])
    quarter = len(medians) // 4
    rise = float(np.median(medians[-quarter:]) - np.median(medians[:quarter]))
    return steady > _STEADY and rise > GROWTH * (end_ns - begin_ns)


def launch_of(
    cell: Cell,
    number: int,
    position: int,
    started: str,
    begin_ns: int,
    parts: list[ClientPart],
    arrivals: Arrivals | None,
) -> Launch:
    """Everything that follows from the stamps. `begin_ns` is when the first call was due."""
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    errors: Counter[str] = sum((part.errors for part in parts), Counter())
    launch = Launch(
        number=number,
        position=position,
        started=started,
        calls=len(columns["done"]),
        wall_s=0.0,
        errors=dict(errors),
        due=sum(part.due for part in parts),
        first_call_ns=parts[0].first_call_ns,
        warmup_calls=sum(part.warmup_calls for part in parts),
        warmed_up=all(part.warmed_up for part in parts),
    )
    if arrivals is not None:
        _messages(launch, cell, begin_ns, columns, parts, arrivals)
    elif "intended" in columns:
        _scheduled(launch, cell, begin_ns, columns, parts)
    else:
        _closed(launch, cell, begin_ns, columns, sum(part.slots for part in parts))
    return launch


def _end_of(stamps: Column, begin_ns: int) -> int:
    return int(stamps.max()) if len(stamps) else begin_ns


def _closed(launch: Launch, cell: Cell, begin_ns: int, columns: dict[str, Column], slots: int) -> None:
    started, done = columns["started"], columns["done"]
    end = _end_of(done, begin_ns)
    launch.wall_s = (end - begin_ns) / 1e9
    whole = done - started
    launch.little = launch.calls * float(whole.mean()) / 1e9 / launch.wall_s / slots
    if cell.mode.kind == "connect":
        whole = columns[CONNECTION_PHASES[-1]] - started  # closing is not part of it
    for name in columns:
        if name in (FIRST_ITEM, *CONNECTION_PHASES):
            launch.phases[name] = _must(columns[name] - started)
    if cell.mode.kind == "mixed":
        before = started
        for name in list(columns)[2:]:
            launch.phases[name] = _must(columns[name] - before)
            before = columns[name]
    launch.response = launch.service = latencies(whole)
    launch.interval_p50_ns = interval_medians(done, whole, begin_ns, end)


def _scheduled(launch: Launch, cell: Cell, begin_ns: int, columns: dict[str, Column], parts: list[ClientPart]) -> None:
    started, done, intended = columns["started"], columns["done"], columns["intended"]
    end = _end_of(done, begin_ns)
    response = done - intended
    launch.response = latencies(response)
    launch.service = latencies(done - started)
    launch.lag = latencies(started - intended)
    launch.interval_p50_ns = interval_medians(intended, response, begin_ns, max(end, begin_ns + 1))
    if cell.mode.kind == "burst":
        _bursts(launch, begin_ns, end, parts)
        return
    launch.wall_s = max((end - begin_ns) / 1e9, 0.0 if cell.mode.calls else cell.mode.seconds)
    last_due = int(intended.max())
    launch.offered = launch.due / (cell.mode.seconds if not cell.mode.calls else max(last_due - begin_ns, 1) / 1e9)
    launch.growing = grows(intended, response, begin_ns, last_due)
    launch.little = little_by_events(started, done, launch.wall_s, float((done - started).mean()))


def little_by_events(started: Column, done: Column, wall_s: float, mean_ns: float) -> float:
    """Throughput x mean / calls under way, where the calls under way are counted from the order of all beginnings and
    ends.
    """
    stamps = np.concatenate((started, done))
    steps = np.concatenate((np.ones(len(started)), -np.ones(len(done))))
    order = np.argsort(stamps, kind="stable")
    under_way = np.cumsum(steps[order])[:-1]
    area = float((under_way * np.diff(stamps[order])).sum())
    return len(done) * mean_ns / area if area else 0.0


def _bursts(launch: Launch, begin_ns: int, end_ns: int, parts: list[ClientPart]) -> None:
    """Of bursts only the time within them counts, not what is between them; each process has bursts of its own."""
    lengths = np.array(
        [part.bursts[at + 1] - part.bursts[at] for part in parts for at in range(0, len(part.bursts), 2)]
    )
    if not len(lengths) or lengths.min() < 0:
        raise ValueError("a client does not say when its bursts began and ended")
    launch.phases["burst"] = _must(lengths.astype(np.int64))
    launch.wall_s = (end_ns - begin_ns) / 1e9 if len(parts) > 1 else float(lengths.sum()) / 1e9


def _messages(
    launch: Launch,
    cell: Cell,
    begin_ns: int,
    columns: dict[str, Column],
    parts: list[ClientPart],
    arrivals: Arrivals,
) -> None:
    once = arrivals.first_of_each()
    launch.sent = sum(part.sent for part in parts)
    launch.dropped = sum(part.dropped for part in parts)
    launch.delivered = launch.calls = len(once)
    launch.duplicated = arrivals.duplicated()
    launch.reordered = arrivals.reordered()
    for kind, count in (
        ("lost", launch.sent - launch.delivered - launch.dropped),
        ("wrong content", arrivals.wrong),
        ("beyond the receiver's room", arrivals.beyond),
    ):
        if count:
            launch.errors[kind] = count
    end = max(_end_of(once.stamps, begin_ns), begin_ns + 1)
    response = once.stamps - once.due
    launch.wall_s = (end - begin_ns) / 1e9
    launch.response = latencies(response)
    launch.phases["send call"] = _must(columns["done"] - columns["started"])
    launch.interval_p50_ns = interval_medians(once.stamps, response, begin_ns, end)
    if cell.mode.rate:
        launch.wall_s = max(launch.wall_s, 0.0 if cell.mode.calls else cell.mode.seconds)
        launch.lag = latencies(columns["started"] - columns["intended"])
        last_due = _end_of(once.due, begin_ns)
        launch.offered = launch.due / (cell.mode.seconds if not cell.mode.calls else max(last_due - begin_ns, 1) / 1e9)
        launch.growing = grows(once.due, response, begin_ns, last_due)


def _must(samples: Column) -> Latencies:
    found = latencies(samples)
    assert found is not None, "a phase without samples"
    return found
