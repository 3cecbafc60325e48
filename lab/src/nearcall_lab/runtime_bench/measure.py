"""Collecting the runtime's measurements: rounds in random order, each task with processes of its own."""

from __future__ import annotations

import fnmatch
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from nearcall_lab.engine.launch import measure
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant, discover, entrants_of
from nearcall_lab.results.metric import metric_of
from nearcall_lab.runtime_bench import floor, starts
from nearcall_lab.runtime_bench.grpc_tasks import GrpcTasks
from nearcall_lab.runtime_bench.load_tasks import GRPC, LoadTasks
from nearcall_lab.runtime_bench.pair import Pair
from nearcall_lab.runtime_bench.plugin_tasks import PluginTasks
from nearcall_lab.runtime_bench.probes import resident_kb
from nearcall_lab.runtime_bench.results import Amounts, Collected
from nearcall_lab.scenario.cell import Cell, Mode, PlacementMode, Work
from nearcall_lab.workers.worker import LaunchFailed

PROBES = "nearcall_lab.runtime_bench.probes"
PASSING = "nearcall_lab.runtime_bench.passing"
ROUTING = "nearcall_lab.runtime_bench.routing"
IDLE_CLIENTS = 100
WARM_UP_S = 0.1

WORK = {"echo-15": Work(size=15), "echo-60k": Work(size=60_000), "quote": Work("quote")}


@dataclass(frozen=True)
class PingPong:
    """One ping-pong cell."""

    mechanism: str
    work: str
    """A key of `WORK`."""
    placement: PlacementMode = "apart"

    @property
    def key(self) -> str:
        """Name of the series."""
        suffix = "" if self.placement == "apart" else f" {self.placement}"
        return f"{self.mechanism} {self.work}{suffix}"

    def cell(self, seconds: float) -> Cell:
        """The cell that the engine is to measure."""
        mode = Mode(seconds=seconds, warmup_s=WARM_UP_S)
        return Cell(self.mechanism, WORK[self.work], mode, self.placement)


PING_PONGS = (
    PingPong("nearcall-shm", "echo-15"),
    PingPong("nearcall-shm", "echo-60k"),
    PingPong("nearcall-shm", "quote"),
    PingPong("nearcall-shm-view", "echo-60k"),
    PingPong("nearcall-unix", "echo-15"),
    PingPong("nearcall-tcp", "echo-15"),
    PingPong("grpcio-tcp", "echo-15"),
    PingPong("grpcio-uds", "echo-60k"),
    PingPong("shm-rpc-bridge", "echo-15"),
    PingPong("pyro4", "echo-15"),
    PingPong("iceoryx2", "echo-15"),
    PingPong("raw-unix", "echo-15"),
    PingPong("raw-tcp", "echo-15"),
    PingPong("nearcall-shm", "echo-15", "free"),
    PingPong("nearcall-shm", "echo-15", "same"),
)


class NoSuchTask(ValueError):
    """A name that was given is no task's; the message has the names of all tasks."""


@dataclass(frozen=True)
class Task:
    """One thing to do in every round."""

    name: str
    run: Callable[[int], None]


