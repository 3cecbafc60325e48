"""The runner: failures, disturbances, interruptions, and going on afterwards. Launches are made up."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from made_up import ENTRANTS, TWO, Lab, carried_on, carried_out, started
from nearcall_lab.engine.launch import fresh_processes
from nearcall_lab.engine.progress import LiveProgress, Progress
from nearcall_lab.engine.run import NARROW, Engine, Options, begin, resume, settle
from nearcall_lab.engine.watch import Watch
from nearcall_lab.environment import capture, conclude, cpu_ticks
from nearcall_lab.registry import Entrant, discover
from nearcall_lab.results.model import Launch, Observation, Side
from nearcall_lab.results.store import Recorded, StoreError, read
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.scenario.load import load
from nearcall_lab.stats import spread

THREE = TWO.replace('["fast", "slow"]', '["fast", "slow", "on-a-loop"]')


def _numbers(recorded: Recorded) -> list[list[int]]:
    return [sorted(launch.number for launch in cell.launches) for cell in recorded.cells]


def test_everything_is_launched_and_stored(tmp_path: Path) -> None:
    lab, told = Lab(), list[Progress]()
    found = carried_out(tmp_path / "run", lab, tell=told)
    assert _numbers(found) == [[0, 1, 2, 3]] * 2
    assert [cell.status for cell in found.cells] == ["ok", "ok"]
    assert sorted(position for _, _, position in lab.made) == list(range(8))
    assert found.info.finished
    assert found.info.ended_early == ""
    assert (tmp_path / "run" / "combined.json").exists()
    assert [p.done for p in told] == list(range(8))
    assert {p.total for p in told} == {8}
    assert told[0].seconds_left > told[-1].seconds_left >= 0


def test_a_failing_cell_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    lab, told = Lab(), list[Progress]()
    lab.failing["slow"] = "server did not answer within 15 s"
    found = carried_out(tmp_path / "run", lab, tell=told)
    fast, slow = found.cells
    assert (fast.status, len(fast.launches)) == ("ok", 4)
    assert (slow.status, slow.problem) == ("failed", "server did not answer within 15 s")
    assert len(slow.failures) == 2  # then it was given up
    assert (tmp_path / "run" / slow.log).read_text() == "== server\nwhat the worker said\n"
    assert sum("did not answer" in p.remark for p in told) == 2


def test_a_launch_that_fails_once_costs_one_launch(tmp_path: Path) -> None:
    lab = Lab()

    lab.failing["slow"] = "port in use"
    lab.failures_left = 1
    slow = carried_out(tmp_path / "run", lab).cells[1]
    assert (slow.status, slow.problem) == ("ok", "1 of 4 launches failed: port in use")
    assert len(slow.launches) == 3


def test_what_the_lab_did_not_foresee_is_a_failure_too(tmp_path: Path) -> None:
    lab = Lab()
    del lab.medians_ns["slow"]
    slow = carried_out(tmp_path / "run", lab).cells[1]
    assert (slow.status, slow.problem) == ("failed", "KeyError: 'slow'")


def test_what_cannot_run_is_not_tried(tmp_path: Path) -> None:
    lab = Lab()
    found = carried_out(tmp_path / "run", lab, TWO.replace('"slow"]', '"absent"]'))
    assert found.cells[1].status == "unsupported"
    assert found.cells[1].problem == "not installed: no_such_peer"
    assert {name for name, *_ in lab.made} == {"fast"}


def test_ctrl_c_keeps_what_is_done_and_resume_goes_on(tmp_path: Path) -> None:
    lab, whole = Lab(), Lab()
    lab.before = lambda position: os.kill(os.getpid(), signal.SIGINT) if position == 5 else None
    found = carried_out(tmp_path / "run", lab)
    assert found.info.ended_early == "interrupted"
    assert sum(len(cell.launches) for cell in found.cells) == 5
    assert (tmp_path / "run" / "results.sqlite").exists()
    lab.before = lambda position: None
    resumed = carried_on(tmp_path / "run", lab)
    assert _numbers(resumed) == [[0, 1, 2, 3]] * 2
    assert resumed.info.ended_early == ""
    carried_out(tmp_path / "whole", whole)
    assert [made[:2] for made in lab.made] == [made[:2] for made in whole.made]  # as if it had never been interrupted


def test_a_resumed_run_tries_again_what_failed(tmp_path: Path) -> None:
    lab = Lab()
    lab.failing["slow"] = "not today"
    carried_out(tmp_path / "run", lab)
    lab.failing.clear()
    slow = carried_on(tmp_path / "run", lab).cells[1]
    assert (slow.status, slow.problem) == ("ok", "")
    assert len(slow.failures) == 2


def test_resume_does_not_mix_versions(tmp_path: Path) -> None:
    carried_out(tmp_path / "run", Lab())
    newer = [Entrant(e.mechanism, e.module, e.problem, "2.0") for e in ENTRANTS]
    with pytest.raises(StoreError, match=r"measured fast 1.0, here is 2.0: the two must not be mixed"):
        resume(tmp_path / "run", newer)
    with pytest.raises(StoreError, match="measures fast, which is no longer here"):
        resume(tmp_path / "run", [])
    resume(tmp_path / "run", ENTRANTS)[0].close()  # neither left the run locked


def test_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, now = Lab(), [0.0]
    monkeypatch.setattr("nearcall_lab.engine.run.time.monotonic", lambda: now[0])
    lab.before = lambda position: now.__setitem__(0, now[0] + 10)
    found = carried_out(tmp_path / "run", lab, limit_s=25)
    assert sum(len(cell.launches) for cell in found.cells) == 3
    assert found.info.ended_early == "time limit of 25 s reached after 3 of 8 launches"


def test_a_disturbed_launch_is_repeated_and_stays_on_record(tmp_path: Path) -> None:
    lab = Lab()

    def disturb(launch: Launch) -> None:
        launch.canary_ns = 2_000_000 if launch.position == 6 else 1_000_000
        launch.steal_share = 0.0

    lab.change = disturb
    told: list[Progress] = []
    found = carried_out(tmp_path / "run", lab, tell=told)
    disturbed = [launch for cell in found.cells for launch in cell.disturbed]
    assert [launch.position for launch in disturbed] == [6]
    assert disturbed[0].breach == "a fixed loop took 2.00 times as long as usual"
    assert _numbers(found) == [[0, 1, 2, 3]] * 2
    assert len(lab.made) == 9
    assert [p.repeated for p in told] == [0] * 7 + [1] * 2
    assert told[-1].repeated_for == disturbed[0].breach
    assert not any(p.remark for p in told)


def test_repetitions_are_one_line_at_the_end() -> None:
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=190)) as progress:
        for number in range(37):
            progress(Progress(number, 148, 0.0, "fast", "echo", repeated=number, repeated_for="a hog"))
    assert file.getvalue().count("made again") == 1
    said = "36 launches were made again because the machine was disturbed; the last for: a hog"
    assert file.getvalue().splitlines()[-1] == said
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=190)) as progress:
        progress(Progress(0, 1, 0.0, "fast", "echo"))
    assert "made again" not in file.getvalue()


def _at_rest(number: int = 0, **more: object) -> Launch:
    """A launch on a quiet machine, whose threads ran for a second and waited for ten milliseconds."""
    found = Launch(number, 0, "", 1, 1.0, canary_ns=1_000_000, canary_after_ns=1_000_000)
    found.client, found.server = Side(cpu_s=0.5, waited_s=0.005), Side(cpu_s=0.5, waited_s=0.005)
    found.steal_share, found.others_share = 0.0, 0.02
    for name, value in more.items():
        setattr(found, name, value)
    return found


def _breach(launch: Launch) -> str:
    return Watch((_at_rest(number) for number in range(5)), budget=1).breach(launch)


def test_a_quiet_machine_disturbs_nothing() -> None:
    assert _breach(_at_rest()) == ""
    # One slow canary is a moment before or after, in which nothing was timed.
    assert _breach(_at_rest(canary_ns=2_000_000)) == ""
    assert _breach(_at_rest(canary_after_ns=2_000_000)) == ""
    # Threads of one mechanism wait for each other, and the kernel's own work belongs to nobody.
    assert _breach(_at_rest(server=Side(cpu_s=0.5, waited_s=0.5))) == ""
    assert _breach(_at_rest(others_share=0.3)) == ""


def test_each_way_of_being_disturbed_is_named() -> None:
    slow = _at_rest(canary_ns=1_600_000, canary_after_ns=1_500_000)
    assert _breach(slow) == "a fixed loop took 1.50 times as long as usual"
    assert _breach(_at_rest(steal_share=0.03)) == "the hypervisor took 3.0% of the CPU time"
    hogged = _at_rest(others_share=0.5, client=Side(cpu_s=0.5, waited_s=0.49))
    said = "other work had 50% of its CPUs, and it waited 33% of the time it wanted one"
    assert _breach(hogged) == said


def test_hogs_on_every_cpu_are_noticed_in_each_launch(tmp_path: Path) -> None:
    """With real processes, from the first launch on: what is usual need not be known."""
    path = tmp_path / "small.toml"
    path.write_text(
        'title = "x"\n[run]\nlaunches = 1\nwarmup_s = 0\nseconds = 0.3\n'
        '[[cells]]\nmechanisms = ["raw-unix", "nearcall-shm"]\nsize = 15\n'
    )
    found = load(str(path), discover())
    with contextlib.ExitStack() as hogs, begin(tmp_path / "run", found, Options()) as run:
        for cpu in sorted(os.sched_getaffinity(0)):
            hogs.enter_context(_hog(cpu))
        Engine(run, found.planned, fresh_processes, lambda progress: None).go()
    recorded = read(tmp_path / "run")
    launches = [launch for cell in recorded.cells for launch in (*cell.launches, *cell.disturbed)]
    assert len(launches) == 3, "one was repeated"
    for launch in launches:
        assert "other work had" in launch.breach, launch
    assert any("other work was running: it had" in flag for flag in recorded.info.environment.flags())
    assert all("launches disturbed" in cell.problem for cell in recorded.cells)


@contextlib.contextmanager
def _hog(cpu: int) -> Iterator[None]:
    """A process that wants all of one CPU."""
    program = f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def test_the_load_of_the_minute_before_is_no_flag() -> None:
    """It is that of the lab's own last command."""
    environment = capture()
    environment.load_1min_at_start = 7.7
    conclude(environment, cpu_ticks(), [0.01, None, 0.03])
    assert environment.others_share == pytest.approx(0.02)
    assert not any("other work" in flag or "load" in flag for flag in environment.flags())
    conclude(environment, cpu_ticks(), [0.2, 0.3])
    assert "other work was running: it had 25% of the CPU time of the launches" in environment.flags()
    conclude(environment, cpu_ticks(), [None])
    assert environment.others_share is None


