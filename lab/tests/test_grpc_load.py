"""gRPC servers under h2load; that program is made up here, except where the real one is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nearcall_lab.cli import main
from nearcall_lab.grpc_load.targets import CPU, RATE, TARGETS, judge

REAL = shutil.which("h2load")
COMMAND = ["grpc-load", "--rounds", "1", "--seconds", "0.1"]
SAID = """finished in 1.00s, 2000.00 req/s, 1.00MB/s
requests: 2000 total, 2000 started, 2000 done, {succeeded} succeeded, {failed} failed, 0 errored, 0 timeout
traffic: 1.00MB (1000000) total, 1.00KB (1000) headers (space savings 90.00%), 1.00KB ({data}) data
"""


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("google.protobuf")


def without_go(folder: Path, monkeypatch: pytest.MonkeyPatch, h2load: str | None) -> None:
    if h2load is not None:
        program = folder / "h2load"
        program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{h2load}\nEND\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_go(tmp_path, monkeypatch, None)
    assert main(COMMAND) == 2
    assert "apt install nghttp2-client" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (SAID.format(succeeded=1999, failed=1, data=100), "of 2000 calls 1999 were answered"),
        # gRPC's failures have HTTP's status 200: only the bytes tell.
        (SAID.format(succeeded=2000, failed=0, data=0), "of 2000 calls 2000 were answered, with 0 bytes"),
        ("no such host", "h2load did not run"),
    ],
)
def test_calls_that_were_not_answered_are_no_result(
    said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_go(tmp_path, monkeypatch, said)
    assert main([*COMMAND, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"nearcall-grpc: {why}" in shown
    assert "grpc-go: there is no go on the PATH" in shown
    assert "tonic: there is no cargo on the PATH" in shown
    assert shown.count("not measured") == len(TARGETS)
    assert json.loads((tmp_path / "grpc-load.json").read_text())["by_round"] == {}


def test_verdicts_go_by_the_same_rounds() -> None:
    values = {
        ("nearcall-grpc", RATE): {0: 1200.0, 1: 1300.0, 2: 9e9},
        ("grpcio-tcp", RATE): {0: 100.0, 1: 100.0},
        ("nearcall-grpc", CPU): {0: 10.0},
        ("grpc-go", CPU): {0: 5.0},
    }
    found = {verdict.target: verdict for verdict in judge(values)}
    assert [verdict.met for verdict in found.values()] == [True, None, None, False, None, None]
    assert found[str(TARGETS[0])].measured.startswith("12.5×")


@pytest.mark.skipif(REAL is None, reason="h2load is not installed")
def test_the_real_one_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h2load").symlink_to(str(REAL))
    without_go(tmp_path, monkeypatch, None)
    assert main([*COMMAND, "--out", str(tmp_path)]) == 0
    measured = json.loads((tmp_path / "grpc-load.json").read_text())["by_round"]
    assert measured[f"nearcall-grpc: {RATE}"]["0"] > 0, capsys.readouterr().out