class RuntimeRun:
    """Runs all tasks; `collected` is complete at any time, also after an interruption."""

    def __init__(self, rounds: int, amounts: Amounts, floor_binary: str | None, only: str = "*", seed: int = 1) -> None:
        self.rounds = rounds
        self._only = only
        self.amounts = amounts
        self.collected = Collected()
        self.interrupted = False
        self.others: list[float | None] = []
        """For each ping-pong, the share of its CPUs that other work used."""
        self._random = random.Random(seed)
        self._entrants = {entrant.mechanism.name: entrant for entrant in discover()}
        self._service = entrants_of("nearcall_lab.runtime_bench.service")[0]
        self._apart = choose("apart")
        self._floor, reason = floor.find(floor_binary)
        if reason:
            self.collected.problems["ring"] = reason
        self.placement = self._apart.describe()

    def tasks(self) -> list[Task]:
        """All tasks, except those that cannot run here."""
        tasks = []
        for cell in PING_PONGS:
            entrant = self._entrants.get(cell.mechanism)
            problem = "no such adapter" if entrant is None else entrant.problem
            if problem or entrant is None:
                self.collected.problems[cell.key] = problem
            else:
                tasks.append(Task(cell.key, self._ping_pong(cell, entrant)))
        probes: dict[str, Callable[[int], None]] = {
            "view": self._view,
            "stream": self._stream,
            "one-way": self._one_way,
            "router": self._router,
            "objects": self._objects,
            "handed over": self._handed_over,
            "set-up": self._set_up,
            "idle": self._idle,
            "import": self._import,
        }
        grpc = self._entrants.get(GRPC)
        probes |= LoadTasks(self._service, grpc, self._apart, self.amounts, self.collected).tasks()
        probes |= GrpcTasks(self._apart, self.amounts, self.collected).tasks()
        probes |= PluginTasks(self._service, self._apart, self.amounts, self.collected).tasks()
        for name, run in probes.items():
            if self._service.problem:
                self.collected.problems[name] = self._service.problem
            else:
                tasks.append(Task(name, run))
        if self._floor:
            tasks.append(Task("ring", self._ring))
        chosen = [task for task in tasks if self._is_chosen(task.name)]
        if not chosen:
            raise NoSuchTask(f"no task is called {self._only!r}; there are {', '.join(task.name for task in tasks)}")
        problems = self.collected.problems.items()
        self.collected.problems = {name: problem for name, problem in problems if self._is_chosen(name)}
        return chosen

    def _is_chosen(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self._only)

    def run(self, tell: Callable[[str, int, int, float | None], None]) -> None:
        """All rounds. `tell(what, done, total, seconds_left)` is called between tasks. After Ctrl-C it ends cleanly."""
        tasks = self.tasks()
        total, done, begin = len(tasks) * self.rounds, 0, time.monotonic()
        try:
            for turn in range(self.rounds):
                for task in self._random.sample(tasks, len(tasks)):
                    left = (total - done) * (time.monotonic() - begin) / done if done else None
                    tell(task.name, done, total, left)
                    done += 1
                    if task.name in self.collected.problems:
                        continue
                    try:
                        task.run(turn)
                    except (LaunchFailed, OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                        self.collected.problems[task.name] = f"failed: {' '.join(str(error).split())}"[:300]
        except KeyboardInterrupt:
            self.interrupted = True

    def _ping_pong(self, ping_pong: PingPong, entrant: Entrant) -> Callable[[int], None]:
        cell = ping_pong.cell(self.amounts.slice_s)

        def run(turn: int) -> None:
            launch = measure(cell, entrant, turn, turn)
            self.others.append(launch.others_share)
            self.collected.add_samples(ping_pong.key, launch.response)
            if (median := metric_of(cell).of(launch)) is not None:
                self.collected.add(ping_pong.key, turn, median)

        return run

    def _probing(self) -> Pair:
        return Pair(self._service, self._apart)

    def _view(self, turn: int) -> None:
        with self._probing() as pair:
            result = pair.probe(f"{PROBES}:view_call", 60, size=1_000_000, seconds=self.amounts.slice_s)
        self.collected.add("view", turn, result["p50_ns"])

    def _stream(self, turn: int) -> None:
        with self._probing() as pair:
            rate = pair.probe(f"{PROBES}:stream", 120, items=self.amounts.stream_items)
        self.collected.add("stream", turn, rate)

    def _one_way(self, turn: int) -> None:
        with self._probing() as pair:
            for size, messages in ((20, self.amounts.one_way_small), (4096, self.amounts.one_way_large)):
                rate = pair.probe(f"{PROBES}:one_way", 120, size=size, messages=messages, timeout_s=30)
                self.collected.add(f"one-way {size}", turn, rate)

    def _router(self, turn: int) -> None:
        with self._probing() as pair:
            for size, messages in ((20, self.amounts.one_way_small), (4096, self.amounts.one_way_large)):
                found = pair.probe(f"{ROUTING}:one_way", 120, size=size, messages=messages, timeout_s=30)
                for way, rate in found.items():
                    self.collected.add(f"router {size} {way}", turn, rate)

    def _objects(self, turn: int) -> None:
        for transport in ("shm", "unix"):
            with self._probing() as pair:
                found = pair.probe(f"{PASSING}:objects", 60, transport=transport, seconds=self.amounts.slice_s / 2)
            for name, nanoseconds in found.items():
                self.collected.add(f"objects {transport} {name}", turn, nanoseconds)

    def _handed_over(self, turn: int) -> None:
        arguments = {"seconds": self.amounts.slice_s / 2, "frames": self.amounts.frames}
        with self._probing() as pair:
            for name, value in pair.probe(f"{PASSING}:handed_over", 60, **arguments).items():
                self.collected.add(f"handed over {name}", turn, value)

    def _set_up(self, turn: int) -> None:
        with self._probing() as pair:
            result = pair.probe(f"{PROBES}:set_up", 60, times=50)
        self.collected.add("set-up", turn, result["replied_ns"])
        self.collected.add("set-up connect", turn, result["connected_ns"])

    def _idle(self, turn: int) -> None:
        """CPU share of the server over some seconds, and memory per connection on both sides together."""
        with self._probing() as pair:
            pair.probe(f"{PROBES}:hold", 60, clients=1)  # what the first connection costs once is not per connection
            before = [resident_kb(pid) for pid in (pair.server_pid, pair.client_pid)]
            pair.probe(f"{PROBES}:hold", 60, clients=IDLE_CLIENTS)
            after = [resident_kb(pid) for pid in (pair.server_pid, pair.client_pid)]
            time.sleep(0.5)
            cpu_before = pair.server_cpu_s()
            begin = time.monotonic()
            time.sleep(self.amounts.idle_s)
            share = (pair.server_cpu_s() - cpu_before) / (time.monotonic() - begin)
            pair.probe(f"{PROBES}:release", 60)
        self.collected.add("idle", turn, share)
        for kind in ("private", "shared"):
            grown = sum(b[kind] - a[kind] for a, b in zip(before, after, strict=True))
            self.collected.add(f"memory {kind}", turn, grown / IDLE_CLIENTS)

    def _import(self, turn: int) -> None:
        """The import alone, and everything that a program does before its first reply."""
        for key, code in (("import", starts.IMPORT), ("first reply", starts.FIRST_REPLY)):
            times = [starts.in_new_process(code) for _ in range(self.amounts.imports + 1)]
            self.collected.add(key, turn, statistics.median(times[1:]))

    def _ring(self, turn: int) -> None:
        alone = floor.measure(self._floor, self._apart)
        self.collected.add("ring", turn, alone[15])
        self.collected.add("ring 60k", turn, alone[60_000])
