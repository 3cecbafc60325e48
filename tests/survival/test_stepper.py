"""The tracer that the tests of deaths rely on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ..e2e.process import ROOT

TRACE = """
import os, threading, time
from tests.survival.stepper import Stepper, is_possible

if (reason := is_possible()) is not None:
    raise SystemExit(f"no ptrace: {reason}")

def come_and_go():
    while True:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

for _ in range(20):
    child = os.fork()
    if child == 0:
        for _ in range(4):
            threading.Thread(target=come_and_go, daemon=True).start()
        time.sleep(30)
        os._exit(1)
    while len(os.listdir(f"/proc/{child}/task")) < 5:
        pass
    stepper = Stepper(child)
    outcome, _ = stepper.run(stepper.stops + 50)
    assert outcome == "killed", outcome
"""


def test_threads_may_come_and_go_while_they_are_seized() -> None:
    program = [sys.executable, "-c", TRACE]
    traced = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if traced.stderr.startswith("no ptrace"):
        pytest.skip(traced.stderr.strip())
    assert traced.returncode == 0, traced.stderr
