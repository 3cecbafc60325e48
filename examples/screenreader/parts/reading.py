"""The screen reader: reads a text aloud and in braille, through whatever its plugins make of it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import config
import ui
from config_host import ConfigOfHost
from screen_api import gesture
from speech import extensions
from speech_extensions_api import POINTS, filter_speechSequence
from ui_host import UiOfHost

from nearcall.plugin import Manifest, Permission, PluginEvent, PluginHost
from parts.braille import Translator
from parts.displays import Displays
from parts.sound import SoundCard
from parts.speaking import Speaker
from parts.timeline import Timeline

HERE = Path(__file__).parent.parent
FOR_PLUGINS = [HERE / name for name in ("api", "generated", "generated/shims", "by_hand", "both")]
"""Where plugins find what they import: nothing of the reader's own."""

MESSAGES = 3
"""Messages of plugins between two texts: one that never ends must not keep the reader from going on."""


class Reader:
    """Reads aloud.

    Args:
        plugins: The directory of the plugins.
        card: Where to play.
        timeline: Told what happens.
        say: Told the same in lines for people.
        budget: Seconds that one plugin may take for one question. A synthesiser may take five times as long for a text.
        start: Seconds that plugins may take to start.
    """

    def __init__(
        self,
        plugins: Path,
        card: SoundCard,
        timeline: Timeline,
        say: Callable[[str], object],
        budget: float,
        start: float = 10.0,
    ) -> None:
        self._timeline = timeline
        self._card = card
        self._tell = say
        self._messages: deque[str] = deque(maxlen=MESSAGES)
        self._running: dict[str, float] = {}
        self.braille = Translator()
        self.lines: list[str] = []
        """What was on the braille display, line by line."""
        self.events: list[PluginEvent] = []
        self.host = PluginHost(
            plugins,
            name="screenreader",
            services={"ui": UiOfHost(), "config": ConfigOfHost()},
            points=[*POINTS, gesture],
            paths=FOR_PLUGINS,
            policy={"network": "ask"},
            ask=self._ask,
            on_event=self._on_event,
            budget=budget,
            handshake_timeout=start,
            first_pause=0.5,
            restarts=2,
        )
        self.speaker = Speaker(self.host, card, timeline, 5 * budget)
        self._displays = Displays(self.host, self._on_line, budget)
        self._gesture = self.host.extension(gesture)
        # Code in this process goes on as it did: plugins are one more who has registered.
        extensions.filter_speechSequence.register(self.host.extension(filter_speechSequence))
        ui.speak_with(self._messages.append)
        self._output = _Output(self._on_output)
        logging.getLogger("nearcall.plugin").addHandler(self._output)
        logging.getLogger("nearcall.plugin").setLevel(logging.INFO)

    def read(self, texts: Sequence[str], before: Callable[[int], object] = lambda _: None) -> None:
        """Reads texts aloud, and the messages of plugins between them.

        Args:
            texts: What is read.
            before: Called before each text, with its number; a user might do something then.
        """
        with self.host:
            for number, text in enumerate(texts):
                before(number)
                self._say(text)
                for _ in range(min(MESSAGES, len(self._messages))):
                    self._say(self._messages.popleft())
        for name in list(self._running):
            self._ended(name)
        for gap in self._card.gaps:
            begin, end = self._card.clock_at(gap.at), self._card.clock_at(gap.at + gap.seconds)
            self._timeline.bar("speech", self._timeline.at(begin), self._timeline.at(end), "gap", "silence")
        logging.getLogger("nearcall.plugin").removeHandler(self._output)

    def press(self, identifier: str) -> None:
        """A key was pressed."""
        self._timeline.mark("speech", "key", identifier)
        self._gesture(identifier)

    def _say(self, text: str) -> None:
        spoken = " ".join(extensions.filter_speechSequence.apply([text]))
        self._tell(f"speaks: {spoken}")
        self._displays.show(self.braille.cells(text))
        rate = config.conf["speech"].get("rate")  # plugins may have set it, to anything
        self.speaker.say(spoken, min(100, max(10, rate)) if isinstance(rate, int) else 50)

    def _on_line(self, line: str) -> None:
        self.lines.append(line)
        self._tell(f"braille: {line}")

    # What is told.

    def _ask(self, manifest: Manifest, permission: Permission) -> bool:
        """The user's answer. This one does not want anything to be sent away."""
        self._tell(f"{manifest.name} asks for the {permission.name}: {permission.why} The user says no.")
        self._timeline.mark(_short(manifest.id), "refused", f"asked for {permission.name}")
        return False

    def _on_event(self, event: PluginEvent) -> None:
        self.events.append(event)
        name = _short(event.plugin)
        if event.kind != "restarting":
            self._timeline.mark(name, event.kind, event.text)
        if event.kind == "started":
            self._running[name] = self._timeline.now()
        elif event.kind in ("died", "stopped", "failed"):
            self._ended(name)
        if event.kind not in ("started", "stopped", "downgraded"):
            self._tell(f"{name} {event.text}")

    def _ended(self, name: str) -> None:
        if name in self._running:
            self._timeline.bar(name, self._running.pop(name), self._timeline.now(), "runs", name)

    def _on_output(self, plugin: str, line: str) -> None:
        name = _short(plugin)
        if name != "display":
            self._tell(f"{name} prints: {line}")
            self._timeline.mark(name, "printed", line)


class _Output(logging.Handler):
    """What plugins print."""

    def __init__(self, take: Callable[[str, str], object]) -> None:
        super().__init__()
        self._take = take
        self._one_at_a_time = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        with self._one_at_a_time:
            self._take(record.name, record.getMessage())


def _short(plugin: str) -> str:
    return plugin.rpartition(".")[2]
