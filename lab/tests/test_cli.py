"""The commands as a user has them, with real processes where a run is part of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from made_up import ENTRANTS, TWO, Lab, started
from nearcall_lab.cli import main
from nearcall_lab.cli.command import find_commands
from nearcall_lab.cli.runs import latest
from nearcall_lab.engine.run import Engine
from nearcall_lab.results.store import read

SMALL = """
title = "Small"
baseline = "raw-unix"
[run]
launches = 3
warmup_s = 0
[[cells]]
mechanisms = ["raw-unix", "noop", "nearcall-unix"]
size = 15
calls = 500
"""


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _made_up_run(directory: str, text: str = TWO, noise: float = 0.01, **medians_ns: float) -> None:
    run, planned = started(Path(directory), text)
    lab = Lab(**medians_ns)
    lab.noise = noise
    with run:
        Engine(run, planned, lab.fresh_processes, lambda progress: None).go()


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    names = [command.NAME for command in find_commands()]
    assert {"list", "run", "compare", "reproduce", "floor", "doctor", "report", "demo", "runtime"} <= set(names)
    for name in names:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
    assert "exit status" in capsys.readouterr().out


def test_a_command_that_is_not_there_is_named_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in (("runtme", ": did you mean runtime?"), ("xyz", "")):
        with pytest.raises(SystemExit) as ended:
            main([typed])
        assert ended.value.code == 2
        says = f"nearcall-lab: there is no command '{typed}'{meant}; nearcall-lab --help shows what it takes\n"
        assert capsys.readouterr().err == says


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "noop" in {row["name"] for row in found["mechanisms"]}
    assert "quick" in {row["name"] for row in found["scenarios"]}
    assert main(["list", "scenarios"]) == 0
    out = capsys.readouterr().out
    assert "open-loop" in out
    assert "noop" not in out


def test_run_report_compare_reproduce(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    assert main(["run", "small.toml"]) == 0
    out = capsys.readouterr().out
    assert "3 cells of 3 mechanisms, 3 launches each" in out
    assert "against raw-unix" in out
    (directory,) = (tmp_path / "out" / "runs").iterdir()
    recorded = read(directory)
    assert [len(cell.launches) for cell in recorded.cells] == [3, 3, 3]
    assert all(launch.response and launch.canary_ns for cell in recorded.cells for launch in cell.launches)
    assert recorded.info.command[0] == "nearcall-lab"
    assert main(["report"]) == 0
    assert "no-op in process (floor)" in capsys.readouterr().out
    assert main(["compare", "raw-unix", "noop"]) == 0  # a function call is faster than a socket anywhere
    assert "faster at 15 B echo" in capsys.readouterr().out
    assert main(["compare", "noop", "raw-unix", "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    assert verdict["outcome"] == "slower"
    assert verdict["paired"] is True
    digest = recorded.cells[1].digest
    assert main(["reproduce", digest[:6]]) in (0, 1, 3)  # which of them, is the machine's affair
    out = capsys.readouterr().out
    assert "now against then: " in out
    assert latest() == directory.relative_to(tmp_path)  # the last run is not the one that only checks another
    assert main(["run", "--resume", str(directory)]) == 0


def test_plan_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quick", "--plan", "--only", "noop"]) == 0
    assert "3 cells, 4 launches each, about" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_plan_keeps_its_columns_apart(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["grpc-framework-dataclass", "grpc-aio-uvloop-tcp", "noop"]
    assert main(["run", "burst", "--plan", "--only", ",".join(names)]) == 0
    head, *lines, _ = capsys.readouterr().out.splitlines()
    at = [head.index(column) for column in ("cell", "mechanism", "work")]
    assert {line[at[1] : at[2]].strip() for line in lines} == set(names)
    for line in lines:
        assert all(line[column - 1] == " " != line[column] for column in at[1:])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "run takes a scenario"),
        (["run", "quik"], 'no scenario "quik"; did you mean "quick"'),
        (["run", "quick", "--only", "nope"], '"nope" matches none of its mechanisms'),
        (["run", "--resume", "nowhere", "--plan"], "--resume goes on with a run as planned"),
        (["run", "--resume", "nowhere"], "nowhere/run.json: No such file or directory"),
        (["run", "quick", "--resume", "x"], "--resume goes on with a run as planned"),
        (["compare", "a"], "compare takes two runs or two mechanisms"),
        (["compare", "a", "b"], "there is no run in out/runs yet"),
        (["compare", "--aa", "nope"], "nope: no such mechanism"),
        (["compare", "--aa", "noop", "--pool", "3"], "--pool must be at least 10"),
        (["reproduce", ""], "made of the digits 0 to 9 and a to f, not ''"),
        (["reproduce", "abcd", "--run", "nowhere"], "nowhere: No such file or directory"),
        (["compare", ".", "nowhere"], ". is a run, and nowhere is not there"),
        (["reproduce", "abcd"], "no cell abcd in out/runs"),
        (["report"], "there is no run in out/runs yet"),
        (["demo", "--only", "nop"], '"nop" matches none of its mechanisms; did you mean "noop"?'),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "NEARCALL_LAB_ADAPTERS names 'mine.py', but there is no such file or directory"),
        ("MECHANISM = 1", r"mine\.py says no MECHANISMS: write MECHANISMS = \(Mechanism"),
        (
            "from nearcall_lab.contract import Mechanism\nMECHANISMS = (Mechanism('raw-unix', 'x', 'rpc'),)",
            "two adapters call a mechanism 'raw-unix': .*mine.py",
        ),
    ],
    ids=["missing", "empty", "twice"],
)
def test_an_adapter_that_cannot_be_used(
    text: str | None, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path("mine.py").write_text(text)
    monkeypatch.setenv("NEARCALL_LAB_ADAPTERS", "mine.py")
    status = main(["list", "mechanisms"])
    told = capsys.readouterr()
    assert re.search(message, " ".join((told.out + told.err).split()))
    assert (status, len(told.err.splitlines())) in ((2, 1), (0, 0))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nearcall-lab: the following arguments are required: COMMAND; nearcall-lab --help shows what it takes"),
        (["run", "quick", "--launches", "0"], "must be above zero, not 0; nearcall-lab run --help shows"),
        (["run", "quick", "--only", " , "], "argument --only: takes names separated by commas, and there is none"),
        (["compare", "a", "b", "--confidence", "high"], "takes a percentage such as 2 or 2%, not high"),
    ],
)
def test_arguments_are_checked_and_the_error_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_study_does_not_begin_where_a_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own method takes minutes: that its directory is taken is seen before."""
    _made_up_run("run")

    def begun(*arguments: object) -> None:
        raise AssertionError("the study has begun")

    monkeypatch.setattr("nearcall_lab.studies.run.replicate", begun)
    assert main(["study", "shm", "--out", "run"]) == 2
    assert "run holds a run already; name another --out" in capsys.readouterr().err


