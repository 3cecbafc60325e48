"""Shared helpers: workers start warm and find the test adapters, and no test may leave a process behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the test adapters are looked up while the tests are collected

import warm  # noqa: E402
from family import children  # noqa: E402
from nearcall_lab import checked  # noqa: E402
from nearcall_lab.workers import worker  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _a_process_is_warm() -> None:
    """Before a test counts its processes."""
    warm.warm_up()


@pytest.fixture(autouse=True)
def _workers_are_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "start", warm.start)


@pytest.fixture(autouse=True)
def _test_adapters_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{path}" if path else str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(autouse=True)
def _checks_are_remembered_for_one_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(checked, "FILE", tmp_path_factory.mktemp("checked") / "checked.json")
    monkeypatch.setattr(checked, "SHIPPED", checked.FILE.with_name("passed.json"))


@pytest.fixture(autouse=True)
def _no_process_stays() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before
