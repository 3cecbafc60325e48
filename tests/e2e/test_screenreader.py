"""The screen reader in examples/: speech goes on, whatever its plugins do."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nearcall.sandbox import available

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/screenreader"
DOCUMENT = (EXAMPLE / "document.txt").read_text(encoding="utf-8").splitlines()
SPEED = "8"
PATIENT = ("--budget", "4", "--start", "40")
"""The machine may be slow, and an honest plugin must not be late for that."""


def run(*arguments: str | Path, cwd: Path) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=55, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_everything_is_read_while_plugins_hang_crash_and_spy(tmp_path: Path) -> None:
    out = run(EXAMPLE / "screenreader.py", "--speed", SPEED, "--output", tmp_path, *PATIENT, cwd=tmp_path)
    spoken = re.findall(r"^speaks: (.*)$", out, re.MULTILINE)
    assert len(spoken) == len(DOCUMENT) + 1
    assert spoken[1].startswith("Each add-on of this one runs in a process of its own, for example")
    assert "The number 1 2 3 4 5 6 7 was read" in spoken[5]
    assert spoken[-1] == "1 numbers were spelled"
    assert "hangs did not answer speech.extensions.filter_speechSequence within 4 s, and is left out" in out
    assert "crashes was ended by signal 11 (SIGSEGV)" in out
    assert "Weather asks for the network: Asks for the weather. The user says no." in out
    looked = re.findall(r"^spy prints: (could not|read|connected).*$", out, re.MULTILINE)
    provided = {layer.name for layer in available().layers if layer.state == "provided"}
    if {"files", "system_calls"} <= provided:
        assert looked == ["could not", "could not"], out
    assert re.search(r"^braille: ⠠⠁", out, re.MULTILINE)
    found = re.search(r"(\d+) texts, ([\d.]+) s of sound; gaps: (\d+), the longest ([\d.]+) s", out)
    assert found
    with wave.open(str(tmp_path / "speech.wav")) as file:
        assert file.getnframes() / file.getframerate() == pytest.approx(float(found[2]), abs=0.06)
        samples = file.readframes(file.getnframes())
    assert len(samples.replace(b"\0", b"")) > len(samples) / 4, "it is nearly all silence"
    picture = ElementTree.parse(tmp_path / "timeline.svg").getroot()
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"speech", "hangs", "crashes", "spy", "late", "died"} <= set(texts)
    titles = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert [text for text in titles if text in spoken] == spoken


def test_a_reader_that_waits_for_its_plugins_falls_silent(tmp_path: Path) -> None:
    """The gaps that are measured are there when they should be."""
    shutil.copytree(EXAMPLE / "addons/hangs", tmp_path / "plugins/hangs")
    options = ("--plugins", "plugins", "--output", ".", "--speed", SPEED, "--budget", "1.4", "--start", "40")
    out = run(EXAMPLE / "screenreader.py", *options, cwd=tmp_path)
    found = re.search(r"gaps: ([1-9]\d*), the longest ([\d.]+) s", out)
    assert found, out
    assert float(found[2]) > int(SPEED) * 0.9  # 0.4 s of the 1.4 are made ahead
    assert ">silence<" in (tmp_path / "timeline.svg").read_text(encoding="utf-8")


SCRIPT = """
import json, logging, os, signal, sys
logging.getLogger("nearcall").setLevel(logging.CRITICAL)
sys.path[:0] = [EXAMPLE + each for each in ("", "/api", "/in_process", "/both", "/generated")]
from pathlib import Path
from parts.reading import Reader
from parts.sound import SoundCard
from parts.timeline import Timeline
with SoundCard(Path("speech.wav"), 8.0) as card:
    reader = Reader(Path("plugins"), card, Timeline(), lambda line: None, budget=20.0, start=40.0)
    def before(number):
        if number == 1 and (chimes := reader.host.plugins.get("org.example.chimes")):
            os.kill(chimes.pid, signal.SIGKILL)
    reader.read(["One 12345.", "Two.", "Three."], before)
