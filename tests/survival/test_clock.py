"""The clock on the wall jumps by hours, back and forth, in client and server: nothing that waits cares."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ..e2e.process import run_program

PROGRAM = """
import sys, threading, time
import nearcall
from tests.survival.services import LARGE, SMALL, Target

# The clock does jump here: within a second it is seen hours ahead and hours behind.
seen = set()
end = time.monotonic() + 20
while len(seen) < 2 and time.monotonic() < end:
    seen.add(round((time.time() - float(sys.argv[2])) / 3600))
assert seen == {5, -7}, seen

def took(low, high, call, error=None):
    begun = time.monotonic()
    try:
        call()
        assert error is None
    except Exception as caught:
        assert error is not None and isinstance(caught, error), repr(caught)
    spent = time.monotonic() - begun
    assert low <= spent < high, (low, spent, high)

LATE = nearcall.DeadlineExceeded
server = nearcall.Server(Target(), sys.argv[1], handshake_timeout=0.5).start()
client = nearcall.connect(server.urls[0], Target, timeout=30)
target = client.service

def timed(seconds, call):
    with nearcall.timeout(seconds):
        call()

for _ in range(200):
    timed(5, lambda: target.echo(SMALL))
    timed(5, lambda: target.make(100_000))
took(0.3, 20, lambda: timed(0.3, lambda: target.nap(1.0)), LATE)
took(0.3, 20, lambda: target.nap(0.3))
numbers = target.endless("clock")
assert [next(numbers) for _ in range(10_000)] == list(range(10_000))
numbers.close()

# Somebody who connects and says nothing is turned away after the time for that, not before and not never.
import socket
if sys.argv[1].startswith("tcp"):
    silent = socket.create_connection(("127.0.0.1", int(server.urls[0].rpartition(":")[2])))
    silent.settimeout(20)
    took(0.4, 19, lambda: silent.recv(1))
    silent.close()

# stop(grace) waits for what is under way, and no longer.
outcomes = []
caller = threading.Thread(target=lambda: outcomes.append(target.noted_nap("grace", 0.5)))
caller.start()
with nearcall.connect(server.urls[0], Target) as other:
    while not other.has_begun("grace"):
        pass
took(0.0, 14, lambda: server.stop(grace=15))
caller.join(20)
assert outcomes == [None]

# A call that waits for a server waits as long as it may.
client.close()
took(0.3, 20, lambda: nearcall.connect(sys.argv[1], Target, wait_for_ready=True, handshake_timeout=0.4),
    nearcall.RpcError)
print("fine")
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: there is no cc")
    library = tmp_path_factory.mktemp("shim") / "clock_shim.so"
    source = Path(__file__).with_name("clock_shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source], check=True)
    return library


def test_a_clock_that_jumps(shim: Path, new_url: str) -> None:
    assert run_program(PROGRAM, new_url, str(time.time()), LD_PRELOAD=str(shim)) == ("fine\n", "", 0)
