"""The load generators as real processes, against a server that takes 10 ms for a call and 50 ms for every tenth.

What a percentile must be is worked out by hand from what happened: the session in the client's process keeps when each
call was sent, replied and looked at. The load generator's first stamp of a call lies before the first of these and
after the last of the call before; its last stamp lies between the second and the third. So each of its times lies
between two that are known, and each of its percentiles between those of two lists that are known, to a bucket of the
histogram. On an idle machine the two are some microseconds apart, less than a bucket; on a busy one they move apart by
what the machine really did. Nothing here depends on how fast it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import stalling
from nearcall_lab.analysis.quantiles import quantile
from nearcall_lab.engine.assemble import launch_of
from nearcall_lab.engine.launch import CellRun, crew_of
from nearcall_lab.registry import entrants_of
from nearcall_lab.results.distribution import decode
from nearcall_lab.results.histogram import bucket_width, histogram_of
from nearcall_lab.results.model import Latencies, Launch
from nearcall_lab.scenario.cell import Cell, Mode, Work

Column = NDArray[np.int64]
CALLS, RATE = 150, 50.0
PERCENTS = (10, 50, 75, 89, 91, 95, 100)
MODES = {
    "closed": Mode("closed", calls=CALLS, warmup_s=0.0),
    # 14 ms of work every 20 ms: who is due behind a stall waits, and the queue empties again before the next one.
    "open": Mode("open", rate=RATE, arrivals="fixed", seconds=CALLS / RATE, warmup_s=0.0),
}


@dataclass(frozen=True)
class _Seen:
    """The launch, and what both sides wrote down of its timed calls."""

    launch: Launch
    begin_ns: int
    sent: Column
    replied: Column
    looked_at: Column
    looked_at_before: Column
    """The same of the call before."""
    service: Column
    """How long the server really took."""
    scripted: Column


def _measured(name: str, mode: Mode, directory: Path, monkeypatch: pytest.MonkeyPatch) -> _Seen:
    monkeypatch.setenv(stalling.DIRECTORY, str(directory))
    entrant = next(e for e in entrants_of("stalling") if e.mechanism.name == name)
    cell = Cell(name, Work("echo", size=stalling.SIZE), mode)
    with crew_of([cell], entrant) as crew:
        run = CellRun(cell, crew)
        run.prepare()
        begin_ns, _ = run.go()
        run.collect()
    launch = launch_of(cell, 0, 0, "", begin_ns, run.parts, None)
    assert not launch.errors
    client = np.fromfile(directory / "client", dtype=np.int64).reshape(-1, 3)
    server = np.fromfile(directory / "server", dtype=np.int64).reshape(-1, 2)
    assert len(client) == len(server) > launch.calls, "calls before the timed part came first"
    assert (client[:, 0] <= server[:, 0]).all(), "one clock for all processes"
    assert (server[:, 1] <= client[:, 1]).all()
    script = np.resize(np.array(stalling.SCRIPT_NS), len(server))
    first = len(client) - launch.calls
    timed, before = client[first:], client[first - 1 : -1]
    service = server[:, 1] - server[:, 0]
    return _Seen(launch, begin_ns, *timed.T, before[:, 2], service[first:], script[first:])


def _rank(samples: Column, percent: float) -> int:
    """The percentile as HdrHistogram counts: the sample whose rank is nearest to so many per cent of them, a half up.
    With all calls made this is the smallest sample that so many per cent do not exceed.
    """
    return int(np.sort(samples)[max(1, int(percent / 100 * len(samples) + 0.5)) - 1])


def _assert_between(reported: Latencies | None, low: Column, high: Column) -> None:
    """Every percentile, as the histogram tells it, lies between those of two lists, to a bucket."""
    assert reported is not None
    assert reported.n == len(low)
    assert (low <= high).all()
    histogram = histogram_of(reported)
    for percent in PERCENTS:
        least, most = _rank(low, percent), _rank(high, percent)
        found = int(histogram.get_value_at_percentile(percent))
        assert least - bucket_width(least) <= found <= most + bucket_width(most), percent
    median = quantile(decode(reported), 0.5)  # what reports show
    assert median is not None
    least, most = _rank(low, 50), _rank(high, 50)
    assert least - bucket_width(least) <= median.value <= most + bucket_width(most)
    assert low.min() <= reported.min <= high.min()
    assert low.max() <= reported.max <= high.max()
    assert low.mean() <= reported.mean + 1
    assert reported.mean <= high.mean() + 1


def _queue(due: Column, service: Column) -> Column:
    """Response times of one server, first come first served, by its definition."""
    responses, free = [], 0
    for at, length in zip(due.tolist(), service.tolist(), strict=True):
        free = max(at, free) + length
        responses.append(free - at)
    return np.array(responses)


@pytest.mark.parametrize("name", ["stalling", "stalling-async"])
def test_closed_loop(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _measured(name, MODES["closed"], tmp_path, monkeypatch)
    assert seen.launch.calls == CALLS
    assert (seen.service >= seen.scripted).all()
    assert (seen.service <= seen.replied - seen.sent).all()
    _assert_between(seen.launch.service, seen.replied - seen.sent, seen.looked_at - seen.looked_at_before)
    assert seen.launch.response == seen.launch.service


@pytest.mark.parametrize("name", ["stalling", "stalling-async"])
def test_open_loop(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _measured(name, MODES["open"], tmp_path, monkeypatch)
    assert seen.launch.due == CALLS
    calls = seen.launch.calls  # on a very busy machine not all of them: the schedule closes
    due = seen.begin_ns + np.arange(calls) * round(1e9 / RATE)
    _assert_between(seen.launch.response, seen.replied - due, seen.looked_at - due)
    _assert_between(
        seen.launch.service, seen.replied - seen.sent, seen.looked_at - np.maximum(due, seen.looked_at_before)
    )
    # The least that a queue with these service times, or with the scripted ones, makes of this schedule.
    for least in (_queue(due, seen.service), _queue(due, seen.scripted)):
        assert (least <= seen.replied - due).all()
        assert seen.launch.response is not None
        histogram = histogram_of(seen.launch.response)
        for percent in PERCENTS:
            want = _rank(least, percent)
            assert int(histogram.get_value_at_percentile(percent)) >= want - bucket_width(want), percent
    # A closed loop sees a stall once in ten calls. Here those that were due meanwhile are hit by it, too: three more.
    waited = int((_queue(due, seen.scripted) > seen.scripted).sum())
    assert waited >= calls // 10
