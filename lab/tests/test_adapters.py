"""Every adapter that is installed keeps the contract; every one that does not is found out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from family import children
from nearcall_lab.engine.launch import fresh_processes, measure
from nearcall_lab.registry import Entrant, discover, entrants_of
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.workers import worker as worker_module
from nearcall_lab.workers.worker import LaunchFailed, tree
from sockets import nodelay

ENTRANTS = {entrant.mechanism.name: entrant for entrant in discover()}
LIARS = "liars"
CLOSES_AFTER_EACH_REPLY = {"flask", "jsonrpc", "xmlrpc"}
"""Their servers close each connection, so that there is none to look at."""
BETWEEN = (1_000, 10_000, 60_000)
SMALLEST = Work(size=15)


def work_of(name: str) -> list[Work]:
    """The shortest and the longest messages, and one size between them, which the name decides: `check` tries all."""
    between = BETWEEN[crc32(name.encode()) % len(BETWEEN)]
    return [SMALLEST, Work(size=between), Work(size=1_000_000), Work("quote")]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for all that is temporary, with a name that leaves room for those of sockets."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@pytest.mark.parametrize("name", sorted(ENTRANTS))
def test_adapter_answers_truly_and_leaves_nothing(name: str, short: Path) -> None:
    """In the same processes, so that every adapter is seen to connect again.

    No side of a TCP connection waits for more to send: without TCP_NODELAY a message of several writes waits up to
    40 ms for the peer's delayed acknowledgement.
    """
    entrant = ENTRANTS[name]
    if entrant.problem:
        pytest.skip(entrant.problem)
    work = [w for w in work_of(name) if w.operation in entrant.mechanism.operations]
    if entrant.mechanism.variant.startswith("oneshot"):
        work = work[:1]  # one connection in all
    before = children()
    cells = [Cell(name, w, Mode(seconds=0.01, warmup_s=0.0)) for w in work]
    with fresh_processes(cells, entrant) as measure:
        launches = [measure(cell, 0, 0) for cell in cells]
        workers = children() - before
        assert len(workers) >= (1 if entrant.mechanism.same_process else 2)
        if entrant.mechanism.transport == "TCP" and name not in CLOSES_AFTER_EACH_REPLY:
            found = [option for pid in {pid for worker in workers for pid in tree(worker)} for option in nodelay(pid)]
            assert len(found) >= 2, "no connection was found"
            assert all(found)
    assert children() == before
    for launch in launches:
        assert launch.calls > 0
        assert not launch.errors
        assert launch.response is not None
        assert launch.response.min > 0
        assert launch.left_behind == []
    assert list(short.iterdir()) == []


@pytest.mark.parametrize("name", ["nearcall-shm", "nearcall-inproc", "nearcall-aio-grpc"])
def test_messages_beyond_the_default_limit_of_64_mib(name: str, short: Path) -> None:
    """The lab's longest message has 100 MB; it promises that every adapter carries it."""
    cell = Cell(name, Work(size=70_000_000), Mode(seconds=0.01, warmup_s=0.0))
    launch = measure(cell, ENTRANTS[name], 0, 0)
    assert launch.calls > 0
    assert not launch.errors


def test_names_are_unique_and_every_row_says_its_settings() -> None:
    assert len(ENTRANTS) >= 18
    for entrant in ENTRANTS.values():
        assert entrant.mechanism.settings
        assert entrant.mechanism.typed or "quote" not in entrant.mechanism.operations
        assert entrant.mechanism.transport
        assert bool(entrant.mechanism.why) == entrant.mechanism.tuned, "who recommends what a tuned row is run with"


@pytest.fixture
def liars() -> dict[str, Entrant]:
    return {entrant.mechanism.name: entrant for entrant in entrants_of(LIARS)}


def _measure(entrant: Entrant) -> None:
    try:
        measure(Cell(entrant.mechanism.name, SMALLEST, Mode(seconds=0.01, warmup_s=0.0)), entrant, 0, 0)
    except LaunchFailed as failure:
        if failure.logs is not None:
            shutil.rmtree(failure.logs)
        raise


def test_the_honest_one_among_the_liars_passes(liars: dict[str, Entrant]) -> None:
    _measure(liars["honest"])


def test_a_server_that_never_gets_ready(liars: dict[str, Entrant], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "START_TIMEOUT_S", 1.0)
    with pytest.raises(LaunchFailed, match="did not answer within 1 s"):
        _measure(liars["never-ready"])


def test_a_missing_peer_is_named() -> None:
    from nearcall_lab.contract import Mechanism
    from nearcall_lab.registry import missing

    assert missing(Mechanism("x", "x", "rpc", requires=("no_such_peer",))) == "not installed: no_such_peer"
