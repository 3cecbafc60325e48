"""One function for each promise. Each drives real launches, and returns what it saw or raises `Broken` with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np
from numpy.typing import NDArray

from nearcall_lab.engine.assemble import ClientPart
from nearcall_lab.engine.launch import crew_of, measure
from nearcall_lab.registry import Entrant
from nearcall_lab.results.model import Launch
from nearcall_lab.scenario.cell import Cell, Mode, Work, format_size
from nearcall_lab.workers.worker import START_TIMEOUT_S, LaunchFailed, Unsupported

SIZES = (0, 1, 15, 1_000, 65_535, 65_536, 1_000_000, 10_000_000, 100_000_000)
"""Bytes. The largest two are left out of a quick check."""
_AT_ONCE = 8
_WAIT_S = 0.2
_LITTLE_WITHIN = 0.05
_UNDER_WAY_S = 0.3
_STOPPED_S = 0.4
_ATTEMPTS = 3
_WATCHED_S = (1.2, 8.0)
"""How long the client calls: long enough to go on after what happens to its server. The second where the machine was so
busy that the first was over by then."""
_GRACE_S = 15.0
_DEATH_NOTICED_S = 10.0
_LEAST_CPU_S = 20e-9
"""For each call: copying a kilobyte takes longer."""
_WAITED_S, _WAITS = 0.05, 10
"""How long calls wait at the server whose times are known beforehand, and how many there are."""
_WAITED_AT_MOST = 0.3
"""Share of the time that a client may call waiting which waits for nothing but its beginning."""
_AS_LONG = 0.98
"""A call must seem to take so much of what it takes: event loops round their timers to milliseconds."""


class Broken(Exception):
    """The promise is not kept; the message says what was seen instead."""


class NotPromised(Exception):
    """The adapter does not claim this; the message says what it says."""


@dataclass(frozen=True)
class Subject:
    """What is checked, and what its launches left behind so far."""

    entrant: Entrant
    quick: bool
    left_behind: list[str]

    def launch(self, work: Work, mode: Mode) -> Launch:
        """One launch of one cell, unpinned so that claimed concurrency has all CPUs."""
        if work.operation not in self.entrant.mechanism.operations:
            raise NotPromised(f"has no {work.operation}")
        cell = Cell(self.entrant.mechanism.name, work, mode, placement="free")
        try:
            launch = measure(cell, self.entrant, 0, 0)
        except Unsupported as reason:
            raise NotPromised(str(reason)) from reason
        except LaunchFailed as failure:
            if failure.logs is not None:
                shutil.rmtree(failure.logs, ignore_errors=True)
            raise Broken(str(failure)) from failure
        self.left_behind.extend(launch.left_behind)
        if launch.errors:
            raise Broken(f"calls failed: {launch.errors}")
        return launch


def integrity(subject: Subject) -> str:
    """Every byte of every echo comes back, from none to 100 MB, and the server has handled as many as were made."""
    sizes = [size for size in SIZES if size <= (1_000_000 if subject.quick else SIZES[-1])]
    if not subject.entrant.mechanism.empty_messages:
        sizes.remove(0)
    for size in sizes:
        try:
            subject.launch(Work("echo", size=size), Mode(calls=3, warmup_s=0.0))
        except Broken as broken:
            raise Broken(f"{format_size(size)}: {broken}") from broken
    return f"{format_size(sizes[0])} to {format_size(sizes[-1])}"


def typed(subject: Subject) -> str:
    """The typed call's argument and result arrive with their values."""
    launch = subject.launch(Work("quote"), Mode(calls=20, warmup_s=0.0))
    return f"{launch.calls} calls"


def stream(subject: Subject) -> str:
    """A stream has every integer, in order."""
    launch = subject.launch(Work("count", items=1_000), Mode("stream", calls=3, warmup_s=0.0))
    return f"{launch.calls} streams of 1000"


