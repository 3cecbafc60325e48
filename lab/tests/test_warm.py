"""Workers that are forks of the warm process are what interpreters of their own would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warm
from nearcall_lab.registry import entrants_of
from nearcall_lab.workers import worker
from nearcall_lab.workers.orphans import Orphans
from nearcall_lab.workers.worker import Worker

(LOOKS_AROUND,) = entrants_of("looks_around")


@pytest.fixture(autouse=True)
def _orphans_come_here() -> Iterator[None]:
    orphans = Orphans()
    yield
    orphans.release()


def _worker(directory: Path) -> Worker:
    return Worker("server", LOOKS_AROUND, tuple(sorted(os.sched_getaffinity(0))), directory, "token")


def _what_it_sees(directory: Path) -> tuple[dict[str, Any], str]:
    """And what it has printed."""
    server = _worker(directory)
    seen = json.loads(server.answer(60)[0]["ready"])
    assert server.end(ask_first=True) == []
    assert server.process.returncode == 0
    return seen, server.log.read_text()


def test_it_looks_like_an_interpreter_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEARCALL_TEST_WORD", "a\nb")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    forked, printed = _what_it_sees(tmp_path)
    monkeypatch.setattr(worker, "start", warm.start_cold)
    own, also_printed = _what_it_sees(tmp_path)
    for seen in (forked, own):  # readline, which pytest imports, sets these behind Python's back
        seen["environment"] = {k: v for k, v in seen["environment"].items() if k not in ("LINES", "COLUMNS")}
    assert printed == also_printed == "said\n"
    assert forked.pop("random") != own.pop("random")
    assert forked["parent"] == os.getpid()
    assert forked["environment"]["NEARCALL_TEST_WORD"] == "a\nb"
    assert forked == own


def test_random_numbers_are_its_own(tmp_path: Path) -> None:
    first, second = (_what_it_sees(tmp_path)[0]["random"] for _ in range(2))
    assert first != second


def test_it_is_killed_and_awaited_as_others(tmp_path: Path) -> None:
    server = _worker(tmp_path)
    server.answer(60)
    assert server.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.01)
    server.process.kill()
    assert server.process.wait(60) == -signal.SIGKILL
    server.end(ask_first=False)


def test_another_program_is_started_as_ever(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as said:
        process = warm.start(["sh", "-c", "echo here; pwd"], said, (), str(tmp_path))
    assert process.wait(60) == 0
    assert log.read_text() == f"here\n{tmp_path}\n"
