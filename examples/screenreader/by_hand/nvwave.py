"""nvwave for plugins, by hand: what is played goes to the host as a stream."""

from __future__ import annotations

from queue import SimpleQueue

from screen_api import SAMPLE_RATE

played: SimpleQueue[bytes | None] = SimpleQueue()
"""What was played; ``None`` at the end of what was to be spoken."""


class WavePlayer:
    """Takes the place of the host's."""

    def __init__(self, channels: int, samplesPerSec: int, bitsPerSample: int) -> None:
        if (channels, samplesPerSec, bitsPerSample) != (1, SAMPLE_RATE, 16):
            raise ValueError(f"this screen reader plays one channel with {SAMPLE_RATE} samples of 16 bits in a second")

    def feed(self, data: bytes) -> None:
        played.put(bytes(data))

    def stop(self) -> None:
        while not played.empty():
            played.get()
