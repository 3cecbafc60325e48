"""Plugins that mean harm, or are broken: the host goes on, is told which one and why, and serves the others."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nearcall import ResourceExhausted, sandbox
from nearcall.plugin import PluginHost
from nearcall.plugin.manifests import sandboxing
from nearcall.plugin.points.calls import Calls, Pool, pool
from nearcall.plugin.process import load

from ..survival.observing import eventually, resident
from .plugin_hosts import HONEST, Events, SpokenWords, make_host, still_serves, write_plugin
from .plugin_interface.host_api import More, Synth, key_pressed, menu, spoken_text


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


WRONG = """
@spoken_text.handler
def wrong(text): return 5
@menu.handler
def huge(limit): return ["x" * 50_000_000] * 3
@key_pressed.handler
def fails(key): raise KeyboardInterrupt(key) if key == "k" else RuntimeError("\\x1b[2J" + key * 100_000)
"""


@pytest.mark.parametrize("error", ["Unavailable", "Cancelled"])
def test_one_that_is_there_and_says_that_it_is_not_is_told_of(
    error: str, plugins: Path, speech: SpokenWords, events: Events
) -> None:
    code = f"import nearcall\n@spoken_text.handler\ndef absent(text): raise nearcall.{error}('not at home')\n"
    write_plugin(plugins, "bad", code)
    with make_host(plugins, speech, events) as host:
        assert host.extension(spoken_text)("hi") == "hi."
        assert events.wait_for("bad", "error").text.startswith(f"failed in spoken_text: {error}: ")
        assert host.plugins["bad"].state == "running"


def test_wrong_huge_and_failing_answers_are_left_out(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", WRONG)
    with make_host(plugins, speech, events, max_message_size=1 << 20) as host:
        assert host.extension(spoken_text)("hi") == "hi."
        before = resident(os.getpid())
        assert host.extension(menu)(1) == []
        assert resident(os.getpid()) < before + (40 << 20)
        for key in ("k", "x"):
            host.extension(key_pressed)(key)
        error = events.wait_for("bad", "error")
        assert "spoken_text" in error.text
        assert "\x1b" not in error.text
        assert len(error.text) < 5000
        events.wait_for("bad", "error")
        still_serves(host)


STANDS_FOR_ANOTHER = """
import sys
try: open({outside!r}, "a").write(__name__ + " ")
except OSError: pass
sys.path.remove({directory!r})
del sys.modules[__name__]
__import__(__name__)
sys.path.insert(0, {directory!r})
"""


def test_its_modules_stand_for_no_others_before_it_is_confined(
    plugins: Path, speech: SpokenWords, events: Events, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not sandbox.available().provides("files"):
        pytest.skip("this system cannot keep a plugin from writing")
    outside = tmp_path_factory.mktemp("outside") / "written"
    folder = write_plugin(plugins, "bad", "@spoken_text.handler\ndef loud(text): return text.upper()\n")
    code = STANDS_FOR_ANOTHER.format(outside=str(outside), directory=str(folder))
    for name in (*sys.stdlib_module_names, "nearcall", "msgspec", "typing_extensions"):
        (folder / f"{name}.py").write_text(code)
    with make_host(plugins, speech, events) as host:
        assert host.extension(spoken_text)("hi") == "HI."  # both have been asked
    assert not outside.exists(), outside.read_text()


RAW = {
    "noise": "os.write(0, os.urandom(50_000))",
    "half a frame": "os.write(0, b'\\x00\\x00')",
    "nothing more": "import socket; socket.socket(fileno=os.dup(0)).shutdown(socket.SHUT_RDWR)",
    "every descriptor": """
for name in os.listdir('/proc/self/fd'):
        try: os.write(int(name), os.urandom(5000))
        except OSError: pass""",
    "shared memory": """
