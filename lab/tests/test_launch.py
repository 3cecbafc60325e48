"""Every way that calls arrive, measured with real processes, and every way to be wrong found out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm
from family import children
from nearcall_lab.engine import launch as launch_module
from nearcall_lab.engine.launch import CellRun, crew_of, fresh_processes, measure
from nearcall_lab.registry import Entrant, entrants_of
from nearcall_lab.results.histogram import histogram_of
from nearcall_lab.results.model import Launch
from nearcall_lab.scenario.cell import Cell, Mode, ModeKind, Work
from nearcall_lab.workers import worker
from nearcall_lab.workers.worker import LaunchFailed, Unsupported

ABLE = {entrant.mechanism.name: entrant for entrant in [*entrants_of("able"), *entrants_of("liars")]}
STYLES = ["able", "able-async", "able-uvloop"]
ECHO = Work("echo", size=100)


def _measure(name: str, work: Work, mode: Mode, **more: object) -> Launch:
    cell = Cell(name, work, mode, **more)  # type: ignore[arg-type]
    try:
        return measure(cell, ABLE[name], 3, 7)
    except LaunchFailed as failure:
        if failure.logs is not None:
            shutil.rmtree(failure.logs)
        raise


def _mode(kind: ModeKind = "closed", **more: object) -> Mode:
    return Mode(kind, **{"seconds": 0.1, "warmup_s": 0.02, **more})  # type: ignore[arg-type]


def _sound(launch: Launch) -> None:
    """What holds for every launch that went well."""
    assert (launch.number, launch.position) == (3, 7)
    assert launch.calls > 0
    assert launch.wall_s > 0
    assert not launch.errors
    assert launch.left_behind == []
    assert launch.first_call_ns > 0
    assert launch.warmup_calls > 0
    assert len(launch.interval_p50_ns) == 20
    assert max(launch.interval_p50_ns) > 0
    assert launch.canary_ns > 0
    assert launch.canary_after_ns > 0
    for side in (launch.client, launch.server):
        assert side.cpu_s > 0
        assert side.peak_rss_kb >= side.pss_kb > 1000
        assert side.processes == 1
        assert side.threads >= 1
        assert side.descriptors >= 3
        assert side.voluntary_switches + side.involuntary_switches > 0
    assert launch.response is not None
    assert launch.response.n == launch.calls
    assert histogram_of(launch.response).get_total_count() == launch.calls


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("work", [ECHO, Work("quote"), Work("wait", delay_s=0.003)], ids=lambda work: work.operation)
def test_closed(name: str, work: Work) -> None:
    launch = _measure(name, work, _mode())
    _sound(launch)
    assert launch.service is not None
    assert launch.lag is None
    assert launch.due == 0
    assert launch.service.min >= work.delay_s * 1e9
    assert launch.little == pytest.approx(launch.throughput * launch.service.mean / 1e9)


@pytest.mark.parametrize("name", STYLES)
def test_connections_and_processes(name: str) -> None:
    launch = _measure(name, ECHO, _mode(connections=5, client_processes=2))
    assert launch.client.processes == 2
    launch.client.processes = 1
    _sound(launch)
    assert launch.server_opened is not None
    assert launch.server_opened >= 5


def test_outstanding_calls_overlap() -> None:
    launch = _measure("able-async", Work("wait", delay_s=0.05), _mode(outstanding=40))
    _sound(launch)
    assert launch.wall_s < launch.calls * 0.05, "calls of 50 ms took turns"


def test_a_number_of_calls_ends_a_cell() -> None:
    launch = _measure("able", ECHO, _mode(calls=31, connections=2))
    _sound(launch)
    assert launch.calls == 31


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("arrivals", ["poisson", "fixed"])
def test_open(name: str, arrivals: str) -> None:
    launch = _measure(name, ECHO, _mode("open", rate=300, arrivals=arrivals, seconds=0.9))
    _sound(launch)
    assert launch.response is not None
    assert launch.service is not None
    assert launch.lag is not None
    assert launch.calls == launch.due or launch.overloaded
    assert launch.offered == pytest.approx(300, rel=0.35)
    assert launch.response.mean == pytest.approx(launch.service.mean + launch.lag.mean)
    assert launch.lag.min >= 0
    assert launch.little == pytest.approx(1, abs=0.01)


def test_open_over_processes_offers_what_was_asked_for() -> None:
    launch = _measure("able", ECHO, _mode("open", rate=400, arrivals="fixed", connections=4, client_processes=2))
    assert launch.due == 40


def test_too_much_is_overload_and_no_latency() -> None:
    """Ten waits of 20 ms on one connection need 200 ms; 100 in a second cannot be done."""
    launch = _measure("able", Work("wait", delay_s=0.02), _mode("open", rate=100, arrivals="fixed", seconds=1.0))
    assert launch.overloaded
    assert launch.calls < 0.99 * launch.due
    assert launch.lag is not None
    assert launch.lag.max > 0.2e9


@pytest.mark.parametrize("name", STYLES)
def test_burst(name: str) -> None:
    outstanding = 1 if name == "able" else 20
    mode = _mode("burst", calls=20, outstanding=outstanding, connections=20 // outstanding)
    launch = _measure(name, Work("wait", delay_s=0.03), mode)
    _sound(launch)
    bursts = launch.phases["burst"]
    assert launch.calls == launch.due == 20 * bursts.n
    assert bursts.min >= 0.03e9
    assert launch.wall_s == pytest.approx(bursts.mean * bursts.n / 1e9)
    assert launch.response is not None
    assert launch.response.max <= bursts.max


@pytest.mark.parametrize("name", STYLES)
def test_streams(name: str) -> None:
    launch = _measure(name, Work("count", items=200), _mode("stream"))
    _sound(launch)
    assert launch.response is not None
    assert launch.phases["first item"].n == launch.calls
    assert launch.phases["first item"].mean < launch.response.mean


@pytest.mark.parametrize("name", STYLES)
def test_mixed(name: str) -> None:
    launch = _measure(name, Work("echo", sizes=(10, 1000, 50_000)), _mode("mixed"))
    _sound(launch)
    assert list(launch.phases) == ["10 B", "1 KB", "50 KB"]
    assert launch.response is not None
    assert sum(phase.mean for phase in launch.phases.values()) <= launch.response.mean


@pytest.mark.parametrize("name", STYLES)
def test_connect(name: str) -> None:
    launch = _measure(name, ECHO, _mode("connect"))
    _sound(launch)
    assert launch.connected == "at open"
    made, connected, replied = (launch.phases[name] for name in ("made", "connected", "first reply"))
    assert made.mean < connected.mean < replied.mean
    assert launch.response is not None
    assert replied.histogram == launch.response.histogram


def test_a_connection_that_is_only_made_by_the_first_call_is_found_out() -> None:
    assert _measure("able-lazy", ECHO, _mode("connect")).connected == "at first call"


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("rate", [0.0, 500.0])
def test_one_way(name: str, rate: float) -> None:
    mode = _mode("one-way", rate=rate, extra_copy=name == "able", connections=2)
    launch = _measure(name, Work("send", size=64), mode)
    _sound(launch)
    assert launch.sent == launch.delivered == launch.calls
    assert launch.duplicated == launch.reordered == launch.dropped == 0
    assert launch.response is not None
    assert launch.response.min > 0
    assert launch.phases["send call"].n == launch.sent
    assert (launch.lag is not None) == (launch.due > 0) == bool(rate)


def test_calls_after_one_way_messages_in_the_same_processes() -> None:
    """An adapter may count messages among its requests, or not: they are none."""
    cells = [Cell("able", Work("send", size=64), _mode("one-way", calls=100)), Cell("able", ECHO, _mode("closed"))]
    with fresh_processes(cells, ABLE["able"]) as measure_here:
        launches = [measure_here(cell, 3, 7) for cell in cells]
    assert launches[0].delivered == 100
    _sound(launches[1])


@pytest.mark.parametrize("name", ["able", "able-async"])
@pytest.mark.parametrize("kind", ["closed", "one-way"])
def test_server_and_client_in_one_process(name: str, kind: ModeKind) -> None:
    work = Work("send", size=64) if kind == "one-way" else ECHO
    launch = _measure(name, work, _mode(kind), same_process=True)
    assert launch.calls > 0
    assert not launch.errors
    assert launch.client.cpu_s > 0
    assert launch.server.processes == 0


# Found out


@pytest.mark.parametrize(
    ("name", "errors", "duplicated", "reordered"),
    [
        ("able-loses", {"lost"}, False, False),
        ("able-repeats", set(), True, False),
        ("able-swaps", set(), False, True),
        ("able-spoils", {"lost", "wrong content"}, False, False),
        ("able-says-dropped", set(), False, False),
    ],
)
def test_messages_that_go_wrong_are_counted(name: str, errors: set[str], duplicated: bool, reordered: bool) -> None:
    launch = _measure(name, Work("send", size=32), _mode("one-way", calls=100))
    assert launch.sent == 100
    assert set(launch.errors) == errors
    assert bool(launch.duplicated) == duplicated
    assert bool(launch.reordered) == reordered
    assert launch.delivered + launch.dropped + launch.errors.get("lost", 0) == 100
    assert bool(launch.dropped) == (name == "able-says-dropped")
    if duplicated:
        assert launch.duplicated == 10, "the messages 7, 17, … 97"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong-content", "byte 99 differs"),
        ("wrong-length", "99 bytes instead of 100"),
        ("stale", "differs"),
        ("never-asks", r"the client made \d+ calls, the server handled 0"),
        ("crashes-at-start", "RuntimeError: no luck today"),
        ("raises", "ValueError: cannot do that"),
        ("dies-while-serving", r"server ended unexpectedly \(exit status 7\)"),
    ],
)
def test_a_lying_adapter_is_found_out(name: str, reason: str) -> None:
    with pytest.raises(LaunchFailed, match=reason):
        _measure(name, ECHO, _mode())


def test_an_invented_stream_is_found_out() -> None:
    with pytest.raises(LaunchFailed, match="wrong stream: 9 items instead of 10"):
        _measure("able-invents-streams", Work("count", items=10), _mode("stream"))


def test_calls_that_fail_are_counted_and_the_rest_measured() -> None:
    launch = _measure("able-fails-sometimes", ECHO, _mode(calls=500))
    assert launch.calls == 500
    assert 40 < launch.errors["TimeoutError: not this time"] < 70


def test_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_module.worker, "START_TIMEOUT_S", 6.0)
    with pytest.raises(LaunchFailed, match="client did not answer within"):
        _measure("able-hangs", ECHO, _mode())


def test_what_it_does_not_claim_is_not_asked_of_it() -> None:
    with pytest.raises(Unsupported, match="one call at a time"):
        _measure("able", ECHO, _mode(outstanding=2))
    with pytest.raises(Unsupported, match="no operation 'wait'"):
        _measure("honest", Work("wait", delay_s=0.1), _mode())
    with pytest.raises(Unsupported, match="a connection for each of 2 client processes"):
        _measure("able", ECHO, _mode(client_processes=2))
    with pytest.raises(Unsupported, match="16 bytes"):
        _measure("able", Work("send", size=15), _mode("one-way"))


@pytest.fixture
def killer() -> Iterator[threading.Thread]:
    """Kills the launch's server as soon as its client runs, wherever it is then."""
    before = children()

    def kill() -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            fresh = sorted(children() - before)
            if len(fresh) == 2:
                os.kill(fresh[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    yield thread
    thread.join()


def test_a_killed_server_is_named_and_its_logs_are_kept(killer: threading.Thread) -> None:
    with pytest.raises(LaunchFailed, match=r"server ended unexpectedly \(SIGKILL\)") as caught:
        measure(Cell("able", ECHO, _mode(seconds=20.0)), ABLE["able"], 0, 0)
    logs = caught.value.logs
    assert logs is not None
    assert {path.name for path in logs.iterdir()} == {"server.log", "client.log"}
    shutil.rmtree(logs)


def test_a_process_that_is_left_behind_is_named_and_ended() -> None:
    launch = _measure("able-leaves-a-process", ECHO, _mode())
    assert launch.server.processes == 2
    assert len(launch.left_behind) == 1
    assert launch.left_behind[0].startswith("process ")


def test_the_secret_is_where_no_other_process_of_the_same_user_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "start", warm.start_cold)
    with crew_of([Cell("able", ECHO, _mode())], ABLE["able"]) as crew:
        assert crew.server is not None
        assert crew.secret > 0
        told = str(crew.secret)
        here = Path(f"/proc/{crew.server.process.pid}")
        config = json.loads((here / "cmdline").read_bytes().split(b"\0")[-2])
        assert told not in [str(value) for value in config.values()]
        assert told.encode() not in (here / "environ").read_bytes().replace(b"=", b"\0").split(b"\0")
        with pytest.raises(OSError, match="No such device or address"):  # a pipe would open
            os.open(here / "fd" / str(config["read_fd"]), os.O_RDONLY | os.O_NONBLOCK)


def test_secrets_differ_from_launch_to_launch() -> None:
    seen = set()
    for _ in range(3):
        with crew_of([Cell("able", ECHO, _mode())], ABLE["able"]) as crew:
            seen.add(crew.secret)
    assert len(seen) > 1


def test_an_entrant_without_its_program_fails_alone() -> None:
    entrant = Entrant(ABLE["able"].mechanism, "", program=("/no/such/program",))
    with pytest.raises(LaunchFailed, match="does not start") as caught:
        measure(Cell("able", ECHO, _mode()), entrant, 0, 0)
    assert caught.value.logs is not None
    shutil.rmtree(caught.value.logs)


@pytest.mark.parametrize("name", ["able", "able-async"])
def test_waiting_for_due_times_is_no_cpu_time_of_the_calls(name: str) -> None:
    launch = _measure(name, ECHO, _mode("open", rate=200))
    assert launch.client.waiting_s > 0
    assert launch.client.cpu_s > 0


def test_a_busy_machine_is_busy_until_the_launch_has_ended() -> None:
    cell = Cell("able", ECHO, _mode(seconds=0.1), "busy")
    before = children()
    with crew_of([cell], ABLE["able"]) as crew:
        others = children() - before - {worker.process.pid for worker in crew.workers}
        assert {frozenset(os.sched_getaffinity(pid)) for pid in others} == {
            frozenset({cpu}) for cpu in os.sched_getaffinity(0)
        }
        launch = CellRun(cell, crew).run(0, 0)
    assert launch.calls > 0
    assert launch.canary_ns == 0, "it would call the machine disturbed"
    assert children() == before
