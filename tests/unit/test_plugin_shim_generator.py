"""``nearcall plugin shim``: what is read of a stub, what is written, and what is left out."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nearcall.plugin.shims.reading import locate, read_module
from nearcall.plugin.shims.writing import class_name, files, permission

FULL = '''
"""Speech, and what belongs to it.

More about it.
"""
import enum
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias
from nearcall import plugin
from elsewhere import Unused
import locale

SLOWEST: Final = 10
Words: TypeAlias = list[str]
rate: int
_hidden: int
conf: MutableMapping[str, MutableMapping[str, bool | str]]
flat: dict[str, int]

class Priority(enum.Enum):
    NOW = "now"
    NEXT = "next"

@dataclass
class Word:
    text: str
    pitch: int = 0

class SpeechError(Exception): ...

class Manager:
    def speak(self) -> None: ...

def speak(words: Words, /, priority: Priority = Priority.NOW) -> None: ...
def say(text: str, how: Literal["soft", "loud"] = "soft", *, twice: bool = False) -> "Word":
    """Says "it"."""
def split(text: str, /, at: str = " ") -> list[Word]: ...
def later(function: Callable[[], None]) -> None: ...
def manager() -> Manager: ...
def plain(text): ...
def many(*texts: str) -> None: ...
def stub(text: str = ...) -> None: ...
def me(self: int) -> None: ...
def get_clash() -> int: ...
clash: str
class Above(Manager, NamedTuple): ...
@dataclass
class Deep:
    field: "list[Above]"
def deep(value: Deep) -> None: ...
def rename(speech: str, shims: str) -> str: ...
async def wait() -> None: ...
def twice() -> None: ...
def twice(text: str) -> None: ...
def _private() -> None: ...
handlers = []
by_number: dict[int, str]

@plugin.filter(budget=0.1)
def spoken(text: str) -> str:
    """What is spoken."""
@plugin.accumulating_decider(default=False)
def silent(text: str) -> bool: ...
'''


def make(folder: Path, text: str, name: str = "speech", end: str = ".pyi") -> dict[Path, str]:
    path = folder / f"{name}{end}"
    path.write_text(text)
    made = files(read_module(name, path))
    for file, content in made.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content)
    return made


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Imports what was made, and forgets it at the end."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if name.partition(".")[0].partition("_")[0] in ("speech", "config"):
            del sys.modules[name]


def test_each_thing_is_carried_over_or_left_out_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "speech.pyi"
    path.write_text(FULL)
    module = read_module("speech", path)
    assert module.doc == "Speech, and what belongs to it."
    assert [each.name for each in module.copied] == ["SLOWEST", "Words", "Priority", "Word", "SpeechError"]
    assert module.errors == ("SpeechError",)
    assert [each.name for each in module.functions] == ["say", "split", "get_clash", "rename"]
    assert [(each.name, each.type) for each in module.variables] == [("rate", "int")]
    assert module.shared == (("conf", "bool | str", 2), ("flat", "int", 1))
    assert [(each.kind, each.options) for each in module.points] == [
        ("filter", "budget=0.1"),
        ("accumulating_decider", "default=False"),
    ]
    left_out = {each.name: each.why for each in module.left_out}
    assert set(left_out) == {
        *("me", "clash", "Above", "Deep", "deep"),
        *("Manager", "speak", "later", "manager", "plain", "many", "stub", "wait", "twice", "handlers", "by_number"),
    }
    assert "Priority.NOW" in left_out["speak"]
    assert "'Callable' cannot be sent" in left_out["later"]
    assert "'Manager' is not known here" in left_out["manager"]
    assert not any("elsewhere" in line or "locale" in line for line in module.imports)


def test_what_is_written_can_be_imported_and_says_the_same(tmp_path: Path, modules: Any) -> None:
    make(tmp_path, FULL)
    interface = modules("speech_api")
    assert [interface.spoken, interface.silent] == interface.POINTS
    assert (interface.spoken.kind, interface.spoken.name) == ("filter", "speech.spoken")
    assert interface.spoken.budget == 0.1
    assert interface.silent.default is False
    assert interface.SLOWEST == 10
    names = {name for name in vars(interface.Speech) if not name.startswith("_")}
    shared = {f"{what}_{name}" for what in ("find", "put", "remove", "keys_of") for name in ("conf", "flat")}
    assert names == {"say", "split", "get_clash", "rename", "get_rate", "set_rate", *shared}
    assert interface.Speech.say.__doc__.strip() == 'Says "it".'


def test_the_hosts_class_calls_the_module(tmp_path: Path, modules: Any) -> None:
    make(tmp_path, FULL)
    (tmp_path / "speech.py").write_text(
        "from speech_api import Word\nrate = 1\nconf = {'a': {'b': True}}\nflat = {}\n"
        "def say(text, how='soft', *, twice=False): return Word(text * (1 + twice), len(how))\n"
        "def rename(speech, shims): return speech + shims\n"
        "def split(text, /, at=' '): return [Word(each) for each in text.split(at)]\n"
    )
    ran: list[object] = []

    def run(function: Any) -> Any:
        ran.append(function)
        return function()

    host = modules("speech_host").SpeechOfHost(run)
    word = modules("speech_api").Word
    assert host.say("a", "loud", twice=True) == word("aa", 4)
    assert host.rename("a", "b") == "ab"
    assert host.split("a,b", ",") == [word("a"), word("b")]
    host.set_rate(7)
    assert (host.get_rate(), modules("speech").rate) == (7, 7)
    assert host.find_conf(["a", "b"]) == [True]
    host.put_conf(["x", "y"], "z")
    assert modules("speech").conf["x"] == {"y": "z"}
    assert len(ran) == 7


def test_a_source_is_read_as_well_as_a_stub_and_all_of_all(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        "__all__ = ['load', '_odd']\nraise RuntimeError('is not run')\n"
        "def load(name: str) -> int: return 1\ndef _odd() -> int: return 2\ndef other() -> None: pass\n"
        "if True:\n    def late() -> int: return 3\n"
    )
    assert [each.name for each in read_module("config", path).functions] == ["load", "_odd"]


def test_a_source_that_returns_nothing_need_not_say_so(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        "def beep(hz: float, length: int = 10):\n    def inside():\n        return 3\n    if hz: return\n    inside()\n"
        "def gives(x: int):\n    while x:\n        return x\n"
        "def yields(x: int):\n    yield x\n"
    )
    module = read_module("config", path)
    assert [(each.name, each.returns) for each in module.functions] == [("beep", "None")]
    assert [each.name for each in module.left_out] == ["gives", "yields"]


def test_modules_are_found_by_name_stubs_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "speech"
    package.mkdir()
    for name in ("__init__.py", "commands.py", "commands.pyi"):
        (package / name).write_text("")
    assert locate("speech.commands") == ("speech.commands", package / "commands.pyi")
    assert locate("speech") == ("speech", package / "__init__.py")
    assert locate("speech/__init__.py")[0] == "speech"
    with pytest.raises(FileNotFoundError, match="no source or stub of a module 'nothing_like_it'"):
        locate("nothing_like_it")
    made = files(read_module(*locate("speech.commands")))
    assert set(map(str, made)) == {"speech_commands_api.py", "shims/speech/commands.py"}
    assert (permission("speech.commands"), class_name("speech.commands")) == ("speech_commands", "SpeechCommands")
    assert permission("synthDriverHandler") == "synthdriverhandler"


def test_texts_of_a_stub_stay_texts(tmp_path: Path, modules: Any) -> None:
    nasty = "'''Ends here: \\\\\"\\\\\"\\\\\" import os; os.abort() \\\\'''\n"
    make(tmp_path, nasty + f"def say(text: str = {chr(34) * 3!r}) -> None:\n    {nasty}")
    assert "os.abort() \\" in modules("speech_api").Speech.__doc__


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nearcall", "plugin", "shim", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=40, check=False)


def test_the_command_writes_compares_and_overwrites_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / "speech.pyi").write_text("def say(text: str) -> None: ...\ndef odd(text): ...\n")
    done = run(tmp_path, "speech.pyi", "-o", "made")
    assert (done.returncode, done.stdout.split()) == (
        0,
        ["made/speech_api.py", "made/shims/speech.py", "made/speech_host.py"],
    )
    assert done.stderr.startswith("speech.pyi:2: odd is left out: it does not say the types")
    assert run(tmp_path, "speech.pyi", "-o", "made", "--check").returncode == 0
    (tmp_path / "speech.pyi").write_text("def say(text: str, loud: bool = False) -> None: ...\n")
    done = run(tmp_path, "speech.pyi", "-o", "made", "--check")
    assert done.returncode == 1
    assert "made/speech_api.py is not what the modules say now" in done.stdout
    assert run(tmp_path, "speech.pyi", "-o", "made").returncode == 0
    (tmp_path / "made/speech_host.py").write_text("mine = 1\n")
    done = run(tmp_path, "speech.pyi", "-o", "made")
    assert done.returncode == 2
    assert "was not made by this command" in done.stderr
    assert (tmp_path / "made/speech_host.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("text", ["def (", "\0", "é".encode("latin-1")])
def test_what_is_no_python_is_a_mistake_of_the_user(tmp_path: Path, text: str | bytes) -> None:
    (tmp_path / "speech.pyi").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run(tmp_path, "speech.pyi")
    assert (done.returncode, "cannot read speech.pyi" in done.stderr) == (2, True)


SIDES = """
from typing import ClassVar
from nearcall.plugin import shims

