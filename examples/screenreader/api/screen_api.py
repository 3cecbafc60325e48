"""What the screen reader and its plugins have in common, beside the modules that old add-ons know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import nearcall
from nearcall import plugin

SAMPLE_RATE = 22_050
"""Samples in a second of all audio: one channel, 16 bits each, little-endian."""


class Voice(NamedTuple):
    """What a synthesiser says of itself."""

    name: str
    quality: int
    """The reader takes the voice with the highest one; 0: it does not work here."""


@nearcall.service
class Synth(Protocol):
    """A synthesiser. Plugins offer it."""

    def voice(self) -> Voice: ...

    def render(self, text: str, rate: int) -> Iterator[bytes]:
        """Speaks: audio, piece by piece. A rate of 50 is ordinary, 100 very fast."""
        ...


@nearcall.service
class Display(Protocol):
    """A braille display. Plugins offer it."""

    def width(self) -> int:
        """How many cells it has."""
        ...

    def show(self, cells: bytes) -> None:
        """Raises dots: bit 0 of a cell is dot 1."""
        ...

    def pressed(self) -> Iterator[str]:
        """The keys that are pressed on it from now on, as long as the caller listens."""
        ...


@plugin.action
def gesture(identifier: str) -> None:
    """Keys were pressed: ``"kb:NVDA+shift+d"``."""
    raise NotImplementedError