def one_way(subject: Subject) -> str:
    """What was sent was delivered, or the mechanism says that it dropped it."""
    launch = subject.launch(Work("send", size=64), Mode("one-way", calls=2_000, warmup_s=0.0))
    missing = launch.sent - launch.delivered - launch.dropped
    if missing:
        raise Broken(f"of {launch.sent} messages {missing} are missing, and it says that it dropped {launch.dropped}")
    return f"{launch.delivered} delivered, {launch.dropped} dropped"


def overlapping(subject: Subject) -> str:
    """Calls that are claimed to be under way at once on one connection really overlap."""
    if not subject.entrant.mechanism.concurrent_calls:
        raise NotPromised("one call at a time on a connection")
    return _overlap(subject, Mode("burst", outstanding=_AT_ONCE, calls=_AT_ONCE, warmup_s=0.0), "one connection")


def connections(subject: Subject) -> str:
    """Several connections are served at once."""
    if subject.entrant.mechanism.variant.startswith("oneshot"):
        raise NotPromised("one connection in all")
    mode = Mode("burst", connections=_AT_ONCE, calls=_AT_ONCE, warmup_s=0.0)
    return _overlap(subject, mode, f"{_AT_ONCE} connections")


def _overlap(subject: Subject, mode: Mode, where: str) -> str:
    launch = subject.launch(Work("wait", delay_s=_WAIT_S), mode)
    alone = _AT_ONCE * _WAIT_S
    if launch.wall_s > 0.75 * alone:
        raise Broken(
            f"{_AT_ONCE} calls of {_WAIT_S} s on {where} took {launch.wall_s:.2f} s; one after the other: {alone:.1f} s"
        )
    return f"{_AT_ONCE} calls of {_WAIT_S} s on {where} in {launch.wall_s:.2f} s"


def connecting(subject: Subject) -> str:
    """Connections can be made, used and closed again and again."""
    if subject.entrant.mechanism.variant.startswith("oneshot"):
        raise NotPromised("one connection in all")
    launch = subject.launch(Work("echo", size=15), Mode("connect", calls=20, warmup_s=0.0))
    return f"{launch.calls} connections; at the server {launch.connected or 'cannot tell'}"


def clock(subject: Subject) -> str:
    """Times are those of the machine's clock, which the adapter shares with the lab: calls that wait at the server take
    as long as that by the client's stamps, and all of them by the lab's own clock.
    """
    launch = subject.launch(Work("wait", delay_s=_WAITED_S), Mode(calls=_WAITS, warmup_s=0.0))
    assert launch.service is not None, "every call is timed"
    shortest, least = launch.service.min / 1e9, _AS_LONG * _WAITED_S
    if shortest < least:
        raise Broken(f"a call that waits {_WAITED_S} s at the server took {shortest:.4f} s by the client's stamps")
    if launch.seen_s < _WAITS * least:
        raise Broken(
            f"{_WAITS} calls in a row that wait {_WAITED_S} s each took {launch.seen_s:.3f} s by the lab's clock"
        )
    return f"calls that wait {_WAITED_S} s took {shortest:.4f} s and longer"


def little(subject: Subject) -> str:
    """Throughput times response is not more than the calls that can have been under way, within 5 %."""
    operation = "echo" if "echo" in subject.entrant.mechanism.operations else "wait"
    work = Work("echo", size=15) if operation == "echo" else Work("wait", delay_s=0.001)
    launch = subject.launch(work, Mode(seconds=0.3))
    if launch.little is None:
        raise NotPromised("not measured")
    if launch.little > 1 + _LITTLE_WITHIN:
        raise Broken(f"throughput times response is {launch.little:.2f} times the calls under way")
    # Below 1 is time between calls. It belongs to the generator and the machine, not to the adapter.
    return f"{launch.little:.1%} of the time a call was under way"


