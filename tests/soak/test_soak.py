"""Everything at once, for a while: see driver.py. `make soak` runs it for minutes, the ordinary tests for seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from ..e2e.process import ROOT


def soak(seconds: float, clients: int, seed: int, capfd: pytest.CaptureFixture[str], live: bool) -> None:
    # Not pytest's own directory for temporary files: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="nc-soak-") as directory:
        command = [sys.executable, "-X", "faulthandler", "-W", "error::ResourceWarning", "-m", "tests.soak.driver"]
        command += [str(seconds), str(clients), str(seed), directory]
        said: list[str] = []
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as driver:
            assert driver.stdout is not None
            # Whatever hangs shows where: the driver, its clients or the server.
            watchdog = threading.Timer(seconds + (180 if live else 40), os.killpg, (driver.pid, signal.SIGABRT))
            watchdog.start()
            try:
                for line in driver.stdout:
                    said.append(line)
                    if live:
                        with capfd.disabled():
                            print(line, end="", flush=True)
            except BaseException:
                os.killpg(driver.pid, signal.SIGKILL)
                raise
            finally:
                watchdog.cancel()
        left = [path.name for path in Path(directory).iterdir() if path.is_socket() or path.suffix == ".lock"]
    assert driver.returncode == 0, "".join(said[-60:])
    assert said[-1] == "soak: all is accounted for\n"
    assert left == []


def test_a_short_soak(capfd: pytest.CaptureFixture[str]) -> None:
    soak(5, 12, 1, capfd, live=False)


@pytest.mark.soak
def test_a_long_soak(capfd: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("NEARCALL_SOAK_SECONDS", "1200"))
    seed = int(os.environ.get("NEARCALL_SOAK_SEED", "1"))
    with capfd.disabled():
        print(f"\nseed {seed}; another one with NEARCALL_SOAK_SEED")
    soak(seconds, 50, seed, capfd, live=True)
