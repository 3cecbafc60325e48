"""Running a scenario: launches in their order, each stored as soon as it is done."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

from nearcall_lab import __version__
from nearcall_lab.checked import has_passed
from nearcall_lab.engine.launch import Measure
from nearcall_lab.engine.order import Batch, Order, Slot, block, block_length, groups_of, rounds
from nearcall_lab.engine.progress import Progress, Tell
from nearcall_lab.engine.watch import Watch
from nearcall_lab.environment import capture, conclude, cpu_ticks
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant, named
from nearcall_lab.results.kept_up import overload
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult, Failure, Launch, Observation, RunInfo
from nearcall_lab.results.store import Recorded, Run, StoreError, read
from nearcall_lab.scenario.cell import Cell, CellsPerLaunch
from nearcall_lab.scenario.load import Planned, Scenario
from nearcall_lab.stats import spread
from nearcall_lab.workers.worker import LaunchFailed, Unsupported

FreshProcesses = Callable[[Sequence[Cell], Entrant], AbstractContextManager[Measure]]
"""`nearcall_lab.engine.launch.fresh_processes`, or its replacement in tests. Raises `LaunchFailed`."""

Observe = Callable[[Cell, Entrant], Observation]
"""Counts of one cell, in a run of its own: ``observe(cell, entrant)``. Does not raise."""

GIVE_UP_AFTER = 2
"""Failed launches of one cell, after which it is not tried again in this session."""
NARROW = 0.02
"""With ``--full``: half the width of a cell's interval, as a share, that is narrow enough."""
MOST_LAUNCHES = 30
"""With ``--full``: launches after which a run ends in any case."""
_OVERHEAD_S = 1.0
"""Assumed time of a launch beyond its timed part, until the run has measured it."""
_BURST_CALL_S = 0.0005
"""Assumed time of a call in a large burst, as the slower half of the mechanisms needs it."""
_CONNECTION_S = 0.002
"""Assumed time to make a connection and its first call."""
_LOG_CHARACTERS = 100_000
"""Characters that are stored of each worker's log."""
_REPEATED_SHARE = 0.25
"""Share of a run's launches that may be repeated because the machine was disturbed."""


@dataclass(frozen=True)
class Options:
    """Settings of the command line beyond the scenario."""

    launches: int | None = None
    full: bool = False
    command: tuple[str, ...] = ()
    limit_s: float | None = None
    observe: bool = False


def begin(directory: Path, scenario: Scenario, options: Options) -> Run:
    """Make the directory of a run with every cell of the scenario in it, none reached yet. Raises `StoreError`."""
    settings = scenario.settings
    info = RunInfo(
        title=scenario.title,
        scenario=scenario.name,
        scenario_digest=scenario.digest,
        command=list(options.command),
        lab_version=__version__,
        revision=revision(),
        started=_now(),
        finished="",
        launches=options.launches or settings.launches,
        seed=settings.seed,
        placement=choose(settings.placement).describe(),
        environment=capture(),
        versions=_versions([planned.entrant for planned in scenario.planned]),
        digests=[planned.cell.digest() for planned in scenario.planned],
        baseline=scenario.baseline,
        order=settings.order,
        cells_per_launch=settings.cells_per_launch,
        limit_s=settings.limit_s if options.limit_s is None else options.limit_s,
        full=options.full,
        most_launches=MOST_LAUNCHES,
        observe=options.observe,
    )
    run = Run.create(directory, info)
    try:
        run.keep("scenario.toml", scenario.text)
        for planned in scenario.planned:
            run.add(_empty(planned))
    except BaseException:
        run.close()
        raise
    return run


def resume(directory: Path, entrants: Sequence[Entrant]) -> tuple[Run, list[Planned]]:
    """Open a run to continue it, and its cells. Raises `StoreError`, also where a mechanism has changed since."""
    run = Run.open(directory)
    try:
        planned = []
        for result in run.cells():
            name = result.cell.mechanism
            entrant = named(name, entrants)
            if entrant is None:
                raise StoreError(f"{directory} measures {name}, which is no longer here; see nearcall-lab list")
            if result.launches and entrant.version != result.version:
                raise StoreError(
                    f"{directory} measured {name} {result.version}, here is {entrant.version}: "
                    "the two must not be mixed, so start a new run"
                )
            problem = result.problem if result.status == "unsupported" else ""
            planned.append(Planned(result.cell, entrant, problem))
    except BaseException:
        run.close()
        raise
    return run, planned


