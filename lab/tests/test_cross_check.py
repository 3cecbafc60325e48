"""The cross-check with another program; that program is made up here, except where the real one is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nearcall_lab.cli import main
from nearcall_lab.cross_check.c_client import Both, Seen

pytestmark = pytest.mark.skipif(not shutil.which("python3"), reason="python3 is not on the PATH")
REAL = shutil.which("ghz")
COMMAND = ["cross-check", "ghz", "--rounds", "1", "--calls", "20"]


def _ghz(folder: Path, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ghz"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("says", "status", "shown"),
    [
        # No call of 10 ms takes 1 ms, or a minute.
        ('{"latencyDistribution": [{"percentage": 50, "latency": 1000000}]}', 1, "they do not agree within 15%"),
        ('{"latencyDistribution": [{"percentage": 50, "latency": 60000000000}]}', 1, "ghz 60.0 s"),
        ('{"errorDistribution": {"Unavailable": 3}}', 2, "ghz: calls failed: {'Unavailable': 3}"),
        ("Error: no such method", 2, "ghz did not run: Error: no such method"),
        ("{}", 2, "ghz did not run"),
    ],
)
def test_what_it_says_is_compared(
    says: str,
    status: int,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _ghz(tmp_path, says, monkeypatch)
    assert main(COMMAND) == status
    said = capsys.readouterr()
    assert shown in said.out + said.err


def test_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(COMMAND) == 2
    assert "go install github.com/bojand/ghz" in capsys.readouterr().err


@pytest.mark.skipif(REAL is None, reason="ghz is not installed")
def test_the_real_one_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMMAND) in (0, 1)  # whether they agree is no matter of a test on a busy machine
    assert "median of 1 p50s: lab " in capsys.readouterr().out


def test_a_client_in_c_sees_what_the_lab_sees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cross-check", "c", "--rounds", "1", "--calls", "50"]) in (0, 1)  # on a busy machine either
    said = capsys.readouterr().out
    assert "median of 15 B there and back" in said
    assert "1 servers, medians: the lab sees" in said


def test_without_a_compiler_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["cross-check", "c"]) == 2
    assert "there is no C compiler" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lab", "c", "unexplained"),
    [
        # (median, CPU time of the client) in ns
        ((60_000, 20_000), (50_000, 10_000), 0.0),
        ((60_000, 10_000), (50_000, 10_000), 0.2),
        ((55_000, 30_000), (50_000, 10_000), 0.0),
        ((40_000, 20_000), (50_000, 10_000), -0.2),
    ],
)
def test_only_the_client_s_own_cpu_time_explains_a_difference(
    lab: tuple[float, float], c: tuple[float, float], unexplained: float
) -> None:
    assert Both(Seen(*lab), Seen(*c)).unexplained == pytest.approx(unexplained)