import ctypes
for line in open('/proc/self/maps'):
        if 'memfd' in line and 'w' in line.split()[1]:
            low, high = (int(part, 16) for part in line.split()[0].split('-'))
            ctypes.memset(low, 255, high - low)""",
}


@pytest.mark.parametrize("code", RAW.values(), ids=RAW.keys())
def test_raw_bytes_harm_nobody_else(code: str, plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", f"@key_pressed.handler\ndef write(key):\n    {code.strip()}\n")
    with make_host(plugins, speech, events, unresponsive=1.0) as host:
        host._by_id["bad"].handlers()[0].limit(1.0)
        for _ in range(5):
            host.extension(key_pressed)("x")
            still_serves(host)


def test_raw_bytes_instead_of_a_handshake(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", "while True: os.write(0, os.urandom(1000))")
    with make_host(plugins, speech, events, restarts=1, handshake_timeout=5.0) as host:
        events.wait_for("bad", "failed")
        still_serves(host)


FORGES = """
speech = plugin.use("speech", Speech)
@menu.handler
def forge(limit):
    speech.speak("mine")
    handle = speech._nearcall_target._nearcall_handle
    found, mine = [], handle.number
    for number in [*range(limit), *(mine + shift for shift in range(-20, 20) if shift), 2**63, 2**64 - 1]:
        handle.number = number
        speech._nearcall_target.__dict__.pop("speak", None)
        try: found.append(str(speech._nearcall_target.speak("forged")))
        except Exception as error: pass
    handle.number = mine
    return found
"""


def test_forged_references_are_worth_nothing(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", FORGES)
    write_plugin(
        plugins, "other", "speech = plugin.use('speech', Speech)\ndef start(): speech.speak('other')", entry=":start"
    )
    with make_host(plugins, speech, events) as host:
        assert host.extension(menu)(50) == []
        assert sorted(speech.heard) == ["mine", "other"]
        still_serves(host)


def test_what_it_may_not_have_cannot_be_taken(plugins: Path, speech: SpokenWords, events: Events) -> None:
    """A plugin that claims handlers it does not have, and takes what it did not ask for."""
    claims = """
from nearcall.plugin.inside.registry import registry, Registered
registry.handlers["menu"] = Registered(object(), 10**15)
registry.used.update({str(n): (Speech, plugin.use("speech", Speech)) for n in range(1000)})
"""
    write_plugin(plugins, "bad", claims, permissions={})
    other = """
from nearcall.plugin.inside import runtime, serving
handlers, offers = {"menu": 2**62, "x" * 1000: 1}, ["Synth", "x" * 1000] * 1000
serving.PluginRuntime.about = lambda self: runtime.About(1, "3", handlers, offers, ["speech"], [{}])
"""
    write_plugin(plugins, "liar", other, permissions={})
    with make_host(plugins, speech, events, restarts=0) as host:
        events.wait_for("bad", "died")
        assert "does not fit this host" in events.wait_for("liar", "failed").text
        assert speech.heard == []
        still_serves(host)


def test_one_that_prints_gigabytes_waits(
    plugins: Path, speech: SpokenWords, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
def flood(stream, line):
    while True: stream.write(line)
for args in ((sys.stdout, "x" * 100_000), (sys.stderr, "y\\n" * 1000)):
    threading.Thread(target=flood, args=args, daemon=True).start()
@menu.handler
def answer(limit): return ["here"]
"""
    write_plugin(plugins, "bad", code)
    rate = 20_000
    with caplog.at_level(logging.INFO, "nearcall.plugin.bad"):
        began = time.monotonic()
        with make_host(plugins, speech, events, output_rate=rate) as host:
            for _ in range(200):
                assert host.extension(menu)(1) == ["here"]
            eventually(lambda: len(caplog.records) > 300, "nothing is logged")
            still_serves(host)
        logged = sum(len(record.getMessage()) for record in caplog.records if record.name == "nearcall.plugin.bad")
        # Two streams, each with a second's worth at once, and what the pipes held at the end.
        assert logged < 2 * rate * (time.monotonic() - began + 2) + (1 << 18)
        assert all(len(record.getMessage()) < 2100 for record in caplog.records)


RECURSES = """
speech = plugin.use("speech", Speech)
@spoken_text.handler
def again(text): return speech.back(text)
"""


def test_one_that_calls_itself_through_the_host_comes_to_an_end(
    plugins: Path, speech: SpokenWords, events: Events
) -> None:
    write_plugin(plugins, "bad", RECURSES)
    with make_host(plugins, speech, events, max_calls=8) as host:
        speech.call_back = lambda text: host.extension(spoken_text)(text + "+")
        host.extension(spoken_text)("hi")
        assert "ResourceExhausted" in events.wait_for("bad", "error").text
        speech.call_back = str
        still_serves(host)


BUSY = """
def burn():
    while True: pass
threading.Thread(target=burn, daemon=True).start()
"""


