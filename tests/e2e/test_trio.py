"""Programs of trio: threads wait for the calls, or an event loop of asyncio does that runs in trio."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(importlib.util.find_spec("trio_asyncio") is None, reason="there is no trio-asyncio")
def test_threads_wait_and_a_loop_in_trio_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.trio_program"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert len(done.stdout.split()) == 3
