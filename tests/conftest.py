"""For all tests: a runtime directory of their own, and a look at what they leave behind."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

NOTICED = "how soon a death was noticed"
"""What a test reports as a property of its own: by whom, and lists of seconds."""


def pytest_configure() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would every program that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """All that was made until now stays to the end: tests that look for garbage need not look through it each time."""
    gc.collect()
    gc.freeze()


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


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What tests say on purpose may not be UTF-8, which is all that a worker process can tell."""
    return _as_utf8((yield))


def _as_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _as_utf8(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_utf8, value))
    return value


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Here and from reports, since the tests may have run in worker processes."""
    noticed = defaultdict[str, list[float]](list)
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", None) == "teardown":
            for name, found in report.user_properties:
                if name == NOTICED:
                    noticed[found[0]] += found[1]
    if noticed:
        terminalreporter.section(NOTICED)
    for who, seconds in sorted((who, seconds) for who, seconds in noticed.items() if seconds):
        took = sorted(1000 * one for one in seconds)
        late = took[int(0.99 * (len(took) - 1))]
        terminalreporter.line(
            f"{who:<24} {len(took):>5} deaths, median {statistics.median(took):.2f} ms, "
            f"p99 {late:.2f} ms, longest {took[-1]:.2f} ms"
        )