@pytest.mark.parametrize("sandbox", ["off", "best"])
def test_one_that_takes_the_processor_is_ended(
    sandbox: str, plugins: Path, speech: SpokenWords, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "EVERY", 0.5)
    write_plugin(plugins, "bad", BUSY)
    # The sandbox does not slow it down to less than that, so that it is the host who ends it.
    monkeypatch.setattr(sandboxing, "policy_for", functools.partial(unlimited, sandboxing.policy_for))
    with make_host(plugins, speech, events, cpu_share=0.1, restarts=1, sandbox=sandbox) as host:
        died = events.wait_for("bad", "died")
        assert re.fullmatch(r"took \d+% of a processor for .* s, and may take 10%", died.text)
        events.wait_for("bad", "failed")
        still_serves(host)
    assert not events.of("honest", "died")


def unlimited(policy_for: Callable[..., dict[str, object]], *args: object) -> dict[str, object]:
    return policy_for(*args[:4])


@pytest.mark.parametrize("share", [0, "half", True, float("nan"), 2000])
def test_a_share_that_is_none_is_refused(share: object, plugins: Path) -> None:
    with pytest.raises(ValueError, match="cpu_share must be a number of processors"):
        PluginHost(plugins, cpu_share=share)  # type: ignore[arg-type]


HOARDS = """
speech = plugin.use("speech", Speech)
more = plugin.use("more", More)
@spoken_text.handler
def hoard(text):
    kept = []
    for take in (speech.words, more.numbers) * 10:
        stream = take(10_000_000)
        try:
            next(stream)
            kept.append(stream)
        except Exception as error:
            for each in kept: each.close()
            return f"{len(kept)} {type(error).__name__}"
"""


DROPS = """
speech = plugin.use("speech", Speech)
@spoken_text.handler
def drop(text):
    for _ in range(100): speech.words(5).close()
    for _ in range(100): next(speech.words(5))
    return "".join(speech.words(1))
"""


class Numbers(More):
    def numbers(self, count: int) -> Iterator[int]:
        yield from range(count)


def test_its_calls_of_all_services_are_counted_together(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", HOARDS, permissions={"speech": "Why not.", "more": "Why not."})
    services = {"speech": speech, "more": Numbers()}
    with make_host(plugins, speech, events, max_calls=8, services=services) as host:
        for _ in range(3):  # what has ended does not count
            assert host.extension(spoken_text)("hi") == "8 ResourceExhausted."
            eventually(lambda: pool.under_way == 0, "calls stay under way")


def test_streams_that_it_drops_do_not_count(plugins: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(plugins, "bad", DROPS)
    with make_host(plugins, speech, events, max_calls=300) as host:
        assert host.extension(spoken_text)("hi") == "word 0."
        eventually(lambda: pool.under_way == 0, "calls stay under way")


def test_those_who_call_much_leave_room_for_the_others() -> None:
    shared = Pool(256)
    greedy = [Calls(f"greedy {number}", 100, shared) for number in range(3)]
    modest = Calls("modest", 100, shared)
    numbers: dict[Calls, list[int]] = {each: [] for each in (*greedy, modest)}

    def fill(calls: Calls) -> int:
        with contextlib.suppress(ResourceExhausted):
            while len(numbers[calls]) < 200:
                numbers[calls].append(calls.enter())
        return len(numbers[calls])

    assert [fill(each) for each in greedy] == [100, 92, 16]  # the third has its share of the rest
    assert fill(modest) == 16
    for calls, entered in numbers.items():
        for number in (*entered, *entered):  # leaving twice is harmless
            calls.leave(number)
    assert shared.under_way == 0


SCRIBBLES = """
import nearcall, numpy
class Changing(Synth):
    def pid(self): return os.getpid()
    def render(self, text): yield b""
    def buffer(self, size):
        memory = nearcall.empty(size, "u1")
        def scribble():
            while True: memory[:] = os.getpid() % 251; memory[::2] = 0
        threading.Thread(target=scribble, daemon=True).start()
        return memoryview(memory)
plugin.offer(Changing())
"""


def test_a_buffer_that_changes_while_it_is_read_is_only_wrong(
    plugins: Path, speech: SpokenWords, events: Events
) -> None:
    pytest.importorskip("numpy")
    write_plugin(plugins, "bad", SCRIBBLES)
    with make_host(plugins, speech, events) as host:
        view = host.plugins["bad"].service(Synth).buffer(1_000_000)
        for _ in range(20):
            assert len(bytes(view)) == 1_000_000
        host.plugins["bad"].stop()
        assert len(bytes(view)) == 1_000_000
        still_serves(host)