@functools.cache
def revision() -> str:
    """Git revision of the lab's source when first asked for, with ``+`` when changed; empty outside a repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no", "--", "."],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if head.returncode == 0 else ""


def leave(run: Run) -> Recorded:
    """Record that a run was interrupted before its first launch; returns what is recorded. Raises `StoreError`."""
    with run:
        run.info.ended_early, run.info.finished = "interrupted", _now()
        run.save_info()
        run.combine()
    return read(run.directory)


class Engine:
    """Makes the launches of a run. Each is on the disk as soon as it is done."""

    def __init__(
        self,
        run: Run,
        planned: Sequence[Planned],
        fresh_processes: FreshProcesses,
        tell: Tell,
        observe: Observe | None = None,
    ) -> None:
        self.run = run
        self.planned = list(planned)
        self.results = run.cells()
        self._fresh_processes = fresh_processes
        self._tell = tell
        self._observe = observe
        self._groups = groups_of([p.cell for p in self.planned], run.info.cells_per_launch)
        earlier = [launch for result in self.results for launch in (*result.launches, *result.disturbed)]
        past = [launch.position for launch in earlier] + [f.position for r in self.results for f in r.failures]
        self._position = max(past, default=-1) + 1
        self._failed_now = [0] * len(self.planned)
        self._repeated: Counter[tuple[int, int]] = Counter()
        self._repeated_for = ""
        able = sum(any(not self.planned[i].problem for i in batch) for group in self._groups for batch in group)
        self._watch = Watch(earlier, budget=round(_REPEATED_SHARE * able * run.info.launches) + 1)
        self._begin = time.monotonic()
        self._spent_s = 0.0
        self._timed_s = 0.0
        self._made = 0

    def go(self) -> None:
        """Make every launch that is missing. After Ctrl-C or at the time limit it ends cleanly. Raises `StoreError`."""
        info, ticks = self.run.info, cpu_ticks()
        info.ended_early = ""
        try:
            order = cast(Order, info.order)
            done = self._all(list(rounds(self._groups, 0, info.launches, order, info.seed)))
            if done and info.full:
                self._until_narrow(order)
            if done and info.observe and self._observe is not None:
                self._count(self._observe)
        except KeyboardInterrupt:
            info.ended_early = "interrupted"
        conclude(info.environment, ticks, (launch.others_share for r in self.results for launch in r.launches))
        info.finished = _now()
        self.run.save_info()
        self.run.combine()

    def _until_narrow(self, order: Order) -> None:
        """More launches for each group that has a cell with a wide interval: of all its cells, so that launches can be
        paired.
        """
        step, most = block_length(order), self.run.info.most_launches
        first = self.run.info.launches
        while first < most:
            wide = [group for group in self._groups if any(self._wide(i) for batch in group for i in batch)]
            slots = [slot for group in wide for slot in block(group, first, step, order, self.run.info.seed)]
            if not slots or not self._all(slots):
                return
            first += step

    def _count(self, observe: Observe) -> None:
        """Count system calls and switches of every cell that has numbers, after all timed launches."""
        todo = [index for index, result in enumerate(self.results) if result.launches and result.observation is None]
        for at, index in enumerate(todo):
            planned, result = self.planned[index], self.results[index]
            left = (len(todo) - at) * (_timed(planned.cell) + _OVERHEAD_S)
            name = planned.entrant.mechanism.name
            self._tell(Progress(at, len(todo), left, name, f"{planned.cell.title()}, counting system calls"))
            result.observation = observe(planned.cell, planned.entrant)
            self.run.update(result)

    def _wide(self, index: int) -> bool:
        result = self.results[index]
        if result.status != "ok":
            return False
        metric = metric_of(result.cell)
        values = [value for launch in result.launches if (value := metric.of(launch)) is not None]
        width = spread(values)
        return width is None or width > NARROW

    def _all(self, slots: list[Slot]) -> bool:
        """Make these launches, except those that are made already. False if the time limit was reached."""
        todo = [slot for slot in slots if self._open(slot)]
        limit = self.run.info.limit_s
        for at, slot in enumerate(todo):
            if limit and time.monotonic() - self._begin > limit:
                self.run.info.ended_early = f"time limit of {limit:g} s reached after {at} of {len(todo)} launches"
                return False
            if batch := self._not_given_up(self._open(slot)):
                self._say(at, todo, batch)
                self._one(at, todo, batch)
        return True

    def _open(self, slot: Slot) -> Batch:
        """The cells of a launch that have no result with its number yet."""
        return tuple(
            index
            for index in slot.cells
            if not self.planned[index].problem
            and all(launch.number != slot.number for launch in self.results[index].launches)
        )

    def _not_given_up(self, batch: Batch) -> Batch:
        return tuple(index for index in batch if self._failed_now[index] < GIVE_UP_AFTER)

    def _one(self, at: int, todo: list[Slot], batch: Batch) -> None:
        """One launch, stored whether it succeeded or failed. Another one is added right after it for the cells that
        came after a failed one, and for those during which the machine was disturbed.
        """
        number = todo[at].number
        tried = self._launch(batch, number)
        again = []
        for index, launch in tried.made.items():
            result = self.results[index]
            launch.breach = self._watch.breach(launch)
            if launch.breach and self._watch.may_repeat(self._repeated[index, number]):
                self._repeated[index, number] += 1
                self._repeated_for = launch.breach
                again.append(index)
                result.disturbed.append(launch)
            else:
                result.launches.append(launch)
                settle(result)
            self.run.update(result)
        if tried.error is not None and (remark := self._failed(tried, number)):
            self._say(at, todo, tried.failed, remark)
        if tried.interrupted:
            raise KeyboardInterrupt
        if left := tuple(i for i in batch if i in again or not (i in tried.made or i in tried.failed)):
            todo.insert(at + 1, Slot(left, number))

    def _launch(self, batch: Batch, number: int) -> _Tried:
        """Fresh processes for as many cells of the batch as they get through."""
        tried = _Tried(self._position, failed=batch)  # until they have started, what goes wrong concerns all cells
        begin = time.monotonic()
        self._position += 1
        try:
            planned = [self.planned[index] for index in batch]
            with self._fresh_processes([p.cell for p in planned], planned[0].entrant) as measure:
                for index, p in zip(batch, planned, strict=True):
                    tried.failed = (index,)
                    tried.made[index] = measure(p.cell, number, tried.position)
            tried.failed = ()
        except KeyboardInterrupt:
            tried.interrupted = True
        except Exception as error:
            tried.error = error
            for index in tried.failed:  # the last one, where the processes did not end as they should
                tried.made.pop(index, None)
        self._spent_s += time.monotonic() - begin
        self._timed_s += sum(_timed(self.planned[index].cell) for index in (*tried.made, *tried.failed[:1]))
        self._made += 1
        return tried

    def _failed(self, tried: _Tried, number: int) -> str:
        """Record what went wrong. Returns what the user should see of it at once."""
        error, kept = tried.error, ""
        # Other errors that an adapter's process causes in the lab must not keep the other cells from running.
        kind = "" if isinstance(error, LaunchFailed) else f"{type(error).__name__}: "
        reason = kind + (" ".join(str(error).split()) or "no message")[:300]
        if isinstance(error, LaunchFailed) and error.logs and (log := _taken_over(error.logs)):
            kept = self.run.log(self.results[tried.failed[0]].digest, tried.position, log)
        for index in tried.failed:
            result = self.results[index]
            if isinstance(error, Unsupported):
                result.status, result.problem = "unsupported", str(error)
                self._failed_now[index] = GIVE_UP_AFTER
            else:
                result.failures.append(Failure(number, tried.position, reason, kept))
                result.log = kept or result.log
                self._failed_now[index] += 1
                settle(result)
            self.run.update(result)
        return "" if isinstance(error, Unsupported) else f"failed: {reason}"

    def _say(self, at: int, todo: list[Slot], batch: Batch, remark: str = "") -> None:
        planned = [self.planned[index] for index in batch]
        overhead = (self._spent_s - self._timed_s) / self._made if self._made else _OVERHEAD_S
        later = (self._not_given_up(self._open(slot)) for slot in todo[at:])
        left = sum(overhead + sum(_timed(self.planned[i].cell) for i in cells) for cells in later if cells)
        if limit := self.run.info.limit_s:
            left = min(left, max(0.0, limit - (time.monotonic() - self._begin)))
        label = planned[0].entrant.mechanism.name
        work = planned[0].cell.title() if len(planned) == 1 else f"{len(planned)} cells"
        repeated = sum(self._repeated.values())
        self._tell(Progress(at, len(todo), left, label, work, remark, repeated, self._repeated_for))


@dataclass
class _Tried:
    """The outcome of one launch."""

    position: int
    failed: Batch
    """The cells that an error concerns; none of them is in `made`."""
    made: dict[int, Launch] = field(default_factory=dict)
    error: Exception | None = None
    interrupted: bool = False


def _taken_over(logs: Path) -> str:
    """The end of what the workers of a failed launch wrote; the directory is removed."""
    parts = []
    for path in sorted(logs.glob("*.log")):
        text = path.read_text(errors="replace")[-_LOG_CHARACTERS:].strip()
        if text:
            parts.append(f"== {path.stem}\n{text}\n")
    shutil.rmtree(logs, ignore_errors=True)
    return "".join(parts)


def settle(result: CellResult) -> None:
    """Bring a cell's status and problem up to date with its launches and failures.

    A failure whose launch succeeded later, in a resumed run, stays recorded but no longer counts.
    """
    launches = result.launches
    measured = {launch.number for launch in launches}
    failures = [failure for failure in result.failures if failure.number not in measured]
    if result.status == "unsupported":
        return
    failed = (
        f"{len(failures)} of {len(launches) + len(failures)} launches failed: {failures[-1].reason}" if failures else ""
    )
    if failures and (not launches or len(failures) >= GIVE_UP_AFTER):
        result.status = "failed"
        result.problem = failed if launches else failures[-1].reason
        return
    if not launches:
        result.status, result.problem = "not reached", ""
        return
    overloads = [reason for launch in launches if (reason := overload(launch))]
    result.status = "overloaded" if 2 * len(overloads) > len(launches) else "ok"
    remarks = []
    if overloads:
        remarks.append(f"{len(overloads)} of {len(launches)} launches overloaded: {overloads[0]}")
    if failures:
        remarks.append(failed)
    disturbed = [launch for launch in launches if launch.breach]
    if disturbed:
        remarks.append(f"{len(disturbed)} of {len(launches)} launches disturbed: {disturbed[0].breach}")
    result.problem = "; ".join(remarks)


def expected_seconds(cells: Sequence[Cell], launches: int, per_launch: CellsPerLaunch = "one") -> float:
    """About how long a run will take, before anything is known of these mechanisms."""
    starts = sum(map(len, groups_of(cells, per_launch)))
    return launches * (starts * _OVERHEAD_S + sum(map(_timed, cells)))


def _timed(cell: Cell) -> float:
    mode = cell.mode
    if mode.calls and mode.rate:
        return mode.calls / mode.rate + mode.warmup_s
    if mode.kind == "burst":  # all its calls are made, however long they take
        return max(mode.seconds, cell.work.delay_s + mode.calls * _BURST_CALL_S) + mode.warmup_s
    return mode.seconds + mode.warmup_s + mode.connections * _CONNECTION_S


def _empty(planned: Planned) -> CellResult:
    mechanism = planned.entrant.mechanism
    return CellResult(
        cell=planned.cell,
        digest=planned.cell.digest(),
        status="unsupported" if planned.problem else "not reached",
        problem=planned.problem,
        label=mechanism.label,
        family=mechanism.family,
        version=planned.entrant.version,
        settings=mechanism.settings,
        tuned=mechanism.tuned,
        typed=mechanism.typed,
        busy_polls=mechanism.busy_polls,
        same_process=mechanism.same_process,
        checked=None if planned.problem else has_passed(planned.entrant),
        style=mechanism.style,
    )


def _versions(entrants: Sequence[Entrant]) -> dict[str, str]:
    found = {e.mechanism.distribution: e.version for e in entrants if e.mechanism.distribution and e.version}
    for name in ("nearcall-lab", "numpy", "msgspec", "hdrhistogram"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found["Python"] = sys.version.split()[0]
    return dict(sorted(found.items()))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
