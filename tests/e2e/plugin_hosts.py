"""Hosts and plugins for tests: plugins are written into a directory, and hosts keep what they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nearcall.plugin import PluginEvent, PluginHost

from ..survival.observing import eventually
from .plugin_interface.host_api import POINTS, Speech, spoken_text

INTERFACE = Path(__file__).with_name("plugin_interface")
HEAD = "import os, signal, sys, threading, time\nfrom nearcall import plugin\nfrom host_api import *\n"


def write_plugin(
    directory: Path,
    name: str,
    code: str,
    *,
    entry: str = "",
    permissions: Mapping[str, str] = {"speech": "It speaks."},
    more: str = "",
    host: str = 'api = ">=1.0"',
) -> Path:
    """A plugin that ``code`` makes up, in a directory of its own."""
    folder = directory / name
    folder.mkdir(parents=True)
    asked = "".join(f'{key} = "{why}"\n' for key, why in permissions.items())
    (folder / "plugin.toml").write_text(
        f'id = "{name}"\nname = "{name}"\nversion = "1.0"\nsummary = "s"\nauthor = "a"\n'
        f'entry = "code_of_{name}{entry}"\n{more}\n[host]\n{host}\n[permissions]\n{asked}'
    )
    (folder / f"code_of_{name}.py").write_text(HEAD + code)
    return folder


class SpokenWords(Speech):
    """A service of the host that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.call_back: Callable[[str], str] = str

    def speak(self, text: str) -> int:
        self.heard.append(text)
        return len(self.heard)

    def words(self, count: int) -> Iterator[str]:
        for number in range(count):
            yield f"word {number}"

    def spoken_by(self, texts: Iterator[str]) -> int:
        return sum(len(text) for text in texts)

    def back(self, text: str) -> str:
        return self.call_back(text)


class Events:
    """What a host was told of its plugins."""

    def __init__(self) -> None:
        self._all: list[PluginEvent] = []
        self._change = threading.Lock()

    def __call__(self, event: PluginEvent) -> None:
        with self._change:
            self._all.append(event)

    def of(self, name: str, *kinds: str) -> list[PluginEvent]:
        with self._change:
            return [each for each in self._all if each.plugin == name and (not kinds or each.kind in kinds)]

    def wait_for(self, name: str, *kinds: str, count: int = 1) -> PluginEvent:
        eventually(lambda: len(self.of(name, *kinds)) >= count, f"no {kinds} of {name}: {self.of(name)}")
        return self.of(name, *kinds)[count - 1]


def options(speech: SpokenWords, events: Events, **more: Any) -> dict[str, Any]:
    """The options of a host in the tests. It is patient, as the machine may be slow."""
    given: dict[str, Any] = {
        "services": {"speech": speech},
        "points": POINTS,
        "paths": [INTERFACE],
        "on_event": events,
        "first_pause": 0.01,
        "budget": 20.0,
        "handshake_timeout": 40.0,
        "sandbox": "off",
    }
    return given | more


def make_host(directory: Path, speech: SpokenWords, events: Events, **more: Any) -> PluginHost:
    return PluginHost(directory, **options(speech, events, **more))


def gone(pid: int) -> bool:
    """Whether there is no such process any more, or only its name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


HONEST = "@spoken_text.handler(priority=-100)\ndef honest(text): return text + '.'\n"
"""An honest plugin, which must be served whatever its neighbour does."""


def still_serves(host: PluginHost) -> None:
    assert host.plugins["honest"].state == "running"
    assert host.extension(spoken_text)("hi") == "hi."
