"""For all tests: a runtime directory of their own, and a look at what they leave behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would every program that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """Where the sockets of named servers are; empty again when the tests are through."""
    # Not pytest's own directory for temporary files: the path of a socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="nc-"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(directory)
    shared = set(os.listdir("/dev/shm"))
    yield directory
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before
    left = [str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()]
    shutil.rmtree(directory)
    assert left == [], "servers left files behind"
    # Others may use it at the same time, but under names of their own.
    ours = [name for name in set(os.listdir("/dev/shm")) - shared if "nearcall" in name]
    assert ours == []
