"""Several cells in one launch: who shares processes, and what becomes of the others when one of them goes wrong."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from made_up import Lab, carried_on, carried_out
from nearcall_lab.engine.launch import fresh_processes
from nearcall_lab.engine.progress import Progress
from nearcall_lab.engine.run import expected_seconds
from nearcall_lab.registry import Entrant, entrants_of, program_of
from nearcall_lab.results.model import Launch
from nearcall_lab.results.store import Recorded
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.workers.worker import LaunchFailed

SIZES = ("1 B echo", "2 B echo", "3 B echo")
TOGETHER = """
title = "Together"
baseline = "slow"
[run]
launches = 4
cells_per_launch = "all"
[[cells]]
mechanisms = ["fast", "slow"]
size = [1, 2, 3]
"""


def _go(directory: Path, lab: Lab, tell: list[Progress] | None = None, text: str = TOGETHER) -> Recorded:
    return carried_out(directory, lab, text, tell)


def _numbers(recorded: Recorded, mechanism: str) -> list[list[int]]:
    return [sorted(launch.number for launch in c.launches) for c in recorded.cells if c.cell.mechanism == mechanism]


def test_each_cell_has_its_own_result_of_shared_processes(tmp_path: Path) -> None:
    lab, told = Lab(), list[Progress]()
    found = _go(tmp_path / "run", lab, told)
    assert found.info.cells_per_launch == "all"
    assert [cell.status for cell in found.cells] == ["ok"] * 6
    assert _numbers(found, "fast") == _numbers(found, "slow") == [[0, 1, 2, 3]] * 3
    assert [sorted(titles) for titles in lab.together] == [list(SIZES)] * 8
    assert lab.together[0] == lab.together[3][::-1]  # forwards and backwards, as the mechanisms are
    assert len({launch.position for cell in found.cells for launch in cell.launches}) == 8
    assert ({p.total for p in told}, {p.work for p in told}) == ({8}, {"3 cells"})
    cells = [cell.cell for cell in found.cells]
    assert expected_seconds(cells, 4, "all") < expected_seconds(cells, 4)


@pytest.mark.parametrize("culprit", SIZES)
def test_a_cell_that_fails_loses_none_of_the_others(tmp_path: Path, culprit: str) -> None:
    lab, told = Lab(), list[Progress]()
    lab.failing[f"fast, {culprit}"] = "server ended unexpectedly"
    found = _go(tmp_path / "run", lab, told)
    for cell in found.cells:
        if (cell.cell.mechanism, cell.cell.title()) == ("fast", culprit):
            assert (cell.status, cell.problem, cell.launches) == ("failed", "server ended unexpectedly", [])
            assert len(cell.failures) == 2  # then it was given up
            assert (tmp_path / "run" / cell.log).read_text() == "== server\nwhat the worker said\n"
        else:
            assert (cell.status, len(cell.launches)) == ("ok", 4)
    for titles in lab.together:  # after a failure the processes are not used again
        assert culprit not in titles[:-1] or len(titles) == 3
    assert sum(p.remark == "failed: server ended unexpectedly" for p in told) == 2
    assert all(p.work == culprit for p in told if p.remark)


def test_processes_that_do_not_start_are_tried_twice_for_all_their_cells(tmp_path: Path) -> None:
    lab = Lab()
    lab.not_starting["fast"] = "server did not answer within 15 s"
    told = list[Progress]()
    found = _go(tmp_path / "run", lab, told)
    for cell in found.cells[::2]:
        assert (cell.status, cell.problem) == ("failed", "server did not answer within 15 s")
        assert len(cell.failures) == 2
        assert (tmp_path / "run" / cell.log).exists()
    assert _numbers(found, "slow") == [[0, 1, 2, 3]] * 3
    assert sum(bool(p.remark) for p in told) == 2


def test_ctrl_c_within_a_launch_keeps_its_cells_and_resume_makes_the_rest(tmp_path: Path) -> None:
    lab = Lab()
    lab.before = lambda position: os.kill(os.getpid(), signal.SIGINT) if len(lab.made) == 4 else None
    found = _go(tmp_path / "run", lab)
    assert found.info.ended_early == "interrupted"
    assert sum(len(cell.launches) for cell in found.cells) == 4
    lab.before, lab.made, before = lambda position: None, [], lab.together
    resumed = carried_on(tmp_path / "run", lab)
    assert _numbers(resumed, "fast") == _numbers(resumed, "slow") == [[0, 1, 2, 3]] * 3
    assert len(lab.made) == 6 * 4 - 4
    assert len(before) == 8 + 1  # the launch that was interrupted needed a second pair of processes


def test_only_the_cells_that_were_disturbed_are_made_again(tmp_path: Path) -> None:
    lab = Lab()

    def disturb(launch: Launch) -> None:
        launch.steal_share = 0.5 if len(lab.made) == 8 else 0.0

    lab.change = disturb
    found = _go(tmp_path / "run", lab)
    assert [len(titles) for titles in lab.together] == [3, 3, 3, 1, 3, 3, 3, 3, 3]
    assert sum(len(cell.disturbed) for cell in found.cells) == 1
    assert _numbers(found, "fast") == _numbers(found, "slow") == [[0, 1, 2, 3]] * 3


def test_the_time_limit_holds_for_what_comes_behind_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, now = Lab(), [0.0]
    monkeypatch.setattr("nearcall_lab.engine.run.time.monotonic", lambda: now[0])
    lab.before = lambda position: now.__setitem__(0, now[0] + 10)
    lab.failing |= {"fast": "no", "slow": "no"}
    found = _go(tmp_path / "run", lab, text=TOGETHER.replace("[[cells]]", "limit_s = 15\n[[cells]]"))
    assert len(lab.made) == 2
    assert sum(len(cell.failures) for cell in found.cells) == 2
    assert found.info.ended_early.startswith("time limit of 15 s reached after 2 of ")


# With real processes

ABLE = {entrant.mechanism.name: entrant for entrant in [*entrants_of("able"), *entrants_of("liars")]}
MODE = Mode(seconds=0.05, warmup_s=0.01)
KINDS = (
    (Work("echo", size=100), MODE),
    (Work("send", size=64), Mode("one-way", seconds=0.05, warmup_s=0.01)),
    (Work("quote"), MODE),
    (Work("echo", size=15), Mode("connect", seconds=0.05, warmup_s=0.01)),
    (Work("count", items=50), Mode("stream", seconds=0.05, warmup_s=0.01)),
    (Work("echo", size=2_000_000), Mode("open", rate=50, calls=5, warmup_s=0.01, connections=2)),
)


def _cells(name: str, *kinds: tuple[Work, Mode], same_process: bool = False) -> list[Cell]:
    return [Cell(name, work, mode, same_process=same_process) for work, mode in kinds]


@pytest.mark.parametrize(
    ("name", "same_process"), [("able", False), ("able", True), ("able-async", False), ("able-uvloop", True)]
)
def test_every_way_that_calls_arrive_works_after_every_other(name: str, same_process: bool) -> None:
    cells = _cells(name, *KINDS, *((work, mode) for work, mode in KINDS[:0:-1]), same_process=same_process)
    with fresh_processes(cells, ABLE[name]) as measure:
        launches = [measure(cell, 3, 7) for cell in cells]
    for launch in launches:
        assert (launch.number, launch.position) == (3, 7)
        assert launch.calls > 0
        assert not launch.errors
        assert launch.left_behind == []
    opened = [launch.server_opened for launch in launches]
    assert all(found is None for found in opened[1:])
    assert (opened[0] is None) is same_process


def test_the_servers_count_is_held_against_all_cells() -> None:
    """One that counts no calls is found out at the first cell; failed calls of one do not excuse another's."""
    cells = _cells("never-asks", KINDS[0], KINDS[2])
    with pytest.raises(LaunchFailed, match=r"the server handled 0"):
        _measure_all(cells, ABLE["never-asks"])
    found = _measure_all(
        _cells("able-fails-sometimes", *[(Work("echo", size=100), Mode(calls=500, warmup_s=0.01))] * 2),
        ABLE["able-fails-sometimes"],
    )
    assert all(sum(launch.errors.values()) > 0 for launch in found)


def test_what_is_left_behind_belongs_to_all_cells_of_the_processes() -> None:
    found = _measure_all(_cells("able-leaves-a-process", KINDS[0], KINDS[2]), ABLE["able-leaves-a-process"])
    assert [len(launch.left_behind) for launch in found] == [1, 1]


def test_a_program_in_another_language_measures_one_after_another() -> None:
    entrant = program_of(Path(__file__).parent / "foreign_echo" / "adapter.toml")
    found = _measure_all(_cells("foreign-echo", *((Work("echo", size=size), MODE) for size in (10, 20, 30))), entrant)
    assert all(launch.calls > 0 for launch in found)


def _measure_all(cells: list[Cell], entrant: Entrant) -> list[Launch]:
    try:
        with fresh_processes(cells, entrant) as measure:
            return [measure(cell, 0, 0) for cell in cells]
    except LaunchFailed as failure:
        if failure.logs is not None:
            shutil.rmtree(failure.logs)
        raise
