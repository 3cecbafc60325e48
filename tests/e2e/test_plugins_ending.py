"""Plugins that die, hang and leave things behind: they are ended and started again, and nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import nearcall
from nearcall.plugin import AsyncPluginHost, PluginEvent, PluginHost

from ..survival.observing import eventually
from .plugin_hosts import HONEST, Events, SpokenWords, gone, make_host, options, still_serves, write_plugin
from .plugin_interface.host_api import key_pressed, menu, spoken_text
from .process import ROOT


@pytest.fixture
def speech() -> SpokenWords:
    return SpokenWords()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A directory with an honest plugin, which must be served whatever its neighbour does."""
    write_plugin(tmp_path, "honest", HONEST)
    return tmp_path


KILL = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.crash
@pytest.mark.parametrize(
    "code",
    [
        KILL,
        f"def start(): {KILL}",
        f"class Mine(Synth):\n    def __init_subclass__(cls): {KILL}\nclass Two(Mine): pass",
        "threading.Thread(target=lambda: (time.sleep(0.01), os.kill(os.getpid(), 9))).start()",
        "os._exit(3)",
        "sys.exit('no')",
        "import ctypes; ctypes.string_at(0)",
        "def start(): os._exit(0)",
        "def start(): os.close(0); time.sleep(0.1); os._exit(5)",
    ],
)
def test_one_that_ends_while_it_starts_is_tried_and_given_up(
    code: str, plugins: Path, speech: SpokenWords, events: Events
) -> None:
    write_plugin(plugins, "bad", "print('last words')\n" + code, entry=":start" if "def start" in code else "")
    with make_host(plugins, speech, events, restarts=2) as host:
        failed = events.wait_for("bad", "failed")
        assert "died 3 times in a row" in failed.text
        died = events.of("bad", "died")
        assert len(died) == 3
        assert all("last words" in each.last_lines for each in died)
        assert all(each.text.startswith(("was ended by signal", "ended with status")) for each in died)
        assert host.plugins["bad"].state == "failed"
        assert host.plugins["bad"].pid is None
        still_serves(host)


