"""Measurements of the plugin host. Each runs in the client's process, which is the host, and returns plain numbers.

Each is accompanied by a measurement without the plugin layer: the same call in a spawned child, processes that are only
woken, an interpreter that only starts.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nearcall_lab.contract import Spec
from nearcall_lab.engine.usage import cpu_ns
from nearcall_lab.runtime_bench.plugin_interface.bench_points import POINTS, filtered, happened, provoked
from nearcall_lab.runtime_bench.plugin_peers import PEERS, start_peer
from nearcall_lab.runtime_bench.wakes import floors

TEXT, REPLY = "fifteen letters", "FIFTEEN LETTERS"
TURNS = 5
"""What is compared takes turns, so that a slow moment of the machine meets all of it."""
PATIENCE_S = 120.0
"""Seconds that plugins may take to start: fifty of them start at once."""
INTERFACE = Path(__file__).with_name("plugin_interface")

FILTERS = """
@filtered.handler
def upper(text: str) -> str:
    return text.upper()
"""
HEARS = """
@happened.handler
def hear(what: str) -> None:
    pass
"""
HANGS = """
import threading

@provoked.handler
def hang(what: str) -> None:
    threading.Event().wait()
"""
DIES = """
import os

@provoked.handler
def die(what: str) -> None:
    os._exit(1)
