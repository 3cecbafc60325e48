"""Runs on the disk: what is written can be read, and what is broken is named."""

from __future__ import annotations

import errno
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from made_up import launch, result, started
from nearcall_lab.results.store import Run, StoreError, read


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return started(tmp_path / "run")[0]


def _fill(run: Run) -> None:
    for cell in run.cells():
        cell.launches, cell.status = [launch(0, 1000), launch(1, 1010, position=1)], "ok"
        cell.launches[1].errors = {"AioRpcError CANCELLED": 3}
        run.update(cell)


def test_what_was_written_is_read(run: Run) -> None:
    _fill(run)
    run.combine()
    found = read(run.directory)
    assert [cell.cell.mechanism for cell in found.cells] == ["fast", "slow"]
    assert found.cells[0].launches[0].response == launch(0, 1000).response
    assert found.info == run.info
    combined = read(run.directory / "combined.json")
    assert combined.cells == found.cells
    assert (run.directory / "scenario.toml").read_text().startswith('\ntitle = "Two"')
    assert not list(run.directory.rglob(".*"))


def test_the_database_can_be_asked(run: Run) -> None:
    _fill(run)
    run.combine()
    run.combine()  # again, as a resumed run does
    with sqlite3.connect(run.directory / "results.sqlite") as database:
        rows = database.execute(
            "SELECT mechanism, count(*), min(p50_ns) FROM launches JOIN cells USING (digest) GROUP BY digest ORDER BY 1"
        ).fetchall()
        failures = database.execute("SELECT kind, sum(calls) FROM failures GROUP BY kind").fetchall()
    database.close()
    assert failures == [("AioRpcError CANCELLED", 6)]
    assert [(name, count) for name, count, _ in rows] == [("fast", 2), ("slow", 2)]
    assert rows[0][2] == pytest.approx(1000, rel=0.01)


def test_a_digest_is_written_once(run: Run) -> None:
    with pytest.raises(StoreError, match=r"has a result for cell [0-9a-f]{16} \(15 B echo\) already"):
        run.add(run.cells()[0])


def test_a_result_must_carry_its_own_digest(run: Run) -> None:
    cell = result("fast", [1000])
    cell.digest = "0" * 16
    with pytest.raises(StoreError, match="cannot be stored under the digest 0000"):
        run.add(cell)


def test_a_directory_holds_one_run(run: Run) -> None:
    with pytest.raises(StoreError, match=r"holds a run already; go on with --resume"):
        started(run.directory)


def test_one_process_writes(run: Run) -> None:
    with pytest.raises(StoreError, match="is being written by another process"):
        Run.open(run.directory)
    run.close()
    Run.open(run.directory).close()


def _edit(path: Path, **change: object) -> None:
    content = json.loads(path.read_text())
    content.update(change)
    path.write_text(json.dumps(content))


def test_broken_files_are_named(run: Run, tmp_path: Path) -> None:
    first = run.directory / "cells" / f"{run.info.digests[0]}.json"
    whole = first.read_bytes()
    first.write_bytes(whole[:50])
    with pytest.raises(StoreError, match=rf"{first}: broken: Input data was truncated"):
        read(run.directory)
    first.write_bytes(whole)
    _edit(first, status="splendid")
    with pytest.raises(StoreError, match=r"broken: Invalid enum value 'splendid' - at `\$.status`"):
        read(run.directory)
    first.write_bytes(whole)
    _edit(first, cell={**json.loads(whole)["cell"], "seed": 99})
    with pytest.raises(StoreError, match="it was edited"):
        read(run.directory)
    first.write_bytes((run.directory / "cells" / f"{run.info.digests[1]}.json").read_bytes())
    with pytest.raises(StoreError, match="not the one its name says"):
        read(run.directory)
    first.unlink()
    with pytest.raises(StoreError, match=r"No such file or directory; run\.json names it"):
        read(run.directory)
    with pytest.raises(StoreError, match="is it the directory of a run"):
        read(tmp_path)


def test_a_full_disk_is_said_and_the_old_file_stays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = run.cells()[0]
    cell.problem = "new"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nearcall_lab.results.store.os.fsync", full)
    with pytest.raises(StoreError, match=r"disk full: .* cannot be written; make room, then go on with --resume"):
        run.update(cell)
    monkeypatch.undo()
    assert run.cells()[0].problem == ""
    assert not list(run.directory.rglob(".*"))


def test_a_file_that_may_not_grow(run: Run) -> None:
    """The same with the kernel itself refusing, as it does when a quota is used up."""
    run.close()
    program = f"""
import resource, signal
from pathlib import Path
from nearcall_lab.results.store import Run, StoreError
run = Run.open(Path({str(run.directory)!r}))
cell = run.cells()[0]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    run.update(cell)
except StoreError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "cannot be written: File too large" in said
    assert len(read(run.directory).cells) == 2
