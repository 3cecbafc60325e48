"""Carrying a study out: its own method in a process of its own, then the corrected scenario, then both side by side."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from nearcall_lab.analysis.summary import summaries
from nearcall_lab.cli.runs import carry_out, terminated_like_interrupted
from nearcall_lab.engine.run import Options, begin, expected_seconds, leave
from nearcall_lab.environment import Environment
from nearcall_lab.registry import discover
from nearcall_lab.results.store import Recorded
from nearcall_lab.scenario.load import Scenario, parse
from nearcall_lab.studies.model import ShownTable, Study, StudyResult, Summaries, Value
from nearcall_lab.studies.replica import PROGRESS, Findings
from nearcall_lab.studies.stored import FILE

_PATIENCE = 4.0
"""A replica may take this many times its expected time, and a minute more."""
_PATIENCE_S = 60.0
_LAST_WORDS_S = 5.0
"""How long a replica that is interrupted may take to write down the rows it has."""
_ENOUGH = "interrupted while the study's own method was repeated, before the corrected tables were begun"


@dataclass(frozen=True)
class Effort:
    """How much of a study is carried out."""

    scale: float
    """Share of the study's own amount of work."""
    launches: int | None = None
    """Fresh processes per corrected cell; None is the scenario's own number."""

    def expected_s(self, study: Study, scenario: Scenario) -> float:
        """About how long all of it takes on two CPUs without other work."""
        cells = [planned.cell for planned in scenario.planned if not planned.problem]
        launches = self.launches or scenario.settings.launches
        return study.expected_replica_s(self.scale) + expected_seconds(
            cells, launches, scenario.settings.cells_per_launch
        )


QUICK = Effort(0.02, 1)
USUAL = Effort(0.2)
FULL = Effort(1.0)


class ReplicaFailed(Exception):
    """The study's own method could not be repeated; the message has the reason."""


class ReplicaInterrupted(Exception):
    """The user pressed Ctrl-C while the study's own method was repeated."""

    def __init__(self, findings: Findings) -> None:
        super().__init__("interrupted")
        self.findings = findings
        """The rows that were finished."""


