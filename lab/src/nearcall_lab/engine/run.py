"""Running a scenario: launches in their order, each stored as soon as it is done."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

from nearcall_lab import __version__
from nearcall_lab.engine.order import Order, Slot, block, block_length, groups_of, rounds
from nearcall_lab.engine.progress import Progress, Tell
from nearcall_lab.engine.watch import Watch
from nearcall_lab.environment import capture, conclude, cpu_ticks
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant
from nearcall_lab.results.kept_up import overload
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult, Failure, Launch, Observation, RunInfo
from nearcall_lab.results.store import Run, StoreError
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.scenario.load import Planned, Scenario
from nearcall_lab.stats import spread
from nearcall_lab.workers.worker import LaunchFailed, Unsupported

Measure = Callable[[Cell, Entrant, int, int], Launch]
"""One cell, once: ``measure(cell, entrant, number, position)``. Raises `LaunchFailed`."""

Observe = Callable[[Cell, Entrant], Observation]
"""Counts of one cell, in a run of its own: ``observe(cell, entrant)``. Does not raise."""

GIVE_UP_AFTER = 2
"""Failed launches of one cell, after which it is not tried again in this session."""
NARROW = 0.02
"""With ``--full``: half the width of a cell's interval, as a share, that is narrow enough."""
MOST_LAUNCHES = 30
"""With ``--full``: where it ends all the same."""
_OVERHEAD_S = 1.0
"""A launch's time beyond its slice, until the run knows better."""
_BURST_CALL_S = 0.0005
"""Of a call in a large burst, for the slower half of the mechanisms."""
_LOG_CHARACTERS = 100_000
"""Kept of each worker's log."""
_REPEATED_SHARE = 0.25
"""Share of a run's launches that may be repeated because the machine was disturbed."""


@dataclass(frozen=True)
class Options:
    """What the command line says beyond the scenario."""

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
    """Open a run to go on with, and its cells. Raises `StoreError`, also where a mechanism is not what it was."""
    run = Run.open(directory)
    try:
        known = {entrant.mechanism.name: entrant for entrant in entrants}
        planned = []
        for result in run.cells():
            name = result.cell.mechanism
            if name not in known:
                raise StoreError(f"{directory} measures {name}, which is no longer here; see nearcall-lab list")
            if result.launches and known[name].version != result.version:
                raise StoreError(
                    f"{directory} measured {name} {result.version}, here is {known[name].version}: "
                    "the two must not be mixed, so start a new run"
                )
            problem = result.problem if result.status == "unsupported" else ""
            planned.append(Planned(result.cell, known[name], problem))
    except BaseException:
        run.close()
        raise
    return run, planned


def revision() -> str:
    """Git revision of the lab's source, with ``+`` when changed; empty outside a repository."""
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


