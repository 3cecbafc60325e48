"""The runtime's targets: every one is judged, and the judgement follows the numbers."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from nearcall_lab.contract import Mechanism, Spec
from nearcall_lab.placement import choose
from nearcall_lab.results.histogram import latencies
from nearcall_lab.runtime_bench import floor, plugins
from nearcall_lab.runtime_bench.command import run
from nearcall_lab.runtime_bench.load_tasks import CURVE, DIRECTIONS
from nearcall_lab.runtime_bench.measure import PING_PONGS, RuntimeRun
from nearcall_lab.runtime_bench.plugin_peers import PEERS, start_peer
from nearcall_lab.runtime_bench.results import QUICK, Collected
from nearcall_lab.runtime_bench.targets import BESIDE, TARGETS, judge, markdown


def _collected(ours_ns: float) -> Collected:
    """Three rounds in which nearcall takes `ours_ns` and everything else 1 ms, except where a rate is meant."""
    collected = Collected()
    for turn in range(3):
        for cell in PING_PONGS:
            value = ours_ns if cell.mechanism.startswith("nearcall") else 1e6
            collected.add(cell.key, turn, value)
            collected.add_samples(cell.key, latencies(np.full(1000, int(value))))
        for key in ("view", "set-up", "import", "first reply"):
            collected.add(key, turn, ours_ns)
        for key in ("stream", "one-way 20", "one-way 4096"):
            collected.add(key, turn, 1e12 / ours_ns)
        for size in (20, 4096):
            collected.add(f"router {size} routed", turn, 1e12 / ours_ns)
            collected.add(f"router {size} plain", turn, 1e6)
        for key in ("asyncio client", "asyncio both"):
            collected.add(key, turn, ours_ns)
        collected.add("grpc.aio", turn, 1e6)
        for kind in ("tasks", "handlers", "threads"):
            collected.add(f"pipelined {kind}", turn, 1e9 / ours_ns)
        for count in CURVE:
            collected.add(f"clients {count}", turn, 1e12 / ours_ns if count > 1 else 1e6)
        collected.add("naps", turn, ours_ns / 1e4)
        collected.add("naps alone", turn, 0.2)
        for direction in DIRECTIONS:
            collected.add(f"streamed {direction}", turn, ours_ns / 1e3)
        collected.add_samples("beside", latencies(np.full(1000, int(ours_ns))))
        for key in ("60k", "1m", "frame"):
            collected.add(f"handed over {key}", turn, ours_ns)
        collected.add("handed over frames/s", turn, 1e12 / ours_ns)
        for transport in ("shm", "unix"):
            collected.add(f"objects {transport} plain", turn, 1000)
            for key in ("object", "plain, passing", "back"):
                collected.add(f"objects {transport} {key}", turn, ours_ns)
        collected.add("grpc burst", turn, ours_ns)
        collected.add("grpc stream", turn, 1e12 / ours_ns)
        collected.add("grpc client nearcall", turn, ours_ns)
        collected.add("grpc client grpcio", turn, 1e6)
        for key in ("grpc connections", "grpc calls"):
            collected.add(key, turn, ours_ns / 1e3)
        for key in ("plugin call plugin", "plugin event told", "plugin start beyond"):
            collected.add(key, turn, ours_ns)
        for name in PEERS:
            collected.add(f"plugin call {name}", turn, 1e6)
        for key in ("plugin event woken python", "plugin start interpreter", "plugin idle own", "plugin idle part"):
            collected.add(key, turn, 1000)
        collected.add("plugin idle share", turn, ours_ns / 1e9)
        for key in ("plugin disturbed", "plugin undisturbed"):
            collected.add_samples(key, latencies(np.full(1000, int(ours_ns))))
        collected.add("ring", turn, 700)
        collected.add("idle", turn, ours_ns / 1e9)
        collected.add("memory private", turn, ours_ns / 1e3)
    return collected


def test_all_met_when_fast() -> None:
    assert [v.what for v in judge(_collected(1000)) if v.met is not True and v.target != BESIDE] == []


def test_none_met_when_slow() -> None:
    assert [v.what for v in judge(_collected(1e9)) if v.met is not False and v.target != BESIDE] == []


def test_tasks_that_miss_the_target_do_not_hide_behind_threads_that_meet_it() -> None:
    collected = _collected(1000)
    collected.values["pipelined tasks"] = dict.fromkeys(range(3), 307e3)
    missed = [(v.what, v.measured) for v in judge(collected) if v.met is False]
    assert missed == [("64 tasks that call at once on one connection", "307 K calls/s")]


def test_what_stands_beside_a_target_is_shown_and_not_judged() -> None:
    collected = _collected(5000)
    beside = {v.what: v for v in judge(collected) if v.target == BESIDE}
    row = beside["the same call, RPyC on pipes"]
    assert row.met is None
    assert row.measured == "1.00 ms, 200× [200–200]"


def test_only_what_was_measured_is_shown_if_some_tasks_were_chosen() -> None:
    collected = Collected()
    collected.add("plugin event told", 0, 2e6)
    (verdict,) = judge(collected, all_of_them=False)
    assert (verdict.measured, verdict.met) == ("2.00 ms", False)


def test_a_pattern_that_finds_no_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no task is called 'plugins-of-others'; there are .*plugin call"):
        RuntimeRun(1, QUICK, None, "plugins-of-others").tasks()


def test_other_work_is_told_also_where_no_ping_pong_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            assert run(Console(), tmp_path, 1, None, quick=True, only="import") == 0
        finally:
            other.kill()
    report = json.loads((tmp_path / "runtime-part.json").read_text(encoding="utf-8"))
    assert any("other work was running" in flag for flag in report["red_flags"])
    said = capsys.readouterr().out
    assert "first reply in a new process" in said
    assert "Caution: a quick run, too short to publish." in said
    assert "Caution: other work was running" in said


def test_every_peer_of_a_plugin_answers(tmp_path: Path) -> None:
    for name in PEERS:
        with start_peer(name, str(tmp_path), list(os.sched_getaffinity(0))) as call:
            assert call("Straße") == "STRASSE", name


def test_what_the_tasks_of_plugins_measure(tmp_path: Path) -> None:
    """Each of them in a small form, in this process."""
    spec = Spec(Mechanism("m", "m", "nearcall"), str(tmp_path), "token")
    found = plugins.calls(spec, 0.01, list(os.sched_getaffinity(0)))
    assert found["problems"] == {}
    assert {"plugin", *PEERS} == set(found["medians"])
    told = plugins.event(spec, 3, 2)
    assert told.keys() - {"woken c"} == {"told", "woken python"}, "and programs in C, where they can be compiled"
    assert all(each > 0 for each in told.values())
    assert plugins.start(spec, 1)["plugin"] > 0
    idle = plugins.idle(spec, 2, 0.1)
    assert 0 <= idle["share"] < 1
    assert idle["part"] >= idle["own"] > 1000
    assert plugins.disturbed(spec, 0.2, disturbing=True)
    assert len(os.listdir(tmp_path)) == 5 + 2, "a directory for each host, and the sockets of two peers"


def test_what_grpc_fails_with_is_said_in_words() -> None:
    collected = _collected(1000)
    collected.problems["grpc.aio naps"] = "client: AioRpcError CANCELLED"
    table = markdown(judge(collected))
    assert "grpc.aio: no time, since calls fail with the status CANCELLED |" in table


def test_absent_measurements_show_their_reason() -> None:
    collected = Collected()
    collected.problems["stream"] = "not installed: nearcall"
    table = markdown(judge(collected))
    assert "| server stream of integers | ≥ 1 M items/s | stream: not installed: nearcall | – |" in table
    assert len(table.splitlines()) == len(TARGETS) + 2


def test_what_makes_several_measurements_says_for_each_why_it_is_absent() -> None:
    collected = Collected()
    collected.problems["grpc client"] = "failed: grpc-go: a program that is to be built first"
    (found,) = [each for each in judge(collected) if "grpc-go" in each.what]
    assert found.measured == "grpc: failed: grpc-go: a program that is to be built first"


def test_floor_program(tmp_path: Path) -> None:
    program = tmp_path / "floor"
    program.write_text('#!/bin/sh\necho warming up\necho \'{"size":15,"p50_ns":701.5,"p99_ns":1100,"n":10}\'\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert floor.find(str(program)) == (str(program), "")
    assert floor.measure(str(program), choose()) == {15: 701.5}


def test_floor_program_absent() -> None:
    path, reason = floor.find("/nowhere/floor")
    assert path == ""
    assert reason == "not an executable file: /nowhere/floor"


@pytest.mark.parametrize("mode", ["apart", "same", "free"])
def test_placement_is_within_what_is_allowed(mode: str) -> None:
    placement = choose(mode)  # type: ignore[arg-type]
    allowed = os.sched_getaffinity(0)
    assert {*placement.client, *placement.server} <= allowed
    if placement.mode == "apart":
        assert not set(placement.client) & set(placement.server)
    if placement.mode == "same":
        assert placement.client == placement.server
