"""The five studies: their figures as data, their methods repeated, and the corrected tables."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest
from rich.console import Console

from made_up import result
from nearcall_lab.analysis.summary import Summary, summarise
from nearcall_lab.engine.run import Options
from nearcall_lab.registry import discover
from nearcall_lab.report.studies import section
from nearcall_lab.results.histogram import latencies
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult, Status
from nearcall_lab.results.store import read
from nearcall_lab.scenario.cell import Mode, Work
from nearcall_lab.scenario.load import Planned, parse
from nearcall_lab.studies import NAMES, run, study, titles
from nearcall_lab.studies.ahead import others_ahead
from nearcall_lab.studies.model import Flaw, Study, StudyResult, Summaries, Value, rows_of, shown_value, spectrum
from nearcall_lab.studies.replica import Findings
from nearcall_lab.studies.run import QUICK, USUAL, ReplicaFailed, carry_out_study, fill_in, replicate
from nearcall_lab.studies.show import ended_early, markdown
from nearcall_lab.studies.stored import read_study

ENTRANTS = discover()


def test_all_five_have_titles() -> None:
    assert list(titles()) == ["art", "rpyc-http", "grpc-burst", "rmr", "shm"]
    assert all(titles().values())


@pytest.mark.parametrize("name", NAMES)
def test_published_rows_fill_their_columns(name: str) -> None:
    _, machine, _, tables = study(name).published()
    assert machine
    for table in tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows.values())


def test_published_figures_agree_with_each_other() -> None:
    tables = {table.id: table for table in study("art").published()[3]}
    for name, (mean, _) in tables["simple"].rows.items():
        batch = tables["concurrency"].rows[f"{name}, ms"][0]
        assert float(mean) * 0.2 == pytest.approx(float(batch), rel=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_every_corrected_scenario_can_be_planned(name: str) -> None:
    scenario = parse(name, study(name).scenario(), ENTRANTS)
    mechanisms = {planned.cell.mechanism for planned in scenario.planned}
    assert any(mechanism.startswith("nearcall") for mechanism in mechanisms)
    assert scenario.baseline in mechanisms


@pytest.mark.parametrize("name", ["art", "rpyc-http", "grpc-burst", "rmr"])
def test_the_published_method_can_be_repeated(name: str) -> None:
    chosen = study(name)
    findings = replicate(chosen, 0.001, lambda line: None)
    columns = {table.id: table.columns for table in chosen.published()[3]}
    columns |= {table: names for table, (_, names) in findings.further.items()}
    assert findings.tables
    for table, rows in findings.tables.items():
        for values in rows.values():
            assert len(values) == len(columns[table])
    # What needs an environment of its own says how to get it.
    absent = ("not installed", "nearcall-lab install", "on the PATH", "protoc is missing", "make rmr")
    assert not {row: why for row, why in findings.problems.items() if not any(words in why for words in absent)}


FULL = """
import multiprocessing, os, signal
from concurrent.futures import ThreadPoolExecutor, wait
from nearcall_lab.studies.rmr.by_messaging import by_zmq
with by_zmq("turns", 2) as (send_all, ask), ThreadPoolExecutor(1) as pool:
    stopped = multiprocessing.active_children()[0].pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        send_all(bytes(1_000), 5_000)  # what the one has no room for goes to the other, and so would its question
        asked = pool.submit(ask)
        assert not wait((asked,), 0.2).done
    finally:
        os.kill(stopped, signal.SIGCONT)
    print(*(count for count, _ in asked.result(30)))