def test_on_a_machine_that_is_never_quiet_repetitions_end(tmp_path: Path) -> None:
    lab = Lab()
    lab.change = lambda launch: setattr(launch, "steal_share", 0.5)
    found = carried_out(tmp_path / "run", lab)
    assert _numbers(found) == [[0, 1, 2, 3]] * 2
    assert len(lab.made) == 8 + 3  # a quarter of the launches, and one
    assert all("the hypervisor took 50.0% of the CPU time" in cell.problem for cell in found.cells)


def test_full_goes_on_until_the_intervals_are_narrow(tmp_path: Path) -> None:
    lab = Lab(on_a_loop=2000.0)
    lab.noise = 0.03
    found = carried_out(tmp_path / "run", lab, full=True)
    counts = {len(cell.launches) for cell in found.cells}
    assert len(counts) == 1  # cells that are compared have the same launches
    assert 4 < counts.pop() < 30
    for cell in found.cells:
        width = spread([launch.response.mean for launch in cell.launches if launch.response])
        assert width is not None
        assert width <= NARROW * 1.05


def test_full_ends_all_the_same(tmp_path: Path) -> None:
    lab = Lab()
    lab.noise = 0.5
    assert _numbers(carried_out(tmp_path / "run", lab, full=True)) == [list(range(30))] * 2


