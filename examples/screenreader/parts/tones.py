"""The reader's own voice, when no plugin has one: a tone for each letter. It needs nothing that is not there."""

from __future__ import annotations

import array
import math
from collections.abc import Iterator

from screen_api import SAMPLE_RATE

_LETTER = 0.045
"""Seconds of a letter at a rate of 50."""
_LOUD = 7000


def render(text: str, rate: int) -> Iterator[bytes]:
    """Audio for a text, word by word."""
    length = int(SAMPLE_RATE * _LETTER * 50 / max(10, rate))
    known: dict[str, bytes] = {}
    for word in text.lower().split():
        yield b"".join(known.setdefault(letter, _tone(letter, length)) for letter in word) + bytes(2 * length)


def _tone(letter: str, length: int) -> bytes:
    if not letter.isalnum():
        return bytes(2 * length)
    step = 2 * math.pi * 180 * 2 ** (ord(letter) % 24 / 12) / SAMPLE_RATE
    fade = max(1, length // 8)
    samples = (int(_LOUD * math.sin(step * at) * min(1.0, at / fade, (length - at) / fade)) for at in range(length))
    return array.array("h", samples).tobytes()