"""


def test_a_receiver_whose_queue_is_full_is_asked_too() -> None:
    """In a program of its own: multiprocessing keeps a process beside whoever starts others."""
    pytest.importorskip("zmq")
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    had = [int(count) for count in done.stdout.split()]
    assert len(had) == 2
    assert sum(had) == 5_000
    assert all(had)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_expected_to_end_soon(name: str) -> None:
    chosen = study(name)
    scenario = parse(name, chosen.scenario(), ENTRANTS)
    everything = replace(scenario, planned=tuple(Planned(p.cell, p.entrant) for p in scenario.planned))  # all installed
    # The one has every client at every server, the other sixteen mechanisms at five rates.
    most_min = {"grpc-burst": (9, 25), "rmr": (6, 12)}.get(name, (3, 15))
    assert 10 < QUICK.expected_s(chosen, everything) < 60 * most_min[0]
    assert QUICK.expected_s(chosen, everything) < USUAL.expected_s(chosen, everything) < 60 * most_min[1]


def measured(planned: Planned, value: float | None) -> Summary:
    """A cell as if it had been measured."""
    mechanism = planned.entrant.mechanism
    result = CellResult(
        cell=planned.cell, digest="", status="ok", problem=planned.problem, label=mechanism.label,
        family=mechanism.family, version="", settings="", tuned=False, typed="", busy_polls=False,
    )  # fmt: skip
    return Summary(result, metric_of(planned.cell), 1, [], value, None, None)


def test_rows_are_ordered_the_fastest_first_and_the_floor_last() -> None:
    text = """
        title = "three"
        [run]
        launches = 1
        [[cells]]
        mechanisms = ["noop", "raw-unix", "raw-tcp", "raw-pipe"]
        size = 15
    """
    values = {"noop": 1.0, "raw-unix": 30.0, "raw-tcp": 20.0, "raw-pipe": None}
    found = [measured(each, values[each.cell.mechanism]) for each in parse("three", text, ENTRANTS).planned]
    table = Summaries(found).table("t", "t", {"15 B": {"size": 15}}, lambda summary: summary.value)
    labels = {entrant.mechanism.name: entrant.mechanism.label for entrant in ENTRANTS}
    assert list(table.rows) == [labels[name] for name in ("raw-tcp", "raw-unix", "raw-pipe", "noop")]
    assert table.rows[labels["raw-pipe"]] == ["no launch was recorded"]


def test_a_second_host_has_tables_of_its_own() -> None:
    chosen, box = study("rpyc-http"), "ssh://me@box"
    alone = parse("rpyc-http", chosen.scenario(), ENTRANTS).only(["rpyc-tcp", "noop"])
    both = alone.also_at(box)
    assert len(both.planned) == 2 * len(alone.planned)
    assert both.settings.limit_s == 3 * alone.settings.limit_s
    problems = {each.cell.mechanism: each.problem for each in both.planned if each.cell.host == box}
    assert problems["noop"] == "has its server in the client's process"
    found = Summaries([measured(each, 20.0 if each.cell.host else 10.0) for each in both.planned])
    assert chosen.elsewhere is not None
    tables = [*chosen.corrected(found.at("")), *chosen.elsewhere(found.at(box))]
    assert {table.id for table in chosen.published()[3]} <= {table.id for table in tables}
    assert {len(found.at(place).all) for place in ("", box)} == {len(alone.planned)}
    assert all(len(found.at(place).where(mechanism="rpyc-tcp", kind="connect")) == 1 for place in ("", box))


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResult, Path]:
    """A study whose time was over at once, and where it is stored; its own method is not repeated."""
    directory = tmp_path_factory.mktemp("cut-short") / "shm"
    options = Options(2, limit_s=0.001)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "replicate", lambda *arguments: Findings())
        return carry_out_study(_small(), directory, Console(quiet=True), options, 0.002), directory


def test_a_table_that_the_study_does_not_have_is_shown(cut_short: tuple[StudyResult, Path]) -> None:
    findings = Findings()
    findings.add("more", "What it does not ask", ["1 receiver"])
    findings.put("more", "fast", [1.5])
    result = msgspec.structs.replace(cut_short[0])
    fill_in(result, _small(), findings, read(cut_short[1]), {})
    assert result.corrected[-1].rows == {"fast": [1.5]}
    assert "## What it does not ask" in markdown(result)


def test_every_state_of_a_corrected_cell_has_its_word() -> None:
    def shown(mode: Mode, status: str, medians: list[float], **change: object) -> Value:
        cell = result("fast", medians, status, mode)
        for name, value in change.items():
            setattr(cell.launches[0], name, value)
        return shown_value(summarise(cell), spectrum if mode.kind == "open" else lambda s: s.throughput)

    rate = Mode(connections=2)
    assert shown(rate, "ok", [1e3] * 3) == 40.0
    failing: dict[str, object] = {"errors": {"AioRpcError CANCELLED": 30}}
    assert shown(rate, "ok", [1e3] * 3, **failing) == "40.0 (20.0% failed)"
    assert shown(rate, "overloaded", [1e3] * 3) == "40.0 (overloaded)"
    assert shown(rate, "failed", [1e3] * 3) == "40.0 (failed)"
    assert shown(Mode("open", rate=10), "overloaded", [1e3] * 3) == "overloaded"
    assert shown(Mode("open", rate=10), "ok", [1e3] * 3) == "999 ns / too few"
    for status in get_args(Status):
        for mode in (rate, Mode("open", rate=10)):
            assert shown(mode, status, []) == ("no launch was recorded" if status == "ok" else status)


def test_a_column_that_was_not_planned_says_so() -> None:
    found = Summaries([summarise(result("fast", [1e3] * 3))])
    table = found.table("t", "t", {"15 B": {"size": 15}, "9 B": {"size": 9}}, lambda s: s.value)
    assert table.rows == {"": [pytest.approx(1e3, rel=0.01), "not in the scenario"]}


def test_the_reader_of_the_bursts_sees_how_calls_failed() -> None:
    burst = Mode("burst", calls=10_000, outstanding=10_000)
    cell = result("grpc-aio-uvloop-tcp", [1e3] * 3, "overloaded", burst)
    cell.cell = msgspec.structs.replace(cell.cell, work=Work("wait", delay_s=0.1))
    for one in cell.launches:
        one.errors = {"AioRpcError CANCELLED": 24}
        # Three bursts after each other.
        one.phases = {"burst": latencies(np.full(3, 200_000_000))}
    tables = {table.id: table for table in study("grpc-burst").corrected(Summaries([summarise(cell)]))}
    assert tables["seconds"].rows[""][2] == "none: 37.5% failed", "who refuses calls has no time"
    assert tables["failed"].rows[""][2] == "37.5%: AioRpcError CANCELLED"
    assert tables["rate"].rows[""][2] == "none: 37.5% failed"
    findings = Findings()
    findings.check("errors", **{"grpcio, 100 calls, failed": 0.0, "grpcio, 10000 calls, failed": 3_756.0})
    findings.check("error kinds", **{"grpcio, 10000 calls, failed: AioRpcError CANCELLED": 3_756.0})
    findings.check("room", **{"with room": 0.0})
    flaw = next(flaw for flaw in study("grpc-burst").flaws if flaw.id == "failures")
    assert flaw.shown(findings, Summaries([])).numbers == {
        "grpcio, 10000 calls, failed": "3,756: AioRpcError CANCELLED",
        "with room": "0",
    }


def test_what_one_row_lacks_does_not_hide_the_others() -> None:
    assert rows_of(("a", "b"), lambda name: {name: {"b": "2"}[name]}) == {"b": "2"}


def _small() -> Study:
    """The shortest study, with two cells."""

    class Small(Study):
        def scenario(self) -> str:
            return """
                title = "two cells"
                baseline = "raw-unix"
                [run]
                launches = 1
                seconds = 0.05
                warmup_s = 0.0
                [[cells]]
                mechanisms = ["raw-unix", "noop"]
                size = 15
            """

    whole = study("shm")
    impossible = Flaw("impossible", "Nobody claims this.", "It cannot be shown.", lambda findings, cells: {}[0])
    return Small(whole.id, whole.package, whole.corrected, (*whole.flaws, impossible))


def test_a_study_from_beginning_to_end(tmp_path: Path) -> None:
    directory = tmp_path / "shm"
    options = Options(1, False, ("nearcall-lab", "study", "shm"))
    carry_out_study(_small(), directory, Console(quiet=True), options, 0.002)
    result = read_study(directory)
    assert {table.id for table in result.published} == {"latency", "throughput"}
    ours = {table.id: table for table in result.replicated}["latency"].rows
    assert all(isinstance(value, float) and value > 0 for value in ours["gRPC, UDS"])
    corrected = {table.id: table for table in result.corrected}["latency"].rows
    assert set(corrected) == {"raw socket, UDS", "no-op in process"}
    flaws = {flaw.id: flaw for flaw in result.flaws}
    assert set(flaws["one-thread"].numbers) == {
        "gRPC, UDS, 15 B, one server thread",
        "ten server threads",
        "two clients at once, one server thread",
        "two clients at once, ten server threads",
    }
    assert {table.columns[0] for table in result.corrected} == {"transport"}
    text = markdown(result)
    assert "| as published | 15 B | 1 KB | 10 KB | 60 KB |" in text
    assert "| shm-rpc-bridge | 55.1 | 69.8 | 194 | 869 |" in text
    # A flaw that this run could not show says so instead of showing nothing.
    assert not flaws["impossible"].numbers
    assert "not shown by this run" in text


def test_a_study_that_ended_early_says_so_first(cut_short: tuple[StudyResult, Path]) -> None:
    result, _ = cut_short
    assert result.ended_early.startswith("time limit of 0.001 s reached after ")
    for text in (markdown(result), str(section([result]))):
        begin = text.index(ended_early(result))
        assert begin < text.index("as published")


def _wait_until_dead(pid: int) -> None:
    """A process that was killed closes its files before the kernel calls it dead."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} lives on")