def test_a_broken_result_says_which_file_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    _made_up_run("run")
    cell = next(Path("run/cells").glob("*.json"))
    cell.write_bytes(cell.read_bytes()[:300])
    for command in (["report", "run"], ["run", "--resume", "run"], ["reproduce", "a", "--run", "run"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"nearcall-lab: {cell}: broken: ")
        assert "restore it from a copy, or measure again" in error
        assert error.count("\n") == 1


def test_compare_is_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    _made_up_run("before")
    _made_up_run("after", fast=1100.0)
    assert main(["compare", "before", "before/combined.json"]) == 0
    assert main(["compare", "before", "after"]) == 1
    out = capsys.readouterr().out
    assert "fast: 1.1" in out
    assert "slower at 15 B echo" in out
    assert "not paired" in out
    assert main(["compare", "after", "before"]) == 0
    assert main(["compare", "before", "after", "--min-effect", "20%", "--margin", "20%"]) == 0
    assert main(["compare", "before", "after", "--min-effect", "20%"]) == 2
    assert "--margin must not be below --min-effect" in capsys.readouterr().err
    _made_up_run("other", text='title = "x"\n[[cells]]\nmechanisms = ["fast"]\nsize = 99')
    assert main(["compare", "before", "other"]) == 2
    assert "no cell in common" in capsys.readouterr().err
    (Path("after") / "run.json").write_text("{")
    assert main(["compare", "before", "after"]) == 2


def test_a_gate_does_not_pass_what_cannot_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    for directory in ("before", "after"):
        _made_up_run(directory, noise=0.1)
    assert main(["compare", "before", "after"]) == 3
    out = capsys.readouterr().out
    assert "fast: cannot tell at 15 B echo: " in out
    assert "otherwise the launches cannot tell" in out


def test_reproduce_says_when_it_cannot_tell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nearcall_lab import registry
    from nearcall_lab.engine import launch

    _made_up_run("run")
    digest = read(Path("run")).cells[0].digest
    monkeypatch.setattr(registry, "discover", lambda: ENTRANTS)
    for noise, median, status, said in (
        (0.3, 1000.0, 3, "cannot tell at"),
        (0.001, 1000.0, 0, "the same within 5 % at"),
        (0.001, 1500.0, 1, "slower at"),
    ):
        lab = Lab(fast=median)
        lab.noise = noise
        monkeypatch.setattr(launch, "fresh_processes", lab.fresh_processes)
        assert main(["reproduce", digest, "--run", "run"]) == status
        assert f"now against then: {'1.' if status == 1 else said}" in capsys.readouterr().out


def test_compare_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'title = "x"\n[run]\nlaunches = 2\n[[cells]]\nmechanisms = ["fast"]\nsize = 15'
    _made_up_run("before", text)
    _made_up_run("after", text)
    assert main(["compare", "before", "after"]) == 2
    assert "no verdict at 15 B echo: an interval needs three launches" in capsys.readouterr().out


def test_failures_are_shown_with_their_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, planned = started(Path("run"), TWO)
    lab = Lab()
    lab.failing["slow"] = "server: no luck"
    with run:
        Engine(run, planned, lab.fresh_processes, lambda progress: None).go()
    assert main(["report", "run"]) == 0
    out = capsys.readouterr().out
    assert "slow: failed: server: no luck (log: logs/" in out


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nearcall_lab", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_is_done(tmp_path: Path, kind: signal.Signals) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    process = _start("run", "small.toml", "--launches", "1000", "--out", "run")
    end = time.monotonic() + 30
    cells = tmp_path / "run" / "cells"
    while time.monotonic() < end and not any('"wall_s"' in path.read_text() for path in cells.glob("*.json")):
        time.sleep(0.02)
    process.send_signal(kind)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert "go on with: nearcall-lab run --resume run" in out
    recorded = read(tmp_path / "run")
    assert recorded.info.ended_early == "interrupted"
    assert sum(len(cell.launches) + len(cell.disturbed) for cell in recorded.cells) >= 1
    assert main(["report", "run"]) == 0


def test_a_study_that_is_interrupted_before_its_tables_has_a_page_that_says_so(tmp_path: Path) -> None:
    process = _start("study", "shm", "--quick", "--out", "run")
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("as published: "), first
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    said = "this study ended early: interrupted while the study's own method was repeated"
    assert out.splitlines()[-1].startswith(said)
    assert (tmp_path / "run" / "study.md").read_text().splitlines()[2].startswith(f"**Caution:** {said}")
    assert read(tmp_path / "run").info.ended_early == "interrupted"
    assert main(["report", "--study", "run", "--out", "run.html"]) == 0
    page = (tmp_path / "run.html").read_text()
    assert page.index("This run is not complete") < page.index('id="machine"')


def test_a_check_that_is_interrupted_says_so() -> None:
    process = _start("check", "raw-unix", "--quick")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("raw-unix ")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert error.splitlines()[-1] == "nearcall-lab: interrupted"


def test_the_lab_against_itself_with_a_made_up_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nearcall_lab.cli import runs
    from nearcall_lab.engine import launch

    lab = Lab(**{"noop": 1000.0, "noop+0ns": 1020.0, "noop+50ns": 1071.0})
    monkeypatch.setattr(launch, "fresh_processes", lab.fresh_processes)
    assert main(["compare", "--aa", "noop"]) == 0
    out = capsys.readouterr().out
    assert "noop with itself: " in out
    for launches in (4, 6, 10):
        assert f"comparisons of {launches} against {launches} launches find no difference" in out
    assert "noop slowed down by 50 ns, 5.0%: 100 of 100 comparisons of 10 against 10 launches find slower" in out
    assert "drawn from a common pool, so not independent" in out
    assert len(runs.recorded_runs(runs.AGAIN)) == 2
    assert runs.recorded_runs() == []  # the last run is not one of these
    lab.noise = 0.2  # a machine on which nothing can be told
    assert main(["compare", "--aa", "noop", "--launches", "4,10"]) == 3
    out = capsys.readouterr().out
    assert "10 launches are too few on this machine to find a slowdown of 5.0%" in out
    assert re.search(r"About \d+ launches would", out)


def test_the_lab_against_itself_does_not_trust_a_machine_that_shows_what_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches that stay fast or slow for a long time, in turns of two: neighbours always differ by the same."""
    from nearcall_lab.analysis import same

    real = same.speed_of
    monkeypatch.setattr(same, "speed_of", lambda ours, theirs, *rest: real([1.1 * v for v in ours], theirs, *rest))
    from nearcall_lab.engine import launch

    monkeypatch.setattr(launch, "fresh_processes", Lab(noop=1000.0).fresh_processes)
    assert main(["compare", "--aa", "noop"]) == 1
    assert "verdicts from this machine cannot be trusted" in capsys.readouterr().out


def test_a_slowed_mechanism_is_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The wrapper with real processes: 100 µs on top of a function call cannot be missed."""
    from nearcall_lab.adapters import slowed
    from nearcall_lab.engine.launch import measure
    from nearcall_lab.registry import discover
    from nearcall_lab.scenario.cell import Cell, Mode, Work

    entrant = next(e for e in discover() if e.mechanism.name == "noop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(slowed.VARIABLE, slowed.setting(entrant, (0, 100_000)))
        other = slowed.wrapped(entrant, 100_000)
        cell = Cell(other.mechanism.name, Work(size=15), Mode(seconds=0.05, warmup_s=0))
        found = measure(cell, other, 0, 0)
    assert found.response is not None
    assert found.response.min >= 50_000


@pytest.mark.parametrize("width", [80, 120, 190])
def test_a_narrow_terminal_loses_columns_and_no_numbers(width: int) -> None:
    import io

    from rich.console import Console

    from nearcall_lab.report.terminal import print_run

    _made_up_run("run")
    console = Console(width=width, file=io.StringIO())
    print_run(console, read(Path("run")))
    out = console.file.getvalue()  # type: ignore[attr-defined]
    table = [line for line in out.splitlines() if line.startswith("│")]
    assert len(table) == 2
    for line, name, time_ in zip(table, ("Fast", "Slow"), (1.0, 3.0), strict=True):
        assert name in line
        shown = line.split("│")[2].split()
        assert shown[1] == "µs"
        assert float(shown[0]) == pytest.approx(time_, rel=0.05)
        assert "…" not in line
        assert len(line) <= width
    assert ("p99.9" in out) is (width > 100)


_TINY = """
set -e
mount -t tmpfs -o size=24k none "$1"
cd "$1"
"$2" -m nearcall_lab run "$3" --out run && exit 9
mount -o remount,size=10m "$1"
"$2" -m nearcall_lab run --resume run
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 24 KB, in a mount namespace of its own; then it grows, and the run goes on."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    scenario, place = tmp_path / "two.toml", tmp_path / "tiny"
    scenario.write_text(
        'title = "two"\n[run]\nlaunches = 4\nwarmup_s = 0.0\n'
        '[[cells]]\nmechanisms = ["raw-unix", "noop"]\nsize = 15\ncalls = 50\n'
    )
    place.mkdir()
    command = ["unshare", "-Urm", "sh", "-c", _TINY, "sh", str(place), sys.executable, str(scenario)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nearcall-lab: disk full: run/cells/" in done.stderr
    assert "raw socket, UDS" in done.stdout
