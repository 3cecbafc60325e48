"""Shared helpers: workers find the test adapters, and no test may leave a process behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def children() -> set[int]:
    """Process ids of this process's living children."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.fixture(autouse=True)
def _test_adapters_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{path}" if path else str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(autouse=True)
def _no_process_stays() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before
