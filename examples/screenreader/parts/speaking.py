"""Who speaks: the best synthesiser that a plugin offers just now, and the reader's own tones if none does."""

from __future__ import annotations

from collections.abc import Iterator

from screen_api import SAMPLE_RATE, Synth

import nearcall
from nearcall.plugin import PluginHost
from parts import tones
from parts.sound import SoundCard
from parts.timeline import Timeline

LONGEST = 60 * SAMPLE_RATE * 2
"""Bytes of audio for one text."""


class Speaker:
    """Speaks one text after the other.

    Args:
        host: Whose plugins may have synthesisers.
        card: Where to play.
        timeline: Told what was spoken, by whom.
        patience: Seconds that a synthesiser may take for a text. What it makes is played meanwhile.
    """

    def __init__(self, host: PluginHost, card: SoundCard, timeline: Timeline, patience: float) -> None:
        self._patience = patience
        self._host = host
        self._card = card
        self._timeline = timeline
        self._useless: set[int] = set()
        """Processes whose synthesisers have failed: they are not asked again."""
        self.voices: list[str] = []
        """Who has spoken each text."""

    def say(self, text: str, rate: int) -> None:
        """Speaks a text, and comes back when nearly all of it was heard. If a synthesiser fails, the next best one
        speaks it, from the beginning.
        """
        before = self._card.seconds
        name = "tones"
        for pid, voice, synth in self._synths():
            try:
                with nearcall.timeout(self._patience):
                    self._play(synth.render(text, rate))
            except nearcall.RpcError as error:
                self._useless.add(pid)
                self._timeline.mark("speech", "error", f"{voice} failed: {error.message}")
            else:
                name = voice
                break
        else:
            self._play(tones.render(text, rate))
        self.voices.append(name)
        self._card.wait()
        before += sum(gap.seconds for gap in self._card.gaps if gap.at == before)  # it was silent until then
        begin, end = self._card.clock_at(before), self._card.clock_at(self._card.seconds)
        self._timeline.bar("speech", self._timeline.at(begin), self._timeline.at(end), name, text)

    def _synths(self) -> list[tuple[int, str, Synth]]:
        """The synthesisers there are, the best one first: each with its plugin's process and its name."""
        found: list[tuple[int, int, str, Synth]] = []
        for plugin in self._host:
            pid = plugin.pid
            if pid is None or pid in self._useless or not plugin.offers(Synth):
                continue
            try:
                synth = plugin.service(Synth)
                with nearcall.timeout(self._patience):
                    voice = synth.voice()
            except nearcall.RpcError:
                self._useless.add(pid)
                continue
            if voice.quality > 0:
                found.append((voice.quality, pid, voice.name, synth))
        found.sort(key=lambda each: -each[0])
        return [each[1:] for each in found]

    def _play(self, audio: Iterator[bytes]) -> None:
        heard = 0
        for data in audio:
            self._card.play(data)
            heard += len(data)
            if heard > LONGEST:
                raise nearcall.ResourceExhausted("a synthesiser makes more audio than any text has")