def test_counts_come_after_all_that_is_timed(tmp_path: Path) -> None:
    lab, counted = Lab(), list[str]()
    lab.failing["slow"] = "not today"

    def observe(cell: Cell, entrant: Entrant) -> Observation:
        assert len(lab.made) == 4 + 2
        counted.append(cell.mechanism)
        return Observation(client_syscalls=2.0, server_syscalls=3.0)

    run, planned = started(tmp_path / "run", observe=True)
    with run:
        Engine(run, planned, lab.fresh_processes, lambda progress: None, observe).go()
    assert counted == ["fast"]
    found = read(tmp_path / "run").cells[0].observation
    assert found is not None
    assert found.client_syscalls == 2.0


def test_overload_is_marked(tmp_path: Path) -> None:
    lab = Lab()
    text = TWO + 'mode = "open"\nrate = 100\n'

    def overload(launch: Launch) -> None:
        launch.due = 1_000

    lab.change = overload
    cell = carried_out(tmp_path / "run", lab, text).cells[0]
    assert cell.status == "overloaded"
    assert "4 of 4 launches overloaded" in cell.problem


def test_a_full_disk_ends_the_run_and_what_is_done_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    lab, real = Lab(), os.fsync

    def fsync(descriptor: int) -> None:
        if len(lab.made) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("nearcall_lab.results.store.os.fsync", fsync)
    with pytest.raises(StoreError, match="disk full"):
        carried_out(tmp_path / "run", lab)
    assert sum(len(cell.launches) for cell in read(tmp_path / "run").cells) == 3
    monkeypatch.undo()
    assert _numbers(carried_on(tmp_path / "run", lab)) == [[0, 1, 2, 3]] * 2


def test_settle_leaves_what_cannot_run_alone(tmp_path: Path) -> None:
    run, _ = started(tmp_path / "run", TWO.replace('"slow"]', '"absent"]'))
    with run:
        cell = run.cells()[1]
    settle(cell)
    assert cell.status == "unsupported"