class Engine:
    """Makes the launches of a run. What is done is on the disk at any time."""

    def __init__(
        self, run: Run, planned: Sequence[Planned], measure: Measure, tell: Tell, observe: Observe | None = None
    ) -> None:
        self.run = run
        self.planned = list(planned)
        self.results = run.cells()
        self._measure = measure
        self._tell = tell
        self._observe = observe
        self._groups = groups_of([p.cell for p in self.planned])
        earlier = [launch for result in self.results for launch in (*result.launches, *result.disturbed)]
        past = [launch.position for launch in earlier] + [f.position for r in self.results for f in r.failures]
        self._position = max(past, default=-1) + 1
        self._failed_now = [0] * len(self.planned)
        able = sum(not p.problem for p in self.planned)
        self._watch = Watch(earlier, budget=round(_REPEATED_SHARE * able * run.info.launches) + 1)
        self._begin = time.monotonic()
        self._spent_s = 0.0
        self._timed_s = 0.0
        self._made = 0

    def go(self) -> None:
        """Make every launch that is missing. Ctrl-C and the time limit end it in order. Raises `StoreError`."""
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
        conclude(info.environment, ticks)
        info.finished = _now()
        self.run.save_info()
        self.run.combine()

    def _until_narrow(self, order: Order) -> None:
        """More launches for each group that has a cell with a wide interval, all of the group, so that they pair."""
        step, most = block_length(order), self.run.info.most_launches
        first = self.run.info.launches
        while first < most:
            wide = [group for group in self._groups if any(self._wide(index) for index in group)]
            slots = [slot for group in wide for slot in block(group, first, step, order, self.run.info.seed)]
            if not slots or not self._all(slots):
                return
            first += step

    def _count(self, observe: Observe) -> None:
        """System calls and switches of every cell that has numbers, after all that is timed."""
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
        """Make these launches, without those that are made already. False if the time limit was reached."""
        todo = [slot for slot in slots if self._open(slot)]
        limit = self.run.info.limit_s
        for at, slot in enumerate(todo):
            if limit and time.monotonic() - self._begin > limit:
                self.run.info.ended_early = f"time limit of {limit:g} s reached after {at} of {len(todo)} launches"
                return False
            if self._failed_now[slot.index] < GIVE_UP_AFTER:
                self._say(slot, at, todo)
                self._one(slot, at, todo)
        return True

    def _open(self, slot: Slot) -> bool:
        if self.planned[slot.index].problem:
            return False
        return all(launch.number != slot.number for launch in self.results[slot.index].launches)

    def _one(self, slot: Slot, at: int, todo: list[Slot]) -> None:
        """One launch, repeated if the machine was disturbed, and stored whatever became of it."""
        planned, result = self.planned[slot.index], self.results[slot.index]
        repeated = 0
        while True:
            position, begin = self._position, time.monotonic()
            self._position += 1
            try:
                launch = self._measure(planned.cell, planned.entrant, slot.number, position)
            except Unsupported as error:
                result.status, result.problem = "unsupported", str(error)
                self._failed_now[slot.index] = GIVE_UP_AFTER
                self.run.update(result)
                return
            except Exception as error:
                self._failed(slot, position, error)
                self._say(slot, at, todo, f"failed: {result.failures[-1].reason}")
                return
            finally:
                self._spent_s += time.monotonic() - begin
                self._timed_s += _timed(planned.cell)
                self._made += 1
            launch.breach = self._watch.breach(launch)
            if not launch.breach or not self._watch.may_repeat(repeated):
                break
            repeated += 1
            result.disturbed.append(launch)
            self.run.update(result)
            self._say(slot, at, todo, f"repeated, for {launch.breach}")
        result.launches.append(launch)
        settle(result)
        self.run.update(result)

    def _failed(self, slot: Slot, position: int, error: Exception) -> None:
        result = self.results[slot.index]
        # Whatever else an adapter's process makes the lab stumble over must not keep the other cells from running.
        kind = "" if isinstance(error, LaunchFailed) else f"{type(error).__name__}: "
        reason = kind + (" ".join(str(error).split()) or "no message")[:300]
        log = _taken_over(error.logs) if isinstance(error, LaunchFailed) and error.logs else ""
        kept = self.run.log(result.digest, position, log) if log else ""
        result.failures.append(Failure(slot.number, position, reason, kept))
        result.log = kept or result.log
        self._failed_now[slot.index] += 1
        settle(result)
        self.run.update(result)

    def _say(self, slot: Slot, at: int, todo: list[Slot], remark: str = "") -> None:
        planned = self.planned[slot.index]
        overhead = (self._spent_s - self._timed_s) / self._made if self._made else _OVERHEAD_S
        left = sum(
            _timed(self.planned[later.index].cell) + overhead
            for later in todo[at:]
            if self._failed_now[later.index] < GIVE_UP_AFTER
        )
        if limit := self.run.info.limit_s:
            left = min(left, max(0.0, limit - (time.monotonic() - self._begin)))
        label = planned.entrant.mechanism.name
        self._tell(Progress(at, len(todo), left, label, planned.cell.title(), remark))


def _taken_over(logs: Path) -> str:
    """What the workers of a failed launch wrote, the end of it; the directory is removed."""
    parts = []
    for path in sorted(logs.glob("*.log")):
        text = path.read_text(errors="replace")[-_LOG_CHARACTERS:].strip()
        if text:
            parts.append(f"== {path.stem}\n{text}\n")
    shutil.rmtree(logs, ignore_errors=True)
    return "".join(parts)


def settle(result: CellResult) -> None:
    """Bring a cell's status and problem up to date with its launches and failures.

    A failure whose launch succeeded later, in a resumed run, stays on record and no longer counts.
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


def expected_seconds(cells: Sequence[Cell], launches: int) -> float:
    """About how long a run will take, before anything is known of these mechanisms."""
    return launches * sum(_timed(cell) + _OVERHEAD_S for cell in cells)


def _timed(cell: Cell) -> float:
    mode = cell.mode
    if mode.calls and mode.rate:
        return mode.calls / mode.rate + mode.warmup_s
    if mode.kind == "burst":  # its calls are made however long they take
        return max(mode.seconds, cell.work.delay_s + mode.calls * _BURST_CALL_S) + mode.warmup_s
    return mode.seconds + mode.warmup_s


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