def _replicated_by(directory: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Study:
    """The shortest study, whose replica is this program."""
    package = directory / "made_up_study"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "replica.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    return replace(_small(), package=package.name)


def test_a_replica_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = _replicated_by(
        tmp_path,
        monkeypatch,
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "from nearcall_lab.studies.replica import say\n"
        "say(f'begun {child.pid}')\n"
        "time.sleep(600)\n",
    )
    told: list[str] = []
    with pytest.raises(ReplicaFailed, match=r"longer than 3 s; its last word was: begun \d+"):
        replicate(study, 1.0, told.append, limit_s=3)
    child = int(told[0].split()[1])
    # Not even the child of the replica's process is left.
    _wait_until_dead(child)


def test_a_row_that_hangs_does_not_cost_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = _replicated_by(
        tmp_path,
        monkeypatch,
        "import time\n"
        "from nearcall_lab.studies.replica import main\n"
        "def run(findings, scale):\n"
        "    findings.attempt('quick', lambda: findings.put('t', 'quick', [1.0]))\n"
        "    findings.attempt('slow', lambda: time.sleep(600))\n"
        "main(run)\n",
    )
    findings = replicate(study, 1.0, lambda line: None, limit_s=3)
    assert findings.tables == {"t": {"quick": [1.0]}}
    assert findings.problems == {
        "slow": "was under way when the study's own method took longer than 3 s, and was ended"
    }


def test_a_server_that_outlives_its_replica_is_ended_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _replicated_by(
        tmp_path,
        monkeypatch,
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"  # with our standard error
        "from nearcall_lab.studies.replica import say\n"
        "say(child.pid)\n"
        "open(sys.argv[2], 'w').write('{}')\n",
    )
    told: list[str] = []
    replicate(study, 1.0, told.append, limit_s=60)
    _wait_until_dead(int(told[0]))


def test_what_peers_write_is_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = _replicated_by(
        tmp_path,
        monkeypatch,
        "import sys\n"
        "from nearcall_lab.studies.replica import say\n"
        "say('first row')\n"
        "print('Traceback (most recent call last):\\nOSError: a peer is unwell', file=sys.stderr, flush=True)\n"
        "print('half a line, ', end='', file=sys.stderr, flush=True)\n"
        "say('second row')\n"
        "open(sys.argv[2], 'w').write('{}')\n",
    )
    told: list[str] = []
    replicate(study, 1.0, told.append, limit_s=60)
    assert told == ["first row", "second row"]


def test_a_replica_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = _replicated_by(tmp_path, monkeypatch, "raise SystemExit('no luck today')\n")
    with pytest.raises(ReplicaFailed, match="ended with status 1: no luck today"):
        replicate(study, 1.0, lambda line: None)


def test_what_others_do_better_stands_in_a_table_of_its_own() -> None:
    fast, ours, floor = (
        summarise(result(name, [ns] * 3)) for name, ns in (("fast", 1e3), ("ours", 2e3), ("floor", 1.0))
    )
    for summary, family in ((fast, "rpc"), (ours, "nearcall"), (floor, "floor")):
        summary.result.family, summary.result.label = family, summary.result.cell.mechanism
    assert others_ahead(Summaries([fast, ours, floor])).rows == {"15 B echo": ["fast", "999 ns", "ours", "2.00 µs"]}
    assert others_ahead(Summaries([ours, floor])).rows == {}
