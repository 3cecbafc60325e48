"""Runs an add-on in NVDA's style as a plugin: its ``plugin.toml`` says ``entry = "addon:start"``.

The extension points and the synthesiser are declared here, while the plugin is imported. The add-on itself is imported
by :func:`start`, when the host has connected: so it may call the host as early as it likes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nvwave
import synthDriverHandler
from logHandler import log
from screen_api import Synth, Voice, gesture

from nearcall import plugin
from nearcall.plugin import shims

# What an add-on may use or register has to be declared while the plugin is imported.
shims.load("config", "speech.extensions", "ui")
gestures = shims.Registered(gesture)


class Driver(Synth):
    """The add-on's synthesiser as a service."""

    def __init__(self) -> None:
        self.synth: Any = None

    def voice(self) -> Voice:
        return Voice(self.synth.description, 10 if self.synth.check() else 0)

    def render(self, text: str, rate: int) -> Iterator[bytes]:
        with shims.turn:
            self.synth.rate = rate
        threading.Thread(target=self._speak, args=(text,), daemon=True).start()
        try:
            while (data := nvwave.played.get()) is not None:
                yield data
        finally:
            with shims.turn:
                self.synth.cancel()

    def _speak(self, text: str) -> None:
        with shims.turn:
            self.synth.speak([text])


driver = Driver()
if Path("synthDrivers").is_dir():
    plugin.offer(driver)


def start() -> None:
    """Imports the add-on and makes its objects."""
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    for path in sorted(Path("globalPlugins").glob("*.py")):
        (module,) = shims.load(f"globalPlugins.{path.stem}")
        with shims.turn:
            one = module.GlobalPlugin()
        gestures.register(one.execute)
        plugin.on_stop(one.terminate)
    for path in sorted(Path("synthDrivers").glob("*.py")):
        (module,) = shims.load(f"synthDrivers.{path.stem}")
        with shims.turn:
            driver.synth = module.SynthDriver()
        synthDriverHandler.synthDoneSpeaking.register(_done)
        plugin.on_stop(driver.synth.terminate)


def _done(synth: object) -> None:
    nvwave.played.put(None)
