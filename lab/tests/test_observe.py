"""Counts per call of a pass of its own."""

from __future__ import annotations

import shutil

import pytest

from nearcall_lab.engine import observe as observe_module
from nearcall_lab.engine.observe import Perf, Strace, observe
from nearcall_lab.registry import Entrant, discover, entrants_of
from nearcall_lab.scenario.cell import Cell, Mode, Work

ENTRANTS = {entrant.mechanism.name: entrant for entrant in [*discover(), *entrants_of("able")]}


def _observe(name: str, mode: Mode | None = None) -> observe_module.Observation:
    # So many calls, and not so much time, in which a watched process on a busy machine may not get to a single one.
    mode = mode or Mode(calls=500, warmup_s=0.02)
    return observe(Cell(name, Work("echo", size=15), mode), ENTRANTS[name])


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not here")
def test_a_plain_socket_needs_two_system_calls_a_side() -> None:
    found = _observe("raw-unix")
    if "not counted" in found.problem:
        pytest.skip(found.problem)
    assert found.problem == ""
    assert found.client_syscalls is not None
    assert found.server_syscalls is not None
    assert 2 <= found.client_syscalls < 2.5
    assert 2 <= found.server_syscalls < 2.5
    assert found.client_switches is not None
    assert found.server_switches is not None
    assert found.server_switches > 0
    assert found.calls > 0
    assert found.syscalls_calls > 0
    assert not found.busy_polling


def test_a_call_in_one_process_needs_none() -> None:
    found = _observe("noop", Mode(calls=100_000, warmup_s=0.02))
    assert found.server_syscalls is None
    assert found.server_switches is None
    if found.client_syscalls is not None:
        assert found.client_syscalls < 0.01


def test_who_polls_is_named() -> None:
    assert _observe("able-spins").busy_polling
    assert not _observe("able").busy_polling


def test_what_cannot_be_counted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_module.shutil, "which", lambda name: None)
    found = _observe("able")
    assert found.problem == "system calls not counted: neither strace nor perf is here"
    assert found.client_syscalls is None
    assert found.client_switches is not None


def test_a_counter_that_may_not_attach_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Strace, "command", lambda self, report: ["false"])
    monkeypatch.setattr(observe_module, "_counter", lambda: Strace)
    assert _observe("able").problem == "system calls not counted: the counter ended at once"


def test_a_failing_cell_says_so() -> None:
    assert _observe("able", Mode(outstanding=2)).problem.startswith("takes one call at a time")
    entrant = Entrant(ENTRANTS["able"].mechanism, "no_such_module")
    problem = observe(Cell("able", Work(size=15), Mode()), entrant).problem
    assert problem.startswith("failed: server ended unexpectedly (exit status 1): ModuleNotFoundError")


def test_reports_are_read() -> None:
    assert Strace([]).parse("calls syscall\n----- ----\n   12 read\n    3 write\n----- ----\n   15 total\n") == 15
    assert Strace([]).parse("") == 0
    assert Perf([]).parse("# started on\n\n29;;raw_syscalls:sys_enter;1;100.00;;\n") == 29