"""


def _host(spec: Spec, plugins: dict[str, str], **options: Any) -> Any:
    """A host that is not started yet, with plugins that consist of the code in `plugins`."""
    from nearcall.plugin import PluginHost

    logging.getLogger("nearcall").setLevel(logging.CRITICAL)
    directory = Path(spec.directory) / f"plugins-{next(_numbers)}"
    for name, code in plugins.items():
        (directory / name).mkdir(parents=True)
        (directory / name / "plugin.toml").write_text(
            f'id = "bench.{name}"\nname = "{name}"\nversion = "1.0"\nsummary = "s"\nauthor = "a"\n'
            f'entry = "code_of_{name}"\n[host]\napi = ">=1.0"\n'
        )
        (directory / name / f"code_of_{name}.py").write_text(f"from bench_points import *\n{code}")
    return PluginHost(directory, points=POINTS, paths=[INTERFACE], handshake_timeout=PATIENCE_S, **options)


_numbers = itertools.count()


def _pids(host: Any) -> list[int]:
    """The processes of its plugins, all of which must run."""
    states = {plugin.id: plugin.state for plugin in host}
    if set(states.values()) != {"running"}:
        raise ValueError(f"not all plugins run: {states}")
    return [plugin.pid for plugin in host]


def _pin(pids: Iterable[int], cpus: Iterable[int]) -> None:
    """Pin all threads of some processes; threads that these start later inherit that."""
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), cpus)


def _timed(call: Callable[[str], str], seconds: float) -> array[int]:
    """Nanoseconds of calls, after some that are not counted."""
    samples, clock = array("q"), time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    for number in itertools.count():
        started = clock()
        reply = call(TEXT)
        finished = clock()
        if reply != REPLY:
            raise ValueError(f"wrong reply: {reply!r}")
        if number >= 50:
            samples.append(finished - started)
            if finished >= end:
                break
    return samples


def calls(spec: Spec, seconds: float, cpus: list[int]) -> dict[str, Any]:
    """Median nanoseconds of a call through an extension point with one handler, and of the same call by other means;
    for those that cannot be measured, the reason. Callees run on `cpus`.
    """
    samples: dict[str, array[int]] = {}
    problems: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(_host(spec, {"filters": FILTERS}))
        _pin(_pids(host), cpus)
        means = {"plugin": host.extension(filtered)}
        for name in PEERS:
            try:
                means[name] = stack.enter_context(start_peer(name, spec.directory, cpus))
            except Exception as error:
                problems[name] = f"{type(error).__name__}: {error}"[:200]
        for _ in range(TURNS):
            for name, call in means.items():
                samples[name] = samples.get(name, array("q")) + _timed(call, seconds / TURNS)
    return {"medians": {name: statistics.median(found) for name, found in samples.items()}, "problems": problems}


def event(spec: Spec, plugins: int, times: int) -> dict[str, float]:
    """Median nanoseconds to tell that many plugins of an event, each time after a pause in which they fall asleep; and
    of as many interpreters, and programs in C, that are only woken and answer.
    """
    woken = floors(plugins, times)
    samples = []
    with _host(spec, {f"hears{number}": HEARS for number in range(plugins)}) as host:
        _pids(host)
        tell = host.extension(happened)
        for _ in range(times):
            time.sleep(0.005)
            started = time.perf_counter_ns()
            tell("something")
            samples.append(time.perf_counter_ns() - started)
        _pids(host)
    return {"told": statistics.median(samples), **{f"woken {kind}": median for kind, median in woken.items()}}


def start(spec: Spec, times: int) -> dict[str, float]:
    """Median nanoseconds of an interpreter's start to its first word, and of a plugin's to its first reply."""
    bare, ready = [], []
    for _ in range(times):
        started = time.perf_counter_ns()
        with subprocess.Popen(
            [sys.executable, "-I", "-c", "import os; os.write(1, b'.')"], stdout=subprocess.PIPE
        ) as interpreter:
            assert interpreter.stdout is not None
            interpreter.stdout.read(1)
            bare.append(time.perf_counter_ns() - started)
        host = _host(spec, {"filters": FILTERS})
        started = time.perf_counter_ns()
        with host:
            if host.extension(filtered)(TEXT) != REPLY:
                raise ValueError("the plugin was not asked")
            ready.append(time.perf_counter_ns() - started)
    return {"interpreter": statistics.median(bare), "plugin": statistics.median(ready)}


def idle(spec: Spec, plugins: int, seconds: float) -> dict[str, float]:
    """CPU share of that many plugins together while nothing is called; and memory of each, KiB: its own, and its part
    of the memory that processes share.
    """
    with _host(spec, {f"idle{number}": FILTERS for number in range(plugins)}) as host:
        pids = _pids(host)
        host.extension(filtered)(TEXT)
        time.sleep(1.0)
        before, begin = sum(map(cpu_ns, pids)), time.monotonic_ns()
        time.sleep(seconds)
        share = (sum(map(cpu_ns, pids)) - before) / (time.monotonic_ns() - begin)
        memory = [_memory_kb(pid) for pid in pids]
    return {
        "share": share,
        "own": statistics.median(each["Private_Clean"] + each["Private_Dirty"] for each in memory),
        "part": statistics.median(each["Pss"] for each in memory),
    }


def _memory_kb(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}


def disturbed(spec: Spec, seconds: float, disturbing: bool) -> list[int]:
    """Nanoseconds of calls through three plugins. With `disturbing`, a fourth one hangs again and again meanwhile, and
    a fifth one dies of every call and is started again.
    """
    plugins = {f"good{number}": FILTERS for number in range(3)}
    if disturbing:
        plugins |= {"hangs": HANGS, "dies": DIES}
    samples = []
    with _host(spec, plugins, budget=0.05, unresponsive=0.5, restarts=1_000_000, first_pause=0.05) as host:
        ask, provoke = host.extension(filtered), host.extension(provoked)
        ask(TEXT)
        end = time.monotonic() + seconds
        for number in itertools.count():
            if number % 20 == 0:
                provoke("you")
            started = time.perf_counter_ns()
            reply = ask(TEXT)
            samples.append(time.perf_counter_ns() - started)
            # Of plugins that all took longer than their budget the text comes back as it was: such a call counts too.
            if reply not in (REPLY, TEXT):
                raise ValueError(f"wrong reply: {reply!r}")
            if time.monotonic() >= end:
                return samples
            time.sleep(0.0005)
    raise AssertionError("unreachable")
