"""Playing audio."""

from __future__ import annotations

from collections.abc import Callable

_played: Callable[[bytes], None] = len  # type: ignore[assignment]


class WavePlayer:
    """Plays samples on the sound card."""

    def __init__(self, channels: int, samplesPerSec: int, bitsPerSample: int) -> None:
        self.format = channels, samplesPerSec, bitsPerSample

    def feed(self, data: bytes) -> None:
        """Plays samples after those before them."""
        _played(data)

    def stop(self) -> None:
        """Drops what is not played yet."""
