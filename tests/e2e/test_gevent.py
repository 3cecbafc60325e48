"""Programs of gevent: calls leave other greenlets running. gevent changes a whole program, so each is a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nearcall

from .conftest import TRANSPORTS
from .gates import Gates, Telling

pytest.importorskip("gevent")

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests/e2e/gevent_program.py"


@pytest.mark.parametrize(("transport", "threads"), [("shm", False), ("tcp", False), ("unix", True)])
def test_other_greenlets_run_while_one_waits(transport: str, threads: bool, key: str, runtime_dir: Path) -> None:
    urls = [TRANSPORTS[transport](f"g{key}-{number}", runtime_dir) for number in range(2)]
    gates = Gates()
    with nearcall.Server(gates, Telling(), urls[0], max_concurrency=64):
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.gevent_program", *urls, *(["threads"] if threads else [])],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        gates._stop()
    passed = re.findall(r"^\w+$", done.stdout, re.MULTILINE)
    assert (done.returncode, done.stderr) == (0, ""), f"after {passed}: {done.stderr}"
    written = re.findall(r"^ *@check\n *def (\w+)", PROGRAM.read_text(), re.MULTILINE)
    assert len(written) - len(passed) == 1  # of the last two, one is for each kind of program