@shims.at_host
class Player:
    volume: int
    common: ClassVar[int]
    handle: object
    _private: int
    def __init__(self, rate: int, *, name: str = "none") -> None: ...
    def feed(self, data: bytes) -> int: ...
    def many(self, *data: bytes) -> int: ...
    def again(self) -> Player: ...
    async def wait(self) -> None: ...
    @staticmethod
    def all() -> list[str]: ...
    @property
    def fed(self) -> int: ...
    @property
    def loud(self) -> bool: ...
    @loud.setter
    def loud(self, value: bool) -> None: ...

@shims.at_host
class Unmade:
    def __init__(self, function: object) -> None: ...

@shims.at_plugin
class Driver:
    name: str = ""
    def __init__(self, function: object) -> None: ...
    def speak(self, text: str) -> None: ...

@shims.at_plugin
class Derived(Driver):
    def speak(self, text: str) -> None: ...

@shims.at_host
class Clash:
    pitch: int
    def get_pitch(self) -> int: ...

@shims.at_host
class Taken: ...
def new_Taken() -> None: ...
"""


def test_classes_say_on_which_side_their_objects_are(tmp_path: Path) -> None:
    path = tmp_path / "speech.pyi"
    path.write_text(SIDES)
    module = read_module("speech", path)
    player, driver = module.classes
    assert (player.name, player.at_host, driver.name, driver.at_host) == ("Player", True, "Driver", False)
    assert [each.name for each in player.made_of] == ["rate", "name"]
    assert [each.name for each in player.methods] == ["feed"]
    assert [(each.name, each.changes) for each in player.attributes] == [
        ("volume", True),
        ("fed", False),
        ("loud", True),
    ]
    assert [(each.name, each.default) for each in driver.attributes] == [("name", '""')]
    left_out = {each.name: each.why for each in module.left_out}
    members = {f"Player.{name}" for name in ("common", "handle", "many", "again", "wait", "all")}
    assert set(left_out) == {*members, "Unmade", "Unmade.__init__", "Derived", "Clash", "Taken"}
    assert "'object' cannot be sent" in left_out["Unmade.__init__"]
    assert "new_Taken" in left_out["Taken"]
