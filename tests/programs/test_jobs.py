"""The job system does what it says, while its server is replaced and a runner is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nearcall
from nearcall import cli

from ..e2e.ports import own_port
from . import jobs

PATIENCE = 60.0

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the program with such arguments; what still runs is killed in the end."""
    begun: list[subprocess.Popen[str]] = []
    assert cli.main(["dev-certs", str(tmp_path / "certs"), "127.0.0.1"]) == 0

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, jobs.__file__, *words]
        begun.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return begun[-1]

    yield start
    for program in begun:
        program.kill()
        program.communicate(timeout=PATIENCE)


def fetched(url: str) -> str:
    """A page, or nothing if it cannot be had."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
        return str(page.read().decode())
    return ""


def test_jobs_are_done_whatever_restarts(start: Start, tmp_path: Path) -> None:
    url, metrics = f"tls://127.0.0.1:{own_port()}", f"127.0.0.1:{own_port()}"
    certs = str(tmp_path / "certs")
    server = start("serve", url, certs, "jobs.sqlite", metrics)
    with nearcall.connect(
        url, jobs.Jobs, tls=jobs.tls(certs), wait_for_ready=True, timeout=PATIENCE, handshake_timeout=PATIENCE
    ) as own:
        killed, _ = start("work", url, certs), start("work", url, certs)
        asking = start("submit", url, certs, *map(str, range(50)))
        job = jobs.Job("x" * 32, 90)
        own.submit(job)
        own.submit(job)  # it is one
        os.kill(server.pid, signal.SIGHUP)
        killed.kill()
        said, complaints = asking.communicate(timeout=PATIENCE)
        assert complaints == ""
        assert said.splitlines() == [f"{number} {jobs.fibonacci(number)}" for number in range(50)]
        last = jobs.outcome(own, job.id)
        assert last.result == jobs.fibonacci(90)
        failing = jobs.Job("y" * 32, -1)
        own.submit(failing)
        last = jobs.outcome(own, failing.id)
        assert last.state is jobs.State.FAILED
        assert last.error == "there is no Fibonacci number -1"
        with pytest.raises(nearcall.NotFound, match="you have no job z"):
            own.status("z")
        with pytest.raises(nearcall.Unauthenticated):
            nearcall.connect(url, tls=nearcall.TLS(ca=f"{certs}/ca.pem"))
        # What replaced workers have counted is there, too. Meanwhile a page may fail: Prometheus asks again.
        counted = 'nearcall_server_started_total{method="submit",service="Jobs",worker="'
        until = time.monotonic() + PATIENCE
        while counted not in fetched(f"http://{metrics}/metrics"):
            assert time.monotonic() < until
    server.terminate()
    _, complaints = server.communicate(timeout=PATIENCE)
    assert (server.returncode, complaints) == (0, "")


def test_a_job_whose_runner_is_gone_comes_back(tmp_path: Path) -> None:
    store = jobs.Store(str(tmp_path / "jobs.sqlite"))
    store.add(jobs.Job("a", 3), "ada")
    assert store.take(lease=-1.0) == jobs.Job("a", 3)  # it is over at once
    assert store.take(lease=60.0) == jobs.Job("a", 3)
    assert store.take(lease=60.0) is None
    assert store.status("a", "ada") == jobs.Status(jobs.State.RUNNING, attempts=2)