@pytest.mark.crash
def test_one_that_dies_in_a_handler_is_started_again(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", f"@key_pressed.handler\ndef die(key):\n    print('pressed', key)\n    {KILL}\n")
    with make_host(plugins, speech, events) as host:
        for count in (1, 2):
            events.wait_for("bad", "started", count=count)
            host.extension(key_pressed)("x")
            died = events.wait_for("bad", "died", count=count)
            assert died.text == "was ended by signal -9 (SIGKILL)".replace("-", "")
            assert died.last_lines == ("pressed x",)
            still_serves(host)


@pytest.mark.crash
@pytest.mark.parametrize(
    "code",
    [
        f"@plugin.on_stop\ndef die(): {KILL}",
        "@plugin.on_stop\ndef hang(): time.sleep(1000)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n@plugin.on_stop\ndef fail(): 1 / 0",
        "threading.Thread(target=time.sleep, args=(1000,)).start()",
        "import ctypes\ndef start():\n    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    ],
)
def test_one_that_ignores_its_end_is_ended(code: str, plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", code, entry=":start" if "def start" in code else "")
    with make_host(plugins, speech, events, grace=0.3) as host:
        pid = host.plugins["bad"].pid
        assert pid is not None
        host.plugins["bad"].stop()
        assert gone(pid)
        assert host.plugins["bad"].state == "stopped"
        still_serves(host)


def test_one_that_hangs_while_it_starts_is_ended(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", "print(os.getpid())\ntime.sleep(1000)")
    with make_host(plugins, speech, events, restarts=0, handshake_timeout=5.0) as host:
        died = events.wait_for("bad", "died")
        assert died.text == "was not ready within 5 s"
        eventually(lambda: gone(int(died.last_lines[0])), "it lives on")
        eventually(lambda: host.plugins["bad"].state == "failed", "it is tried for ever")
        host.plugins["honest"].start()
        still_serves(host)


BUDGET = 1.5
"""Seconds: more than a slow machine needs until a handler runs."""
HANGS = """
asked = open(os.path.join(os.path.dirname(__file__), "asked"), "a")
@spoken_text.handler
def hang(text):
    print(text, file=asked, flush=True)
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
        time.sleep(0.01)
    return "late " + text
"""


def test_one_that_never_answers_costs_its_budget_once(plugins: Path, speech: SpokenWords, events: Events) -> None:
    folder = write_plugin(plugins, "bad", HANGS)
    with make_host(plugins, speech, events) as host:
        host._by_id["bad"].handlers()[0].limit(BUDGET)
        for number in range(20):
            assert host.extension(spoken_text)(f"hi {number}") == f"hi {number}."
        assert (folder / "asked").read_text() == "hi 0\n"
        events.wait_for("bad", "late")
        assert len(events.of("bad", "late")) == 1
        # What hung comes to its end: it is asked again.
        (folder / "go").touch()
        eventually(lambda: host.extension(spoken_text)("hi") == "late hi.", "it is never asked again")
        events.wait_for("bad", "answers")


STOPS = """
@key_pressed.handler
def stop(key):
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_one_that_reads_nothing_keeps_no_event_from_the_others(
    plugins: Path, speech: SpokenWords, events: Events
) -> None:
    write_plugin(plugins, "bad", STOPS)
    code = "speech = plugin.use('speech', Speech)\n@key_pressed.handler\ndef key(key): speech.speak(key[:3])\n"
    for name in ("after", "before"):
        write_plugin(plugins, name, code)
    with make_host(plugins, speech, events) as host:
        host._by_id["bad"].handlers()[0].limit(0.2)
        # Longer than what there is room for: what the stopped one does not read waits, and the host does not.
        for number in range(5):
            host.extension(key_pressed)(f"{number:03}" + "x" * 400_000)
        assert speech.heard == [f"{number:03}" for number in range(5) for _ in range(2)]
        events.wait_for("bad", "late")
        still_serves(host)


def test_an_event_loop_is_not_held_up(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", HANGS)

    async def main() -> None:
        async with AsyncPluginHost(plugins, **options(speech, events)) as host:
            asking = asyncio.ensure_future(host.extension(spoken_text)("hi"))
            for _ in range(10):
                assert await host.extension(menu)(1) == []
            assert not asking.done()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    asyncio.run(main())


def test_one_that_stays_hung_is_ended_and_started_again(plugins: Path, speech: SpokenWords, events: Events) -> None:
    folder = write_plugin(plugins, "bad", HANGS)
    with make_host(plugins, speech, events, unresponsive=0.5) as host:
        host._by_id["bad"].handlers()[0].limit(BUDGET)
        assert host.extension(spoken_text)("hi") == "hi."
        assert events.wait_for("bad", "died").text.startswith("has not answered for")
        events.wait_for("bad", "started", count=2)
        (folder / "go").touch()
        assert host.extension(spoken_text)("hi") == "late hi."


def test_the_time_of_the_caller_is_not_the_plugins_fault(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", HANGS)
    with make_host(plugins, speech, events) as host:
        with nearcall.timeout(0.1):
            assert host.extension(spoken_text)("hi") == "hi"
        assert events.of("bad", "late") == []


@pytest.mark.crash
@pytest.mark.parametrize("how", ["stop", "die"])
def test_what_it_leaves_behind_is_ended(how: str, plugins: Path, speech: SpokenWords, events: Events) -> None:
    code = """
def start():
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: time.sleep(1)
    print("grandchild", pid)
@key_pressed.handler
def die(key): os._exit(1)
"""
    write_plugin(plugins, "bad", code, entry=":start")
    with make_host(plugins, speech, events, restarts=0) as host:
        last = host._by_id["bad"].run
        assert last is not None
        eventually(lambda: any("grandchild" in line for line in last.last), "it prints nothing")
        grandchild = next(int(line.split()[1]) for line in last.last if "grandchild" in line)
        assert not gone(grandchild)
        if how == "stop":
            host.plugins["bad"].stop()
        else:
            host.extension(key_pressed)("x")
            events.wait_for("bad", "died")
        eventually(lambda: gone(grandchild), "the grandchild lives on")
        still_serves(host)


HOST = """
import sys
from collections.abc import Callable
from pathlib import Path
from tests.e2e.plugin_hosts import *
events = Events()
host = make_host(Path(sys.argv[1]), SpokenWords(), events, handshake_timeout=60.0)
for each in host._by_id.values():
    each.start()
def pids():
    runs = [each.run for each in host._by_id.values()]
    return [run.process.pid for run in runs if run is not None and run.last]
eventually(lambda: len(pids()) == 3, "not all are started")
print(*pids(), flush=True)
sys.stdin.read()
"""


@pytest.mark.crash
def test_no_plugin_outlives_a_host_that_is_killed(tmp_path: Path) -> None:
    write_plugin(tmp_path, "idle", "print('x')")
    write_plugin(tmp_path, "importing", "print('x')\ntime.sleep(1000)")
    write_plugin(tmp_path, "stuck", "print('x')\nsignal.pthread_sigmask(signal.SIG_BLOCK, {2, 15})\nwhile True: pass")
    command = [sys.executable, "-c", HOST, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) == 3
        host.send_signal(signal.SIGKILL)
        host.wait(20)
        for pid in pids:
            eventually(lambda pid=pid: gone(pid), f"{pid} lives on")  # type: ignore[misc]


def test_threads_that_ask_while_plugins_come_and_go(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", f"@spoken_text.handler\ndef die(text):\n    {KILL}\n")
    answers: list[str] = []
    with make_host(plugins, speech, events, restarts=1000, first_pause=0.0) as host:
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                answers.append(host.extension(spoken_text)("hi"))

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asking:
            thread.start()
        events.wait_for("bad", "died", count=3)
        over.set()
        for thread in asking:
            thread.join()
        assert set(answers) == {"hi."}


@pytest.mark.crash
def test_an_event_loop_goes_on_beside_bad_plugins(plugins: Path, speech: SpokenWords, events: Events) -> None:
    folder = write_plugin(plugins, "hung", HANGS)
    write_plugin(plugins, "dead", f"@key_pressed.handler\ndef die(key):\n    {KILL}\n")
    write_plugin(plugins, "importing", "os._exit(3)")

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the state has no event
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with AsyncPluginHost(plugins, **options(speech, events, restarts=2)) as host:
            host._by_id["hung"].handlers()[0].limit(0.2)
            spoken, pressed = host.extension(spoken_text), host.extension(key_pressed)
            assert await asyncio.gather(*(spoken(f"hi {number}") for number in range(5))) == [
                f"hi {number}." for number in range(5)
            ]
            await until(lambda: len(events.of("hung", "late")) == 1)
            await until(lambda: host.plugins["dead"].state == "running")
            await pressed("x")
            await until(lambda: len(events.of("dead", "started")) == 2)
            await until(lambda: host.plugins["importing"].state == "failed")
            (folder / "go").touch()
            while await spoken("hi") != "late hi.":  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.crash
def test_restarts_leave_no_descriptors_and_threads(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", f"speech = plugin.use('speech', Speech)\n@key_pressed.handler\ndef die(key): {KILL}\n")

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    with make_host(plugins, speech, events, restarts=1000, first_pause=0.0) as host:

        def die(count: int) -> None:
            events.wait_for("bad", "started", count=count)
            eventually(lambda: host.plugins["bad"].state == "running", "it is not started again")
            host.extension(key_pressed)("x")
            events.wait_for("bad", "died", count=count)
            events.wait_for("bad", "started", count=count + 1)

        for count in range(1, 4):
            die(count)
        eventually(lambda: host.plugins["bad"].state == "running", "it is not started again")
        before = held()
        for count in range(4, 12):
            die(count)
        eventually(lambda: held() <= before, lambda: f"{held()} after {before}")


@pytest.mark.parametrize("what", ["starts", "stops", "raises"])
def test_who_is_told_may_use_the_host(what: str, plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", "os._exit(3)")
    hosts: list[PluginHost] = []

    def tell(event: PluginEvent) -> None:
        events(event)
        if event.plugin == "bad" and event.kind == "failed" and len(events.of("bad", "failed")) == 1:
            if what == "starts":
                hosts[0].plugins["bad"].start()
            elif what == "stops":
                hosts[0].stop()
            else:
                raise ValueError("not mine")

    host = make_host(plugins, speech, events, on_event=tell, restarts=0)
    hosts.append(host)
    host.start()
    if what == "starts":
        events.wait_for("bad", "failed", count=2)
    elif what == "stops":
        eventually(lambda: host.plugins["honest"].state == "stopped", "it is not stopped")
    else:
        events.wait_for("bad", "failed")
        still_serves(host)
    host.stop()


HANGS_UP = """
import socket, stat
@spoken_text.handler
def hang_up(text):
    for number in range(3, 20):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode): socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_RDWR)
        except OSError: pass
    return text
"""


def test_one_that_hangs_up_is_not_told_to_have_been_refused_its_end(
    plugins: Path, speech: SpokenWords, events: Events
) -> None:
    """It ends by itself then, with what it has started; a confined one has started nothing, and may not kill."""
    write_plugin(plugins, "bad", HANGS_UP)
    with make_host(plugins, speech, events, restarts=0, sandbox="best") as host:
        host.extension(spoken_text)("a")
        assert events.wait_for("bad", "died").text == "ended with status 0"
        still_serves(host)
