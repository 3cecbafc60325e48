"""Fresh processes, and what is measured in them: one cell, or several one after another."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import msgspec

from nearcall_lab.contract import DEFAULT_MAX_MESSAGE
from nearcall_lab.engine import usage
from nearcall_lab.engine.assemble import ClientPart, launch_of
from nearcall_lab.engine.meter import FarMeter, Meter, Used, together
from nearcall_lab.engine.two_clocks import judge_clock
from nearcall_lab.load.arrivals import Arrivals, arrivals_of
from nearcall_lab.load.client import COUNTED_LIMIT_S, MOST_MESSAGES, Unsupported, drain_s, refuse
from nearcall_lab.load.warmup import ROUNDS
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant
from nearcall_lab.results.model import Connected, Launch, NetworkProbe
from nearcall_lab.scenario.cell import Cell, Network
from nearcall_lab.workers import worker
from nearcall_lab.workers.crew import Crew, FarServer, StartElsewhere
from nearcall_lab.workers.network import Relay
from nearcall_lab.workers.worker import LaunchFailed, Worker
from nearcall_lab.workloads import TYPED

__all__ = ["LaunchFailed", "Measure", "fresh_processes", "measure"]

CELL_GRACE_S = 15.0
"""Seconds a step may take beyond its own budget before it counts as hung."""
_LEAD_NS = 20_000_000
"""Between the message to begin and the beginning, so that it has reached all clients by then."""
_ARRIVAL_LIMIT_S = 10.0
_SLOWEST = 5_000_000
"""Bytes per second: no mechanism is so slow that a long message needs more time."""
_FLUSH_LIMIT_S = 60.0
"""A sender that accepts messages faster than it sends them has a queue; this is the time it gets to empty it."""
_MOST_TRIPS = 20
"""There and back, in one call or one connection, besides those for items of a stream."""
_QUIET_S = 0.25
"""A count that has not changed for this long is taken to be final: of messages that arrive, or of connections that are
closed.
"""


Measure = Callable[[Cell, int, int], Launch]
"""One cell, once: ``measure(cell, number, position)``. Raises `LaunchFailed`."""


@contextmanager
def fresh_processes(
    cells: Sequence[Cell], entrant: Entrant, start_elsewhere: StartElsewhere | None = None
) -> Iterator[Measure]:
    """Start processes that can serve all of `cells`, and end them. Yields a function that measures one of the cells in
    them. `start_elsewhere` starts their server on the machine that the cells name.

    Raises `LaunchFailed` with one line of reason; its `logs` is a directory with what the workers wrote, which belongs
    to the caller from then on. Its subclass `worker.Unsupported` means that the mechanism cannot do this. After either
    nothing more can be measured. Whether the processes left anything behind is known only when they have ended.
    """
    if cells[0].host and start_elsewhere is None:
        raise LaunchFailed(f"its server is to run at {cells[0].host}, and nothing is connected to there")
    made: list[Launch] = []
    crew = crew_of(cells, entrant, start_elsewhere)

    def measure_here(cell: Cell, number: int, position: int) -> Launch:
        _refuse(cell, entrant)
        try:
            launch = CellRun(cell, crew, first=not made).run(number, position)
        except (KeyError, TypeError, ValueError) as error:  # a program in another language may answer anything
            raise LaunchFailed(f"a worker's answer cannot be used: {type(error).__name__}: {error}") from error
        made.append(launch)
        return launch

    try:
        with crew:
            yield measure_here
    finally:
        for launch in made:
            launch.left_behind = crew.left_behind


def measure(cell: Cell, entrant: Entrant, number: int, position: int) -> Launch:
    """Measure `cell` once in processes of its own. Raises as `fresh_processes` does."""
    _refuse(cell, entrant)
    with fresh_processes([cell], entrant) as measure_here:
        return measure_here(cell, number, position)


def _refuse(cell: Cell, entrant: Entrant) -> None:
    try:
        refuse(cell, entrant.mechanism.operations, entrant.mechanism.concurrent_calls)
    except Unsupported as reason:
        raise worker.Unsupported(str(reason)) from None
    if cell.mode.client_processes > 1 and (cell.same_process or entrant.mechanism.same_process):
        raise worker.Unsupported("server and client share a process, of which there is one")


def crew_of(cells: Sequence[Cell], entrant: Entrant, start_elsewhere: StartElsewhere | None = None) -> Crew:
    """The processes of these cells, which ask for the same ones; not yet started."""
    largest = max(max((cell.work.size, *cell.work.sizes)) for cell in cells)
    return Crew(
        entrant,
        choose(cells[0].placement),
        clients=cells[0].mode.client_processes,
        same_process=cells[0].same_process,
        max_message=max(DEFAULT_MAX_MESSAGE, largest + largest // 8 + 65_536),
        keep_logs=True,
        start_elsewhere=start_elsewhere,
        make_relay=_relay_of(cells[0]),
    )


def _relay_of(cell: Cell) -> Callable[[], Relay] | None:
    """What makes the network of a cell; None where it has none."""
    network = cell.network
    if network == Network():
        return None
    return functools.partial(Relay, network.delay_ms, network.jitter_ms, network.mbit, cell.seed)


@dataclass
class CellRun:
    """Drives the processes of one launch through one cell."""

    cell: Cell
    crew: Crew
    first: bool = True
    """The processes have measured no other cell before."""
    parts: list[ClientPart] = field(default_factory=list)
    server_opened: int | None = None
    seen_s: float = 0.0
    """How long the timed part took, as seen from here."""

    def run(self, number: int, position: int) -> Launch:
        """All of it; raises `LaunchFailed`."""
        started = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        cell, one_way = self.cell, self.cell.mode.kind == "one-way"
        self.prepare()
        connected: Connected = self.look_at_connection() if cell.mode.kind == "connect" else ""
        if one_way:
            self.wait_for_arrivals(None)
            self.server_part.ask({"do": "arm", "size": cell.work.size, "capacity": self._capacity()}, CELL_GRACE_S)
        canary = self._canary()
        begin_ns, used = self.go()
        self.collect()
        arrivals = self._arrivals() if one_way else None
        self._audit()
        self._must_have_passed(arrivals)
        launch = launch_of(cell, number, position, started, begin_ns, self.parts, arrivals)
        launch.client, launch.server = used.client, used.server
        launch.clock = used.clock
        judge_clock(launch, cell)
        launch.seen_s = self.seen_s
        # An open loop lasts as long as its schedule, although its last call may end earlier.
        most = max(self.seen_s, cell.mode.seconds) if cell.mode.kind == "open" else self.seen_s
        if launch.wall_s > most and not one_way:  # messages may arrive later
            raise LaunchFailed(
                f"client: its last stamp is {launch.wall_s:.3f} s after the beginning, and it had ended after "
                f"{self.seen_s:.3f} s: it has another clock than the lab"
            )
        launch.network = msgspec.convert(self.crew.probed, NetworkProbe) if self.crew.probed else None
        launch.connected, launch.server_opened = connected, self.server_opened
        launch.canary_ns, launch.canary_after_ns = canary, self._canary()
        launch.steal_share = used.steal_share
        if not self.crew.placement.competitors():  # their work is intended, and no disturbance
            launch.others_share = used.others_share
        return launch

    @property
    def server_part(self) -> Worker | FarServer:
        """The process with the server in it."""
        return self.crew.the_server or self.crew.clients[0]

    def ask_clients(self, make: Callable[[int], dict[str, Any]], timeout: float) -> list[tuple[dict[str, Any], bytes]]:
        """The same request to all clients at once; their answers in order."""
        clients = self.crew.clients
        for number, client in enumerate(clients):
            client.tell(make(number))
        answers = []
        for client in clients:
            answers.append(client.answer(timeout, [other for other in self.crew.parts if other is not client]))
        return answers

    def prepare(self) -> None:
        """Connect, make the first calls, warm up. The time limit allows for busy machines with many connections."""
        cell, mode = self.cell, self.cell.mode
        if mode.kind == "one-way":
            request = {"do": "arm", "size": cell.work.size, "capacity": MOST_MESSAGES // 8}
            self.server_part.ask(request, CELL_GRACE_S)
        limit = worker.START_TIMEOUT_S + 0.02 * mode.connections + (ROUNDS + 2) * (mode.warmup_s + self._slow_call_s())
        limit += self._flush_limit_s() + 0.002 * mode.slots
        plain = cell.plain()
        # Not where the server has served another cell: it may be closing only now what was opened for that.
        traces = self._traces() if self.first and mode.kind != "connect" else None
        before = traces() if traces else 0
        answers = self.ask_clients(
            lambda number: {"do": "prepare", "address": self.crew.address, "cell": plain, "process": number}, limit
        )
        self.parts = [ClientPart(answer, blob) for answer, blob in answers]
        if traces:
            self.server_opened = traces() - before

    def _traces(self) -> Callable[[], int] | None:
        """Counts what a connection adds to the server's process; None where that is a client's."""
        if self.crew.far is not None:
            return self.crew.far.traces
        if self.crew.server is None:
            return None
        return functools.partial(usage.traces_of_connections, self.crew.server.process.pid)

    def go(self) -> tuple[int, Used]:
        """The timed part. Returns when it began, and what was used on all machines."""
        mode = self.cell.mode
        meters: list[Meter | FarMeter] = [*([FarMeter(self.crew.far)] if self.crew.far else []), Meter(self.crew)]
        for meter in meters:
            meter.begin()
        begin_ns = time.monotonic_ns() + _LEAD_NS
        length = COUNTED_LIMIT_S if mode.calls else mode.seconds + drain_s(mode.seconds)
        if mode.calls and mode.rate:
            length += 2 * mode.calls / mode.rate
        limit = length + self._slow_call_s() + self._flush_limit_s() + CELL_GRACE_S
        answers = self.ask_clients(lambda number: {"do": "go", "begin_ns": begin_ns}, limit)
        self.seen_s = (time.monotonic_ns() - begin_ns) / 1e9
        replies = [answer for answer, _ in answers]
        return begin_ns, together([meter.conclude(replies) for meter in reversed(meters)])

    def _slow_call_s(self) -> float:
        """Seconds that one call may take before something must be wrong with it."""
        work = self.cell.work
        network, size = self.cell.network, work.size + sum(work.sizes)
        on_its_way_s = 2 * size / (network.mbit * 125_000) if network.mbit else 0.0
        # Some mechanisms go there and back for each item, or several times for a call, and most to connect.
        trips = 2 * (_MOST_TRIPS + work.items) * network.delay_ms / 1e3
        return work.delay_s + 2 * size / _SLOWEST + on_its_way_s + trips

    def collect(self) -> None:
        """Fetch the raw nanoseconds."""
        for part, (answer, blob) in zip(
            self.parts, self.ask_clients(lambda number: {"do": "results"}, CELL_GRACE_S + COUNTED_LIMIT_S), strict=True
        ):
            part.take(answer, blob)
        if not any(part.rows for part in self.parts):
            due = sum(part.due for part in self.parts)
            nothing = (
                f"all {due} calls that were due were missed: the machine is too busy" if due else "no call was done"
            )
            reason = next((part.first_error for part in self.parts if part.first_error), nothing)
            raise LaunchFailed(f"client: {reason}")

    def _audit(self) -> None:
        """The server must have handled as many calls as the clients made: not fewer, and not more than failed calls
        explain.
        """
        asked_before, handled_before = self.crew.audited
        asked = sum(part.requests for part in self.parts)
        failed = sum(part.failed for part in self.parts)
        handled = self.server_part.ask({"do": "served"}, CELL_GRACE_S)[0]["served"]
        self.crew.audited = (asked, handled)
        if self.cell.mode.kind == "one-way":
            return  # every message has a number, which shows more; servers may count them or not
        asked, handled = asked - asked_before, handled - handled_before
        if self.cell.work.operation in TYPED:
            for part in self.parts:
                if part.secrets != [self.crew.secret]:
                    raise LaunchFailed(
                        "client: the typed replies do not have the server's secret, so it did not make them"
                    )
        if not asked <= handled <= asked + failed:
            extra = f" and {failed} that failed" if failed else ""
            raise LaunchFailed(f"the client made {asked} calls{extra}, the server handled {handled}")

    def _must_have_passed(self, arrivals: Arrivals | None) -> None:
        """The bytes must have gone through the network that the cell asks for: a mechanism may tell its clients another
        address by itself.
        """
        if self.crew.relay is None:
            return
        work = self.cell.work
        calls = len(arrivals) if arrivals is not None else sum(part.rows for part in self.parts)
        least = calls * max(1, (work.size if work.operation in ("echo", "send") else 0) // 2)
        forth, back = self.crew.relay.passed()
        if forth < least or (work.operation != "send" and back < calls):
            raise LaunchFailed(f"network: {calls} calls were made, and {forth} bytes came through: it has another way")

    def _canary(self) -> int:
        if self.crew.placement.competitors():
            return 0  # it would only measure the competitors
        try:
            return int(self.crew.clients[0].ask({"do": "canary"}, CELL_GRACE_S)[0]["ns"])
        except worker.Unsupported:  # an adapter in another language need not have one
            return 0

    def look_at_connection(self) -> Connected:
        """Open one more connection and see whether the server's process shows it, or only after the first call."""
        traces = self._traces()
        if traces is None:
            return "cannot tell"
        client, servers = self.crew.clients[0], self.crew.parts[:1]
        before = _settled(traces)  # what the warm-up closed may still be there
        seen: Connected = "cannot tell"
        steps: tuple[tuple[str, Connected], ...] = (("open", "at open"), ("call", "at first call"))
        for step, verdict in steps:
            client.ask({"do": "extra", "step": step}, CELL_GRACE_S, servers)
            if seen == "cannot tell" and _becomes_true(lambda: traces() > before, 1.0):
                seen = verdict
        client.ask({"do": "extra", "step": "close"}, CELL_GRACE_S, servers)
        _becomes_true(lambda: traces() <= before, 1.0)
        return seen

    # One-way messages

    def _flush_limit_s(self) -> float:
        return _FLUSH_LIMIT_S if self.cell.mode.kind == "one-way" else 0.0

    def _capacity(self) -> int:
        mode = self.cell.mode
        most = mode.calls or (int(mode.rate * mode.seconds * 1.2) + 10_000 if mode.rate else MOST_MESSAGES)
        return min(most + most // 8 + 1000, MOST_MESSAGES)

    def wait_for_arrivals(self, expected: int | None) -> None:
        """Wait until `expected` messages have arrived, or none has for a while."""
        limit = time.monotonic() + _ARRIVAL_LIMIT_S
        last, since = -1, time.monotonic()
        while time.monotonic() < limit:
            seen = self.server_part.ask({"do": "arrived"}, CELL_GRACE_S)[0]["seen"]
            if seen != last:
                last, since = seen, time.monotonic()
            if (expected is not None and seen >= expected) or time.monotonic() - since > _QUIET_S:
                return
            # Not a mere sleep: what an event loop has not written yet is written while it runs.
            self.ask_clients(lambda number: {"do": "idle", "seconds": 0.01}, CELL_GRACE_S)

    def _arrivals(self) -> Arrivals:
        self.wait_for_arrivals(sum(part.sent - part.dropped for part in self.parts))
        answer, blob = self.server_part.ask({"do": "collect"}, CELL_GRACE_S)
        count = len(blob) // 24
        arrivals = arrivals_of(blob, count, answer["wrong"], answer["beyond"]).timed()
        if self.crew.far is not None:
            arrivals.stamps = self.crew.far.here_ns(arrivals.stamps)
        return arrivals


def _becomes_true(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _settled(count: Callable[[], int]) -> int:
    """A count once it has not changed for a while; after two seconds, whatever it is then."""
    end = time.monotonic() + 2.0
    last, since = count(), time.monotonic()
    while time.monotonic() - since < _QUIET_S and time.monotonic() < end:
        time.sleep(0.01)
        if (now := count()) != last:
            last, since = now, time.monotonic()
    return last
