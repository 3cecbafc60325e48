"""A signal that tells a server to end may come at any instruction of the main thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import faulthandler
import importlib
import os
import signal
import sys

import nearcall
import nearcall.server.server as server

faulthandler.dump_traceback_later(30, exit=True)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if the tests run under nohup
importlib.import_module("nearcall.server.serve")._LOOK = 0.001
left = 0  # how many instructions until the signal
log = server.log
ended = []


def trace(frame, event, argument):
    global left
    frame.f_trace_opcodes = True
    if event == "opcode":
        left -= 1
        if left == 0:
            sys.settrace(None)
            signal.raise_signal(getattr(signal, sys.argv[1]))
    return trace


def log_and_trace(level, text, *arguments, **named):
    log(level, text, *arguments, **named)
    if text.startswith("serving at"):
        frame = sys._getframe()
        while frame is not None:
            frame.f_trace, frame.f_trace_opcodes = trace, True
            frame = frame.f_back
        sys.settrace(trace)


@nearcall.service
class Service:
    def nothing(self) -> None:
        pass


def lifespan(server):
    yield
    ended.append(1)


server.log = log_and_trace
for instruction in range(1, 201):
    left = instruction
    print(instruction, file=sys.stderr, flush=True)
    nearcall.serve(Service(), f"shm://signals-{os.getpid()}", lifespan=lifespan)
    assert len(ended) == instruction, "the lifespan has not ended"
print("ended")
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_at_any_instruction_ends_a_server_in_good_order(name: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, name], check=False, capture_output=True, text=True, timeout=60)
    assert run.stdout == "ended\n", run.stderr[-5000:]
    assert run.returncode == 0