def replicate(study: Study, scale: float, tell: Callable[[str], None], limit_s: float = 0.0) -> Findings:
    """Runs the replica in a process group of its own, and ends every process of it.

    `scale` is the share of the study's own amount of work; `limit_s` is by default several times the expected time.
    `tell` gets the replica's progress; what else peers write is used only for the message of a failure. A replica that
    takes longer has the rows that it has finished, and a problem. Raises `ReplicaFailed`, and `ReplicaInterrupted` for
    Ctrl-C.
    """
    limit_s = limit_s or _PATIENCE_S + _PATIENCE * study.expected_replica_s(scale)
    with tempfile.TemporaryDirectory(prefix="nearcall-lab-") as directory:
        out = Path(directory) / "findings.json"
        command = [sys.executable, "-m", f"{study.package}.replica", "--out", str(out), "--scale", str(scale)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        last = ""
        watchdog = _Watchdog(process, limit_s)
        try:
            assert process.stderr is not None
            for line in process.stderr:
                before, told, progress = line.rstrip().partition(PROGRESS)
                last = progress or before or last
                if told:
                    tell(progress)
        except KeyboardInterrupt:
            _ask_to_end(process)
            with contextlib.suppress(msgspec.DecodeError):  # the replica was ended while it wrote
                raise ReplicaInterrupted(_read(out)) from None
            raise ReplicaInterrupted(Findings()) from None
        except BaseException:
            _end_group(process)
            raise
        finally:
            late = watchdog.end()
            if process.stderr is not None:
                process.stderr.close()
        if late:
            late_by = f"took longer than {limit_s:.0f} s"
            if not out.exists():
                raise ReplicaFailed(f"{late_by}; its last word was: {last}")
            findings = _read(out)
            findings.problems[last] = f"was under way when the study's own method {late_by}, and was ended"
            return findings
        if process.returncode or not out.exists():
            raise ReplicaFailed(f"ended with status {process.returncode}: {last}")
        return _read(out)


def _read(out: Path) -> Findings:
    """What a replica wrote; empty findings where it was ended before it wrote anything."""
    text = out.read_bytes() if out.exists() else b""
    return Findings(**msgspec.json.decode(text, type=dict[str, Any])) if text else Findings()


class _Watchdog:
    """Ends what is left of a process group when its first process has ended, or takes too long.

    Without it a forked server that outlives the replica would keep the replica's standard error open, and reading from
    that would not end.
    """

    def __init__(self, process: subprocess.Popen[str], limit_s: float) -> None:
        self._late = False
        self._process, self._limit_s = process, limit_s
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            self._process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            self._late = True
        _end_group(self._process)

    def end(self) -> bool:
        """Wait until the process has ended; returns whether it took too long."""
        self._thread.join()
        return self._late


def _ask_to_end(process: subprocess.Popen[str]) -> None:
    """Send SIGINT to a replica, which gets no Ctrl-C in its own process group: it writes the rows it has, and is then
    ended.
    """
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(_LAST_WORDS_S)
    _end_group(process)


def _end_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def carry_out_study(
    study: Study,
    directory: Path,
    console: Console,
    options: Options,
    scale: float,
    only: Sequence[str] = (),
    host: str = "",
) -> StudyResult:
    """Carry out the whole study and store it in `directory`; where it is interrupted, the part that is done. The
    corrected tables are measured here, and at the `host` if a URL is given.

    Raises `ReplicaFailed`, `ScenarioError` or `StoreError`.
    """
    started, begun = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
    title, machine, versions, published = study.published()
    scenario = parse(f"study {study.id}", study.scenario(), discover())
    if only:
        scenario = scenario.only(only)
    if host:
        scenario = scenario.also_at(host)
    enough = ""
    with console.status("as published"), terminated_like_interrupted():
        try:
            findings = replicate(study, scale, lambda line: _tell(console, line))
        except ReplicaInterrupted as interrupted:
            findings, enough = interrupted.findings, _ENOUGH
    run = begin(directory, scenario, options)
    recorded = leave(run) if enough else carry_out(run, list(scenario.planned), console)
    result = StudyResult(
        id=study.id,
        title=title,
        machine=machine,
        versions=versions,
        published=published,
        replicated=[_replicated(table, findings, enough) for table in published if table.id in findings.tables],
        corrected=[],
        flaws=[],
        problems=findings.problems,
        run=".",
        command=list(options.command),
        started=started,
        seconds=0.0,
        here=machine_here(recorded.info.environment),
        ended_early=enough or recorded.info.ended_early,
    )
    fill_in(result, study, findings, recorded, _transports(scenario))
    result.seconds = round(time.monotonic() - begun, 1)
    (directory / "findings.json").write_bytes(msgspec.json.encode(vars(findings)))
    (directory / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    return result


def machine_here(found: Environment) -> str:
    """The machine, and what speaks against its numbers, in one sentence."""
    load = f"{found.load_1min_at_start:.1f}"
    if found.load_1min_at_end is not None:
        load += f" before and {found.load_1min_at_end:.1f} after"
    parts = [f"{found.cpu}, {found.cpus_usable} CPUs", found.kernel, found.python]
    parts.append(f"load of the minute {load} the corrected tables' run")
    return "; ".join([", ".join(parts), *found.flags()])


def _tell(console: Console, line: str) -> None:
    console.print(f"as published: {line}", markup=False, highlight=False, soft_wrap=True)


def _transports(scenario: Scenario) -> dict[str, str]:
    """What carries the bytes of each mechanism."""
    return {
        planned.entrant.mechanism.name: planned.entrant.mechanism.transport.replace("none", "")
        for planned in scenario.planned
    }


def fill_in(
    result: StudyResult, study: Study, findings: Findings, recorded: Recorded, transports: Mapping[str, str]
) -> None:
    """Adds the corrected tables and the flaws, from the recorded run; `transports` are those of the mechanisms."""
    everywhere = Summaries(summaries(recorded), transports)
    found = everywhere.at("")
    result.corrected = study.corrected(found)
    if study.elsewhere is not None:
        for host in dict.fromkeys(summary.result.cell.host for summary in everywhere.all):
            result.corrected += study.elsewhere(everywhere.at(host)) if host else []
    result.corrected += [
        ShownTable(id, title, columns, {name: list(values) for name, values in findings.tables[id].items()})
        for id, (title, columns) in findings.further.items()
    ]
    result.flaws = [flaw.shown(findings, found) for flaw in study.flaws]


def _replicated(table: ShownTable, findings: Findings, ended_early: str) -> ShownTable:
    """The study's columns, with the results of its method here; rows that are not in the study come last."""
    ours = findings.tables[table.id]
    rows: dict[str, list[Value]] = {}
    for name in [*table.rows, *(name for name in ours if name not in table.rows)]:
        if name in ours:
            rows[name] = list(ours[name])
        else:
            rows[name] = [findings.problems.get(name, "not reached" if ended_early else "not repeated here")]
    return ShownTable(table.id, table.title, table.columns, rows)