said = [event.kind for event in reader.events if event.kind in ("died", "failed", "error", "late")]
print(json.dumps([reader.speaker.voices, said, card.seconds]))
"""


@pytest.mark.parametrize(("plugins", "first"), [(["chimes"], "chimes"), ([], "tones")])
def test_when_a_synthesiser_dies_another_voice_goes_on(tmp_path: Path, plugins: list[str], first: str) -> None:
    (tmp_path / "plugins").mkdir()
    for name in plugins:
        shutil.copytree(EXAMPLE / "addons" / name, tmp_path / "plugins" / name)
    out = run("-c", f"EXAMPLE = {str(EXAMPLE)!r}{SCRIPT}", cwd=tmp_path)
    voices, said, seconds = json.loads(out)
    assert voices[:2] == [first, "tones"]
    assert set(said) <= {"died"}  # or it was stopped with all others before that was seen
    assert seconds > 0.5


IN_PROCESS = """
import json, sys
sys.path[:0] = [EXAMPLE + each for each in ("/in_process", "/both", "/addons/digits", "/addons/chimes")] + ["."]
import config, ui
from speech.extensions import filter_speechSequence
from globalPlugins.digits import GlobalPlugin
from synthDrivers.chimes import SynthDriver
said = []
ui.speak_with(said.append)
one = GlobalPlugin()
spoken = filter_speechSequence.apply([TEXT])
one.execute("kb:NVDA+shift+d")
import nvwave
synth = SynthDriver()
synth.rate = 100
synth.speak(["abc"])
one.terminate()
after = filter_speechSequence.apply([TEXT])
print(json.dumps([spoken, said, config.conf["digits"], after, b"".join(nvwave.fed).hex()]))
"""
OUT_OF_PROCESS = """
import json, sys
sys.path[:0] = [EXAMPLE + each for each in ("", "/api", "/in_process", "/both", "/generated")]
from pathlib import Path
import config
from parts.reading import Reader
from parts.timeline import Timeline
from parts.sound import SoundCard
from screen_api import Synth
from speech.extensions import filter_speechSequence
with SoundCard(Path("speech.wav")) as card:
    reader = Reader(Path("plugins"), card, Timeline(), lambda line: None, budget=20.0, start=40.0)
    with reader.host as host:
        spoken = filter_speechSequence.apply([TEXT])
        reader.press("kb:NVDA+shift+d")
        wave = b"".join(host.plugins["org.example.chimes"].service(Synth).render("abc", 100))
    after = filter_speechSequence.apply([TEXT])
    print(json.dumps([spoken, list(reader._messages), config.conf["digits"], after, wave.hex()]))
"""
WAVES = "fed = []\nclass WavePlayer:\n    def __init__(self, **_): pass\n    feed = staticmethod(fed.append)\n"


def test_old_add_ons_do_the_same_in_one_process_and_out_of_it(tmp_path: Path) -> None:
    for name in ("digits", "chimes"):
        shutil.copytree(EXAMPLE / "addons" / name, tmp_path / "plugins" / name)
    (tmp_path / "nvwave.py").write_text(WAVES)
    head = f"EXAMPLE = {str(EXAMPLE)!r}; TEXT = 'The number 1234567 and 12.'"
    inside, outside = (json.loads(run("-c", head + code, cwd=tmp_path)) for code in (IN_PROCESS, OUT_OF_PROCESS))
    assert inside == outside
    assert inside[:4] == [
        ["The number 1 2 3 4 5 6 7 and 12."],
        ["1 numbers were spelled"],
        {"longest": 3},
        ["The number 1234567 and 12."],
    ]
    assert len(inside[4]) > 1000


def test_its_manifests_are_well() -> None:
    addons = sorted((EXAMPLE / "addons").glob("*/"))
    out = run("-m", "nearcall", "plugin", "check", *addons, "--path", EXAMPLE / "by_hand", cwd=EXAMPLE)
    assert out.count(" is well\n") == len(addons) == 8


def test_its_shims_are_as_they_would_be_made() -> None:
    modules = ["speech.extensions", "../in_process/ui.py", "../in_process/config.py"]
    assert not run("-m", "nearcall", "plugin", "shim", *modules, "-o", "../generated", "--check", cwd=EXAMPLE / "stubs")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports parts of the example, and forgets them at the end."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), str(EXAMPLE / "api"), *sys.path])
    yield importlib.import_module
    for name in [name for name in sys.modules if name.partition(".")[0] in ("parts", "screen_api")]:
        del sys.modules[name]


def test_what_comes_too_late_is_a_gap_in_the_file(parts: Any, tmp_path: Path) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    second = bytes([1, 0]) * parts("screen_api").SAMPLE_RATE
    with parts("parts.sound").SoundCard(tmp_path / "a.wav", 2.0, lambda: now[0], sleep) as card:
        card.play(second)
        card.play(second)
        card.wait()  # until 0.4 s before the end of 1 s of the clock
        assert slept == [pytest.approx(0.6)]
        now[0] += 0.4
        card.play(second)
        assert not card.gaps
        now[0] += 0.75  # a quarter of a second too late, of which the file has twice as much
        card.play(second)
        assert [tuple(gap) for gap in card.gaps] == [(3.0, pytest.approx(0.5, abs=0.001))]
        assert card.seconds == pytest.approx(4.5, abs=0.001)
        assert card.clock_at(3.0) == pytest.approx(101.5)
    with wave.open(str(tmp_path / "a.wav")) as file:
        samples = file.readframes(file.getnframes())
    silent = re.findall(rb"(?:\0\0)+", samples[: len(samples)])
    assert [len(each) / len(second) for each in silent] == [pytest.approx(0.5, abs=0.001)]


def test_braille_is_that_of_the_alphabet(parts: Any) -> None:
    braille = parts("parts.braille")
    assert braille.shown(braille.by_table("Ab 10a, w?")) == "⠠⠁⠃⠀⠼⠁⠚⠰⠁⠂⠀⠺⠦"
    translator = braille.Translator()
    assert len(translator.cells("abc")) == 3
    assert translator.cells("\U0001f600") != b""
