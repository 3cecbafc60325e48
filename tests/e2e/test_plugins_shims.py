"""Old plugins, which import the host's modules and call them, run unchanged in processes of their own."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall.plugin import PluginHost
from nearcall.plugin.shims.reading import read_module
from nearcall.plugin.shims.writing import files

from .plugin_hosts import Events, write_plugin

STUB = """
from collections.abc import MutableMapping
from nearcall import plugin
from nearcall.plugin import shims
rate: int
conf: MutableMapping[str, MutableMapping[str, int]]
class Trouble(Exception): ...
def speak(text: str) -> str: ...
def fail(kind: str) -> None: ...
@plugin.filter
def spoken(text: str) -> str: ...
@plugin.action
def heard(text: str) -> None: ...
@shims.at_host
class Player:
    volume: int
    def __init__(self, rate: int, *, name: str = "none") -> None: ...
    def feed(self, data: bytes) -> int: ...
    @property
    def fed(self) -> int: ...
@shims.at_plugin
class Driver:
    name: str = ""
    pitch: int
    def speak(self, text: str) -> str: ...
    def cancel(self) -> None: ...
    def unwritten(self) -> int: ...
"""
MODULE = """
from oldtalk_api import Trouble
rate = 1
conf = {"speech": {"pitch": 5}}
said = []
def speak(text):
    said.append(text)
    return text[::-1]
def fail(kind):
    raise {"key": KeyError, "file": FileNotFoundError, "own": Trouble}[kind](kind)
class Player:
    def __init__(self, rate, *, name="none"):
        self.rate, self.name, self.volume, self.fed = rate, name, 0, 0
        players.append(self)
    def feed(self, data):
        self.fed += len(data)
        return self.fed
players = []
"""
LOADER = """
from nearcall.plugin import shims
import oldtalk
def start():
    shims.load("old")
"""


class Old:
    """A host's module with its shim, and hosts that have it."""

    def __init__(self, folder: Path, events: Events) -> None:
        self._folder = folder
        self._events = events
        made, shims = folder / "made", folder / "made/shims"
        (folder / "oldtalk.pyi").write_text(STUB)
        for file, text in files(read_module("oldtalk", folder / "oldtalk.pyi")).items():
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            (made / file).write_text(text)
        (folder / "oldtalk.py").write_text(MODULE)
        (shims / "loader.py").write_text(LOADER)
        self.paths = [made, shims]
        self.module: Any = importlib.import_module("oldtalk")
        self.api: Any = importlib.import_module("oldtalk_api")
        self.drivers: list[Any] = []

    def host(self, code: str, **more: Any) -> PluginHost:
        """A host with one plugin, whose old module is that code."""
        folder = write_plugin(self._folder / "plugins", "one", "", permissions={"oldtalk": "It speaks."})
        manifest = folder / "plugin.toml"
        manifest.write_text(manifest.read_text().replace("code_of_one", "loader:start"))
        (folder / "old.py").write_text("import oldtalk\n" + code)
        run = more.pop("run", lambda function: function())
        service = importlib.import_module("oldtalk_host").OldtalkOfHost(run, on_Driver=self.drivers.append)
        options: dict[str, Any] = {
            "services": {"oldtalk": service},
            "points": self.api.POINTS,
            "paths": self.paths,
            "on_event": self._events,
            "budget": 20.0,
            "handshake_timeout": 40.0,
            "sandbox": "off",
        }
        return PluginHost(self._folder / "plugins", **options | more)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Events) -> Iterator[Old]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "made"), *sys.path])
    importlib.invalidate_caches()
    yield Old(tmp_path, events)
    for name in [name for name in sys.modules if name.partition("_")[0] == "oldtalk"]:
        del sys.modules[name]


def test_functions_variables_and_settings_are_the_hosts(old: Old) -> None:
    with old.host(
        """
oldtalk.speak(f"imported at rate {oldtalk.rate}")
oldtalk.rate = 7
oldtalk.conf["speech"]["pitch"] += 1
oldtalk.conf["own"] = {"longest": 3}
def answer(text):
    return oldtalk.speak(text) + str(sorted(oldtalk.conf))
oldtalk.spoken.register(answer)
"""
    ) as host:
        assert host.extension(old.api.spoken)("abc") == "cba['own', 'speech']"
    assert old.module.said == ["imported at rate 1", "abc"]
    assert old.module.rate == 7
    assert old.module.conf == {"speech": {"pitch": 6}, "own": {"longest": 3}}


