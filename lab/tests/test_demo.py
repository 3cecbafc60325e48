"""The demo from end to end, small: its files, its failures, Ctrl-C and a killed parent."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from made_up import Lab, started
from nearcall_lab.cli import main
from nearcall_lab.demo.results import Cell, Report, Row, report_of
from nearcall_lab.demo.terminal import print_report
from nearcall_lab.engine.run import Engine
from nearcall_lab.registry import discover
from nearcall_lab.results.store import read
from nearcall_lab.scenario.load import load

DEMO = """
title = "Demo"
baseline = "slow"
[run]
launches = 4
cells_per_launch = "all"
[[cells]]
mechanisms = ["fast", "slow", "on-a-loop", "absent"]
size = [15, "1 KB"]
[[cells]]
mechanisms = ["fast", "slow"]
operation = "quote"
"""


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Of a made-up run: `on-a-loop` is the floor, and `fast` fails at 1 KB."""
    lab = Lab(on_a_loop=100.0)
    lab.failing["fast, 1 KB echo"] = "[bold]server[/] ended unexpectedly"
    run, planned = started(tmp_path / "run", DEMO)
    run.info.floor = "on-a-loop"
    with run:
        Engine(run, planned, lab.fresh_processes, lambda progress: None).go()
    return report_of(read(tmp_path / "run"))


def _row(report: Report, name: str) -> Row:
    row = report.row(name)
    assert row is not None
    return row


def test_one_row_for_each_mechanism_and_one_column_for_each_work(report: Report) -> None:
    assert report.workloads == {"15 B echo": "15 B", "1 KB echo": "1 KB", "dataclass": "dataclass"}
    assert [row.name for row in report.rows] == ["fast", "slow", "absent", "on-a-loop"]
    assert (report.baseline, report.floor, report.launches) == ("slow", "on-a-loop", 4)
    fast, slow = (_row(report, name).cells["15 B echo"] for name in ("fast", "slow"))
    assert fast.n == slow.n == 4 * 40
    assert fast.p50_ns == pytest.approx(1000, rel=0.05)
    assert fast.p99_ns is None
    assert fast.times_faster is not None
    assert fast.times_faster.value == pytest.approx(3, rel=0.05)
    assert fast.times_faster.pairs == 4
    assert fast.times_floor == pytest.approx(10, rel=0.1)
    assert slow.times_faster is None
    assert report.near_floor() == ["Fast (15 B 10%)"]


def test_what_has_no_numbers_says_why(report: Report) -> None:
    fast = _row(report, "fast")
    assert fast.problem == ""
    assert fast.cells["1 KB echo"].problem == "failed: [bold]server[/] ended unexpectedly"
    assert fast.cells["1 KB echo"].p50_ns is None
    assert _row(report, "absent").problem == "unsupported: not installed: no_such_peer"
    assert _row(report, "on-a-loop").cells["dataclass"] == Cell(), "it was not asked for"
    assert "1 of 10 cells failed" in report.red_flags


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_fits_its_terminal(report: Report, width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    print_report(console, report)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    for expected in (
        "Absent: unsupported: not installed: no_such_peer",
        "[bold]server[/]",
        "baseline",
        "× floor, n 160",
    ):
        assert expected in out
    assert all(len(line) <= width for line in out.splitlines() if line.startswith(("│", "┃")))


def test_the_preset_shows_one_or_two_rows_of_each_and_shares_processes() -> None:
    scenario = load("demo", discover())
    assert scenario.settings.cells_per_launch == "all"
    names = {planned.entrant.mechanism.name for planned in scenario.planned}
    assert {"noop", "grpcio-tcp", "nearcall-shm", "rpyc", "http-granian"} <= names
    assert {"grpcio-uds-tuned", "rpyc-tuned", "http-uvicorn-tuned"} <= names, "rivals at their best"
    assert not {"rpyc-tcp", "http-uvicorn", "raw-pipe", "grpc-framework-json"} & names
    assert all(planned.entrant.mechanism.style == "threads" for planned in scenario.planned)


@pytest.mark.parametrize("preset", ["demo", "quick"])
def test_the_presets_show_where_spinning_gains_less(preset: str) -> None:
    """nearcall looks for replies where raw sockets sleep: rows and cells that tell this from the transport."""
    planned = [p for p in load(preset, discover()).planned if not p.problem]
    under = {
        "few calls": {p.cell.mechanism for p in planned if p.cell.mode.kind == "open"},
        "four clients": {p.cell.mechanism for p in planned if p.cell.mode.client_processes == 4},
        "busy CPUs": {p.cell.mechanism for p in planned if p.cell.placement == "busy"},
    }
    for condition, mechanisms in under.items():
        wanted = {
            "nearcall-shm",
            "nearcall-shm-sleeping",
            "nearcall-unix",
            "raw-unix",
            "raw-unix-polling",
            "grpcio-tcp",
        }
        assert wanted <= mechanisms, condition
    assert "http-uvicorn-tuned" in {p.cell.mechanism for p in planned}


def test_command_writes_the_table_and_a_page_that_needs_no_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["demo", "--launches", "1", "--only", "noop,raw-*", "--out", str(out)]) == 0
    report = msgspec.json.decode((out / "demo.json").read_bytes(), type=Report)
    assert {row.name for row in report.rows} == {"noop", "raw-unix", "raw-unix-polling", "raw-tcp"}
    page = (out / "demo.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#|data:)|url\(|@import", page)
    assert "raw socket, UDS" in page
    assert "raw socket, UDS" in capsys.readouterr().out
    (run,) = (out / "runs").iterdir()
    assert report.run == str(run)
    assert main(["report", str(run)]) == 0


def test_unknown_mechanism_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--only", "carrier-pigeon"]) == 2
    assert '"carrier-pigeon" matches none of its mechanisms' in capsys.readouterr().err


def _descendants(pid: int) -> list[int]:
    try:
        direct = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return direct + [grand for child in direct for grand in _descendants(child)]


def _start_demo(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "nearcall_lab", "demo", "--only", "raw-unix,raw-tcp,noop", "--out", str(out)]
    return subprocess.Popen([*command, "--launches", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _await_workers(process: subprocess.Popen[bytes]) -> list[int]:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if len(found := _descendants(process.pid)) >= 2:
            return found
        time.sleep(0.01)
    raise AssertionError("no workers were started")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 5
    while any(_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(_alive(pid) for pid in pids)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    process = _start_demo(tmp_path)
    workers = _await_workers(process)
    end = time.monotonic() + 60
    # One that was disturbed, as by other tests, is put aside and made again.
    while time.monotonic() < end and not any(
        msgspec.json.decode(path.read_bytes())["launches"] for path in tmp_path.glob("runs/*/cells/*.json")
    ):
        time.sleep(0.02)
    workers += _descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    report = msgspec.json.decode((tmp_path / "demo.json").read_bytes(), type=Report)
    assert "the run ended early: interrupted" in report.red_flags
    assert any(cell.n for row in report.rows for cell in row.cells.values())
    _wait_until_gone(workers)


def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    process = _start_demo(tmp_path)
    workers = _await_workers(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _wait_until_gone(workers)
