"""The demo from end to end, small: its files, its failures, Ctrl-C and a killed parent."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from nearcall_lab.cli import main
from nearcall_lab.demo.page import render
from nearcall_lab.demo.results import Report
from nearcall_lab.demo.run import DemoRun, Plan
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant, discover, entrants_of
from nearcall_lab.workloads import BY_KEY


def _report(names: tuple[str, ...], liars: tuple[str, ...] = (), rounds: int = 3) -> Report:
    known: dict[str, Entrant] = {e.mechanism.name: e for e in [*discover(), *entrants_of("liars")]}
    plan = Plan(rounds=rounds, slice_s=0.02, warm_s=0.0, workloads=(BY_KEY["echo-15"], BY_KEY["quote"]))
    run = DemoRun([known[name] for name in (*names, *liars)], choose(), plan, lambda progress: None)
    run.run()
    return run.report()


def test_failures_become_reasons_and_the_rest_goes_on() -> None:
    report = _report(("noop", "raw-unix"), ("wrong-content", "crashes-at-start"))
    assert report.rounds_done == 3
    assert report.rows[-1].name == "noop"
    good, liar, crash = (report.row(name) for name in ("raw-unix", "wrong-content", "crashes-at-start"))
    assert good is not None
    assert liar is not None
    assert crash is not None
    assert good.cells["echo-15"].launches == 3
    assert good.cells["echo-15"].times_floor is not None
    assert good.cells["echo-15"].times_floor > 1
    assert "byte 14 differs" in liar.cells["echo-15"].problem
    assert liar.cells["echo-15"].p50_ns is None
    assert liar.cells["quote"].n > 0
    assert "no luck today" in crash.problem
    page = render(report)
    assert "no luck today" in page
    assert "byte 14 differs" in page


def test_command_writes_json_and_a_page_that_needs_no_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        main(["demo", "--rounds", "1", "--slice-ms", "50", "--only", "noop,raw-unix,raw-tcp", "--out", str(out)]) == 0
    )
    report = msgspec.json.decode((out / "demo.json").read_bytes(), type=Report)
    assert {row.name for row in report.rows} == {"noop", "raw-unix", "raw-tcp"}
    page = (out / "demo.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", page)
    assert page.count("<figure>") == 7
    assert "raw socket, UDS" in capsys.readouterr().out


def test_unknown_mechanism_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--only", "carrier-pigeon"]) == 2
    assert "unknown mechanism 'carrier-pigeon'" in capsys.readouterr().err


def _descendants(pid: int) -> list[int]:
    try:
        direct = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return direct + [grand for child in direct for grand in _descendants(child)]


def _start_demo(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "nearcall_lab", "demo", "--only", "raw-unix,raw-tcp,noop", "--out", str(out)]
    return subprocess.Popen([*command, "--rounds", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


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
    time.sleep(4)
    workers += _descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    report = json.loads((tmp_path / "demo.json").read_text())
    assert report["ended_early"] == "interrupted"
    assert any(row["cells"]["echo-15"]["n"] > 0 for row in report["rows"])
    _wait_until_gone(workers)


def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    process = _start_demo(tmp_path)
    workers = _await_workers(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _wait_until_gone(workers)
