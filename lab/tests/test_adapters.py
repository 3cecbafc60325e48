"""Every adapter that is installed keeps the contract; every one that does not is found out."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant, discover, entrants_of
from nearcall_lab.workers import worker as worker_module
from nearcall_lab.workers.pair import LaunchFailed, Pair
from nearcall_lab.workloads import BY_KEY, WORKLOADS

ENTRANTS = {entrant.mechanism.name: entrant for entrant in discover()}
LIARS = "liars"


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("name", sorted(ENTRANTS))
def test_adapter_answers_truly_and_leaves_nothing(name: str) -> None:
    entrant = ENTRANTS[name]
    if entrant.problem:
        pytest.skip(entrant.problem)
    if entrant.mechanism.style == "asyncio":
        pytest.skip("its session is for an event loop")
    pair = Pair(entrant, choose())
    with pair:
        pair.connect()
        for workload in WORKLOADS:
            if workload.operation in entrant.mechanism.operations:
                sample = pair.measure(workload, seconds=0.01, warm_s=0.0)
                assert len(sample.ns) >= 5
                assert (sample.ns > 0).all()
        pids = [pair.client_pid] if entrant.mechanism.same_process else [pair.client_pid, pair.server_pid]
    assert all(_gone(pid) for pid in pids)
    assert not list(Path(tempfile.gettempdir()).glob(f"{pair.token}*"))
    assert not list(Path("/dev/shm").glob(f"*{pair.token}*"))


def test_names_are_unique_and_every_row_says_its_settings() -> None:
    assert len(ENTRANTS) >= 18
    for entrant in ENTRANTS.values():
        assert entrant.mechanism.settings
        assert entrant.mechanism.typed or "quote" not in entrant.mechanism.operations


@pytest.fixture
def liars() -> dict[str, Entrant]:
    return {entrant.mechanism.name: entrant for entrant in entrants_of(LIARS)}


def _measure(entrant: Entrant) -> None:
    with Pair(entrant, choose()) as pair:
        pair.connect()
        pair.measure(BY_KEY["echo-15"], seconds=0.01)


def test_the_honest_one_among_the_liars_passes(liars: dict[str, Entrant]) -> None:
    _measure(liars["honest"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong-content", "byte 14 differs"),
        ("wrong-length", "14 bytes instead of 15"),
        ("stale", "differs"),
        ("never-asks", r"the client made \d+ calls, the server handled 0"),
        ("crashes-at-start", "RuntimeError: no luck today"),
        ("raises", "ValueError: cannot do that"),
        ("dies-while-serving", "EOFError|ConnectionReset"),
    ],
)
def test_a_lying_adapter_is_found_out(liars: dict[str, Entrant], name: str, reason: str) -> None:
    with pytest.raises(LaunchFailed, match=reason):
        _measure(liars[name])


def test_a_server_that_never_gets_ready(liars: dict[str, Entrant], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "START_TIMEOUT_S", 1.0)
    with pytest.raises(LaunchFailed, match="did not answer within 1 s"):
        _measure(liars["never-ready"])


def test_a_killed_server_is_named(liars: dict[str, Entrant]) -> None:
    with Pair(liars["honest"], choose()) as pair:
        pair.connect()
        os.kill(pair.server_pid, signal.SIGKILL)
        with pytest.raises(LaunchFailed, match=r"server ended unexpectedly \(SIGKILL\)"):
            pair.measure(BY_KEY["echo-15"], seconds=0.01)


def test_a_missing_peer_is_named() -> None:
    from nearcall_lab.contract import Mechanism
    from nearcall_lab.registry import missing

    assert missing(Mechanism("x", "x", "rpc", requires=("no_such_peer",))) == "not installed: no_such_peer"