def cpu(subject: Subject) -> str:
    """The CPU time of both sides is seen, and is not more than there was."""
    operation = "echo" if "echo" in subject.entrant.mechanism.operations else "wait"
    work = Work("echo", size=1_000) if operation == "echo" else Work("wait", delay_s=0.001)
    launch = subject.launch(work, Mode(seconds=0.5))
    used = launch.client.cpu_s + launch.server.cpu_s
    available = launch.wall_s * (os.cpu_count() or 1)
    if launch.client.waiting_s > _WAITED_AT_MOST * launch.wall_s:
        raise Broken(
            f"client: it says that {launch.client.waiting_s:.2f} s of CPU time were waiting, and nothing was due"
        )
    for side, seen in (("client", launch.client), ("server", launch.server)):
        if seen.processes and seen.cpu_s / launch.calls < _LEAST_CPU_S:
            raise Broken(f"{side}: no CPU time is seen, so processes do its work that the lab does not know")
    if used > 1.1 * available + 0.05:
        raise Broken(f"{used:.2f} s of CPU in {launch.wall_s:.2f} s on {os.cpu_count()} CPUs")
    return (
        f"client {launch.client.cpu_s / launch.wall_s:.0%}, server {launch.server.cpu_s / launch.wall_s:.0%} of one CPU"
    )


def standing_still(subject: Subject) -> str:
    """While all processes of the server are stopped no call is answered: replies come from nowhere else."""
    longest = 0.0
    for _ in range(_ATTEMPTS):
        told, stopped, went_on = _while_calling(subject, _stop_for_a_while, _GRACE_S)
        early = int(((told.done > stopped) & (told.done < went_on)).sum())
        if early > 1:  # one reply may have been on its way
            raise Broken(f"the client answered {early} calls while its server stood still")
        # The call that was under way must show it. On a busy machine it may have begun late.
        waited = (told.done - told.started)[told.done >= went_on]
        longest = max(longest, float(waited.max(initial=0)) / 1e9)
        if longest > _STOPPED_S / 2:
            break
    else:
        raise Broken(
            f"the server stood still for {_STOPPED_S} s, and no call that ended afterwards took longer than "
            f"{longest:.3f} s: its times are not those of the machine's clock"
        )
    return f"{len(told.done)} calls, none of them in the {_STOPPED_S} s in which the server stood still"


def death(subject: Subject) -> str:
    """When the server is killed calls fail, and soon, instead of waiting for ever; and the next launch works."""
    told, killed, _ = _while_calling(subject, _kill, _DEATH_NOTICED_S)
    late = int((told.done > killed).sum())
    if late > 1:
        raise Broken(f"the client answered {late} calls after its server was dead")
    if not told.failed:
        raise Broken("the server was killed, and no call failed")
    subject.launch(_short_work(subject), Mode(calls=3, warmup_s=0.0))
    return f"the client ended {told.after_s - killed / 1e9:.1f} s later: {told.first_error or f'{told.failed} failed'}"


@dataclass(frozen=True)
class _Told:
    """What a watched client says of its calls."""

    started: NDArray[np.int64]
    done: NDArray[np.int64]
    """When each call that got a right reply began, and when the reply came, in nanoseconds of the monotonic clock."""
    failed: int
    first_error: str
    after_s: float
    """When the client had ended its timed part, in seconds of that clock."""


