"""A sound card that writes a file. What comes too late leaves silence in it, as it would in a loudspeaker."""

from __future__ import annotations

import time
import wave
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from screen_api import SAMPLE_RATE

AHEAD = 0.4
"""Seconds by which sound is made before it is heard: whoever takes no longer than that makes no pause."""
_BYTES = 2
"""Of a sample."""


class Gap(NamedTuple):
    """Silence that nobody meant."""

    at: float
    """Seconds of the file."""
    seconds: float


class SoundCard:
    """Plays at the speed of a clock, into a WAV file.

    Args:
        path: The file.
        speed: How many times faster than the clock; gaps are as many times longer.
        clock: Seconds that only grow.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        path: Path,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._file = wave.open(str(path), "wb")  # noqa: SIM115 - closed by close
        self._file.setnchannels(1)
        self._file.setsampwidth(_BYTES)
        self._file.setframerate(SAMPLE_RATE)
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._began: float | None = None
        self._samples = 0
        self.gaps: list[Gap] = []

    @property
    def seconds(self) -> float:
        """Length of the file so far, seconds."""
        return self._samples / SAMPLE_RATE

    @property
    def played(self) -> float:
        """Seconds of it that have been heard by now, were it not for what is missing."""
        return 0.0 if self._began is None else (self._clock() - self._began) * self._speed

    def clock_at(self, seconds: float) -> float:
        """The clock's time at which a place of the file is heard."""
        return (self._clock() if self._began is None else self._began) + seconds / self._speed

    def play(self, samples: bytes) -> None:
        """Plays samples after those before them. Does not wait."""
        if self._began is None:
            self._began = self._clock()
        late = int((self.played - self.seconds) * SAMPLE_RATE)
        if late > 0:
            self.gaps.append(Gap(self.seconds, late / SAMPLE_RATE))
            self._write(bytes(_BYTES * late))
        self._write(samples[: len(samples) // _BYTES * _BYTES])

    def wait(self) -> None:
        """Waits until :data:`AHEAD` before the end of what was played."""
        left = (self.seconds - self.played) / self._speed - AHEAD
        if left > 0:
            self._sleep(left)

    def _write(self, samples: bytes) -> None:
        self._file.writeframes(samples)
        self._samples += len(samples) // _BYTES

    def __enter__(self) -> SoundCard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
