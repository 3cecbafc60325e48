"""The example in `examples/dashboard`: workers are replaced while frames flow, and the page shows it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall

from .chromium import Browser, find, served

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/dashboard"
BROWSER = find()


@pytest.fixture
def origin() -> Iterator[str]:
    """Where the page is."""
    with served(EXAMPLE) as url:
        yield url


@contextlib.contextmanager
def detectors(origin: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server with its workers, and where the page finds it."""
    command = [sys.executable, "-m", "nearcall", "serve", "detector:Detector", "shm://dashboard", "http://127.0.0.1:0"]
    command += ["--workers", "3", "--allow-origin", origin, "--log-level", "info"]
    with subprocess.Popen(command, cwd=EXAMPLE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                assert line, "the server has ended"
                found = re.search(r"serving detector:Detector at (http:\S+)", line)
            yield process, found[1]
        finally:
            process.terminate()
            process.communicate()


@contextlib.contextmanager
def cameras() -> Iterator[subprocess.Popen[str]]:
    """They send frames until they are interrupted."""
    command = [sys.executable, "camera.py", "--url", "shm://dashboard", "--seconds", "600", "--rate", "40"]
    with subprocess.Popen(command, cwd=EXAMPLE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def replace(server: subprocess.Popen[str]) -> None:
    """Replaces all workers, and waits until the last of them serves."""
    server.send_signal(signal.SIGHUP)
    assert server.stderr is not None
    for line in server.stderr:
        if "all workers are replaced" in line:
            return
    raise AssertionError("the server has ended")


def check(said: str) -> None:
    found = re.fullmatch(r"(\d+) frames, (\d+) spots found\n", said)
    assert found is not None, said
    assert found[1] == found[2] != "0"


def test_no_frame_is_lost_when_workers_are_replaced(runtime_dir: Path, origin: str) -> None:
    with detectors(origin) as (server, _), cameras() as camera, nearcall.connect("shm://dashboard") as detector:
        next(detector.watch())  # frames flow
        replace(server)
        next(detector.watch())
        camera.send_signal(signal.SIGINT)
        check(camera.communicate()[0])


@pytest.mark.skipif(BROWSER is None, reason="no browser here: `make browser` installs one")
def test_the_page_shows_the_workers_and_those_after_them(runtime_dir: Path, origin: str, tmp_path: Path) -> None:
    assert BROWSER is not None
    workers = "document.querySelectorAll('#workers tr').length"
    with detectors(origin) as (server, url), cameras(), Browser(BROWSER, tmp_path) as browser:
        page = f"{origin}/?server={url}"
        assert browser.value(page, f"{workers} === 3 || null")
        replace(server)
        assert browser.later(f"{workers} === 6 || null")