class _Watched:
    """A client in the middle of its timed part, while something happens to its server. Raises `Broken`."""

    def __init__(self, subject: Subject, seconds: float) -> None:
        mechanism = subject.entrant.mechanism
        if mechanism.same_process:
            raise NotPromised("client and server are one process")
        self.cell = Cell(mechanism.name, _short_work(subject), Mode(seconds=seconds, warmup_s=0.0), placement="free")
        self._subject = subject
        self._crew = crew_of([self.cell], subject.entrant)

    def __enter__(self) -> _Watched:
        try:
            self._crew.__enter__()
        except LaunchFailed as failure:
            raise Broken(str(failure)) from failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, error, trace)
        self._subject.left_behind.extend(self._crew.left_behind)
        if isinstance(error, LaunchFailed):
            raise Broken(f"when its server stopped or died: {error}") from error

    def until_under_way(self) -> list[int]:
        """Let the client call for a while. The server's processes, those included that left their family."""
        client = self._crew.clients[0]
        cell = msgspec.to_builtins(self.cell)
        client.ask({"do": "prepare", "address": self._crew.address, "cell": cell, "process": 0}, START_TIMEOUT_S)
        begin = time.monotonic_ns()
        self._end = begin + int(1e9 * self.cell.mode.seconds)
        client.tell({"do": "go", "begin_ns": begin})
        time.sleep(_UNDER_WAY_S)
        return self._crew.processes()[1]

    def goes_on_at(self, time_ns: int) -> bool:
        """Whether the client was still to begin calls then."""
        return time_ns < self._end

    def results(self, within_s: float) -> _Told:
        """What came of the calls; the timed part must end within so many seconds."""
        client = self._crew.clients[0]
        client.answer(within_s)
        after = time.monotonic()
        answer, blob = client.ask({"do": "results"}, _GRACE_S)
        part = ClientPart({"first_call_ns": 0, "warmup_calls": 0, "warmed_up": True, "slots": 1})
        part.take(answer, blob)
        return _Told(part.columns["started"], part.columns["done"], sum(part.errors.values()), part.first_error, after)


def _short_work(subject: Subject) -> Work:
    operations = subject.entrant.mechanism.operations
    return Work("echo", size=15) if "echo" in operations else Work("wait", delay_s=0.01)


def _while_calling(
    subject: Subject, befalls: Callable[[list[int]], tuple[int, int]], within_s: float
) -> tuple[_Told, int, int]:
    """What a client was told while something befell its server's processes, and when that began and was over.

    The client ends in time: `within_s` after its begin, or its timed part where that takes longer.
    """
    for seconds in _WATCHED_S:
        with _Watched(subject, seconds) as watched:
            begun, over = befalls(watched.until_under_way())
            told = watched.results(max(within_s, seconds + _UNDER_WAY_S))
        if watched.goes_on_at(over):
            break
    return told, begun, over


def _stop_for_a_while(servers: list[int]) -> tuple[int, int]:
    try:
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        _wait_for_states(servers, "TZ", "the server's processes do not stop")
        stopped = time.monotonic_ns()
        time.sleep(_STOPPED_S)
        return stopped, time.monotonic_ns()
    finally:
        for pid in servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _kill(servers: list[int]) -> tuple[int, int]:
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    _wait_for_states(servers, "Z", "the server's processes do not die")
    killed = time.monotonic_ns()
    return killed, killed


def _state(pid: int) -> str:
    """The letter of proc(5) for a process: ``T`` is stopped, ``Z`` dead and not buried; ``Z`` as well if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _wait_for_states(pids: list[int], states: str, otherwise: str) -> None:
    end = time.monotonic() + _GRACE_S
    while not all(_state(pid) in states for pid in pids):
        if time.monotonic() > end:
            raise Broken(otherwise)
        time.sleep(0.001)


def nothing_left(subject: Subject) -> str:
    """No object in shared memory and no process outlives its launch."""
    if subject.left_behind:
        raise Broken(f"left behind: {', '.join(sorted(set(subject.left_behind))[:3])}")
    return "clean"


PROMISES: tuple[tuple[str, Callable[[Subject], str]], ...] = (
    ("echo integrity", integrity),
    ("typed call", typed),
    ("stream", stream),
    ("one-way messages", one_way),
    ("calls that overlap", overlapping),
    ("several connections", connections),
    ("connecting", connecting),
    ("the clock", clock),
    ("Little's law", little),
    ("CPU of both sides", cpu),
    ("a server that stands still", standing_still),
    ("a killed server", death),
    ("nothing left behind", nothing_left),
)
"""In the order in which they are checked; the last looks at what the others left."""
