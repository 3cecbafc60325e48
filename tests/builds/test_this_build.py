"""The checks of ``make test-builds`` are right for this build alone: what they find lies between two builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = "plain,moved,values,anything,errors,deadlines,objects,topics,lent,statistics"


@pytest.mark.parametrize("transport", ["shm"])
def test_of_all_checks_those_that_are_quick(transport: str) -> None:
    command = [sys.executable, ROOT / "tools/try_builds.py", "this", "--transports", transport, "--checks", QUICK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{transport}: this calls this: 10 of 10 right" in done.stdout