def test_errors_of_the_host_are_caught_as_in_one_process(old: Old) -> None:
    with old.host(
        """
def attempt(kind):
    try: oldtalk.fail(kind)
    except KeyError as error: return f"key {error.args}"
    except FileNotFoundError: return "exactly"
    except OSError as error: return "some OSError"
    except oldtalk.Trouble as error: return f"trouble {error.args}"
oldtalk.spoken.register(attempt)
"""
    ) as host:
        ask = host.extension(old.api.spoken)
        assert [ask(kind) for kind in ("key", "file", "own")] == ["key ('key',)", "some OSError", "trouble ('own',)"]


def test_a_permission_that_is_missing_is_still_told_as_that(old: Old) -> None:
    with old.host(
        """
import nearcall
def attempt(text):
    try: oldtalk.speak(text)
    except nearcall.PermissionDenied as error: return str(error)
oldtalk.spoken.register(attempt)
"""
    ) as host:
        host.plugins["one"].revoke("oldtalk")
        assert host.extension(old.api.spoken)("x") == "the permission 'oldtalk' was revoked"


def test_functions_are_registered_and_taken_back_at_any_time(old: Old) -> None:
    with old.host(
        """
def louder(text): return text.upper()
def on(text):
    (oldtalk.spoken.register if text == "on" else oldtalk.spoken.unregister)(louder)
oldtalk.heard.register(on)
"""
    ) as host:
        spoken, heard = host.extension(old.api.spoken), host.extension(old.api.heard)
        assert spoken("a") == "a"
        heard("on")
        assert spoken("a") == "A"
        heard("off")
        assert spoken("a") == "a"


def test_the_host_may_ask_again_while_the_plugin_calls_it(old: Old, events: Events) -> None:
    host = old.host(
        """
def answer(text):
    return oldtalk.speak(text) if text == "outer" else text + " again"
oldtalk.spoken.register(answer)
"""
    )
    ask: Callable[[str], str] = host.extension(old.api.spoken)
    old.module.speak = lambda text: ask("inner")
    with host:
        assert ask("outer") == "inner again"
    assert not events.of("one", "late", "error")


def test_one_thread_at_a_time_runs_old_code(old: Old) -> None:
    host = old.host(
        """
inside = []
def one(text):
    inside.append(text)
    most = len(inside)
    for _ in range(2000): most = max(most, len(inside))
    inside.pop()
    return str(most)
oldtalk.spoken.register(one)
"""
    )
    found: list[str] = []
    with host:
        ask = host.extension(old.api.spoken)

        def many() -> None:
            found.extend(ask("x") for _ in range(20))

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["1"] * 80


DRIVER = """
import threading
class Mine(oldtalk.Driver):
    name = "mine"
    def __init__(self):
        self.pitch = 3
        self.player = oldtalk.Player(8000, name="loud")
        self.player.volume = 7
    def speak(self, text):
        if text == "hang": threading.Event().wait()
        if text == "fail": raise KeyError(text)
        said = oldtalk.speak(text)  # calls the host, which waits
        return f"{said} {self.player.feed(text.encode())} {self.player.volume} {self.player.fed}"
mine = Mine()
"""


def test_objects_are_made_on_one_side_and_called_from_the_other(old: Old) -> None:
    with old.host(DRIVER) as host:
        (driver,) = old.drivers
        (player,) = old.module.players
        assert (player.rate, player.name, player.volume) == (8000, "loud", 7)
        assert driver.speak("abc") == "cba 3 7 3"
        assert player.fed == 3
        assert (driver.get_name(), driver.get_pitch()) == ("mine", 3)
        driver.set_pitch(9)
        assert driver.get_pitch() == 9
        assert driver.cancel() is None  # as the base class has it, which does nothing
        with pytest.raises(NotImplementedError):
            driver.unwritten()
        with pytest.raises(KeyError):
            driver.speak("fail")
        host.plugins["one"].stop()
        with pytest.raises(nearcall.Unavailable):
            driver.get_pitch()


def test_an_object_of_a_plugin_that_hangs_holds_no_thread_of_the_host(old: Old) -> None:
    with old.host(DRIVER, call_timeout=0.5), pytest.raises(nearcall.DeadlineExceeded):
        old.drivers[0].speak("hang")


def test_the_host_says_where_its_code_runs(old: Old) -> None:
    ran: list[str] = []

    def run(function: Callable[[], Any]) -> Any:
        ran.append(threading.current_thread().name)
        return function()

    with old.host("oldtalk.speak('x')", run=run):
        assert len(ran) == 1


def test_an_old_plugin_that_fails_while_imported_is_told_with_its_error(old: Old, events: Events) -> None:
    with old.host("oldtalk.speek('x')", restarts=0) as host:
        assert host.plugins["one"].state == "failed"
    assert "module 'oldtalk' has no attribute 'speek'" in events.wait_for("one", "died").text
