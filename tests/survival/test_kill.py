"""Either side is killed at every system call, and between them: the other one learns of it, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall

from ..e2e.process import ServerProcess
from .conftest import SERVICES
from .observing import Holdings, comes_back_to, eventually
from .services import LARGE, SMALL, Passing, Target, many_of_each, one_of_each, passes_one_of_each
from .victims import Victims

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

BOUND = 1.0 if os.environ.get("NEARCALL_SURVIVAL") == "all" else 5.0
"""Seconds within which a death is noticed; `make survival` says how soon it really was. A sample of the deaths runs
beside other tests: there it only tells what hangs from what is slow."""
MANY = 1 << 30
SEED = 20_261_120

Noticed = dict[str, list[float]]
Script = Callable[[str, bytes], None]


@pytest.fixture(scope="module")
def large() -> bytes:
    return os.urandom(1 << 16) * (LARGE >> 16)


@pytest.fixture
def stepping(victims: Victims) -> Victims:
    if victims.no_stepping is not None:
        pytest.skip(f"this process may not trace its children: {victims.no_stepping}")
    return victims


def chosen(count: int, most: int | None) -> list[int]:
    """The stops to kill at: all, or the first, the last and some in between."""
    every = range(1, count + 1)
    if most is None or count <= most:
        return list(every)
    return sorted({1, count, *random.Random(SEED).sample(every, most - 2)})


def next_client_is_served(url: str, pid: int, large: bytes) -> None:
    with nearcall.connect(url, Target) as target:
        assert target.pid() == pid
        assert target.echo(SMALL) == SMALL
        assert target.length(memoryview(large)) == LARGE


@pytest.mark.slow
@pytest.mark.parametrize("script", [one_of_each, passes_one_of_each])
def test_a_client_killed_at_any_system_call(
    server: ServerProcess, stepping: Victims, steps: int | None, large: bytes, script: Script
) -> None:
    order = {"script": script.__name__}
    stepping.start("client", server.url, "step", stop=MANY, **order)
    whole = stepping.outcome()
    assert (whole["how"], whole["status"]) == ("ended", 0)
    next_client_is_served(server.url, server.pid, large)
    before = Holdings.of(server.pid)
    for stop in chosen(whole["stops"], steps):
        stepping.start("client", server.url, "step", stop=stop, **order)
        outcome = stepping.outcome()
        assert outcome["how"] == "killed" or outcome["status"] == 0, (stop, outcome)
        next_client_is_served(server.url, server.pid, large)
    with nearcall.connect(server.url, Passing) as passing:
        eventually(lambda: passing.seats() == 0, "objects that dead clients held are kept")
    comes_back_to(server.pid, before)


def kill_servers(
    victims: Victims, url: str, orders: Iterator[dict[str, Any]], large: bytes, script: Any, noticed: list[float]
) -> int:
    """Kills one server after the other under a client; how many clients noticed."""
    count = 0
    # Memory that was handed over waits for its next use: as much of it as there may ever be at once.
    spare = [nearcall.buffer(len(large)) for _ in range(3)]
    del spare
    before = Holdings.of(os.getpid())
    for order in orders:
        started = victims.start("server", url, **order)
        error: nearcall.RpcError | None = None
        try:
            script(started["url"], large)
        except nearcall.RpcError as caught:
            error = caught
        at = time.monotonic_ns()
        if error is None:
            # It was through before the server was to die.
            with contextlib.suppress(ProcessLookupError):
                os.kill(started["pid"], 9)
        outcome = victims.outcome()
        if error is not None:
            assert outcome["how"] == "killed", (order, error)
            assert isinstance(error, nearcall.Unavailable), (order, error)
            took = (at - outcome["at"]) / 1e9
            assert took < BOUND, (order, error)
            noticed.append(max(took, 0.0))
            count += 1
            del error
        url = started["url"]
    comes_back_to(os.getpid(), before, threads=0)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("script", [one_of_each, passes_one_of_each])
def test_a_server_killed_at_any_system_call(
    new_url: str,
    transport: str,
    stepping: Victims,
    steps: int | None,
    large: bytes,
    noticed: Noticed,
    script: Script,
) -> None:
    started = stepping.start("server", new_url, "step", stop=MANY)
    script(started["url"], large)
    os.kill(started["pid"], 9)
    count = stepping.outcome()["stops"]
    url = started["url"]
    orders = ({"how": "step", "stop": stop} for stop in chosen(count, steps))
    found = kill_servers(stepping, url, orders, large, script, noticed.setdefault(f"server of {transport}", []))
    assert found >= 1
    left_behind_is_taken_over(url, large)


def left_behind_is_taken_over(url: str, large: bytes) -> None:
    with ServerProcess(url, services=SERVICES) as survivor:
        next_client_is_served(url, survivor.pid, large)
    if url.startswith("unix://"):
        path = Path(url.removeprefix("unix://"))
        assert [file.name for file in path.parent.iterdir() if file.name.startswith(path.name)] == []


@pytest.mark.slow
def test_a_server_killed_at_any_instant(
    new_url: str, transport: str, victims: Victims, steps: int | None, large: bytes, noticed: Noticed
) -> None:
    """Also between system calls, of which there are none while shared memory is busy."""
    url = new_url
    if transport == "tcp":
        url = victims.start("server", new_url, "after", seed=0, seconds=0.0)["url"]
        victims.outcome()
    rounds = 6 if steps else 150
    orders = ({"how": "after", "seed": SEED + number, "seconds": 0.1} for number in range(rounds))
    found = kill_servers(victims, url, orders, large, many_of_each, noticed.setdefault(f"server of {transport}", []))
    assert found == rounds
    left_behind_is_taken_over(url, large)


@pytest.mark.slow
def test_a_client_killed_at_any_instant(
    server: ServerProcess, transport: str, victims: Victims, steps: int | None, large: bytes, noticed: Noticed
) -> None:
    """Also between system calls. The server closes the stream that the dead client was reading."""
    next_client_is_served(server.url, server.pid, large)
    before = Holdings.of(server.pid)
    with nearcall.connect(server.url, Target) as watcher:
        for number in range(6 if steps else 150):
            order = {"seed": SEED + number, "seconds": 0.1}
            victims.start("client", server.url, "after", script="many_of_each", **order)
            assert victims.outcome()["how"] == "killed"
            key = str(number)
            victims.start("client", server.url, "after", script="reads_without_end", key=key, **order)
            killed = victims.outcome()["at"]
            if watcher.has_begun(key):
                eventually(lambda key=key: watcher.closed_at(key) is not None, "the stream of a dead client goes on")  # type: ignore[misc]
                took = ((watcher.closed_at(key) or 0) - killed) / 1e9
                assert took < BOUND
                noticed.setdefault(f"client of {transport}", []).append(max(took, 0.0))
    comes_back_to(server.pid, before)


@pytest.mark.slow
def test_a_client_that_reads_nothing_killed_at_any_instant(
    server: ServerProcess, victims: Victims, steps: int | None, large: bytes
) -> None:
    """What waited for it goes with it, and nobody waits for it before."""
    next_client_is_served(server.url, server.pid, large)
    before = Holdings.of(server.pid)
    for number in range(6 if steps else 150):
        victims.start("client", server.url, "after", script="reads_nothing", seed=SEED + number, seconds=0.2)
        next_client_is_served(server.url, server.pid, large)
        assert victims.outcome()["how"] == "killed"
    next_client_is_served(server.url, server.pid, large)
    comes_back_to(server.pid, before)


def stop(pid: int) -> None:
    """Stops a process that may be dead already."""

    def stands_still() -> bool:
        try:
            stats = [thread.joinpath("stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            return not Path(f"/proc/{pid}/task").exists()
        return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)

    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        eventually(stands_still, "it does not stop")


@pytest.mark.slow
def test_a_server_that_hangs_in_a_handshake_killed_at_any_instant(
    new_url: str, transport: str, victims: Victims, steps: int | None, large: bytes, noticed: Noticed
) -> None:
    before = Holdings.of(os.getpid())
    url = new_url
    for number in range(6 if steps else 150):
        started = victims.start("server", url, "after", seed=SEED + number, seconds=0.1)
        url = started["url"]
        stop(started["pid"])
        with pytest.raises(nearcall.Unavailable):
            nearcall.connect(url, Target, handshake_timeout=30)
        at = time.monotonic_ns()
        took = (at - victims.outcome()["at"]) / 1e9
        assert took < BOUND
        noticed.setdefault(f"server of {transport}, in a handshake", []).append(max(took, 0.0))
    comes_back_to(os.getpid(), before, threads=0)
    left_behind_is_taken_over(url, large)
