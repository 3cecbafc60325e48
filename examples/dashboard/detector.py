"""Finds the bright spot in frames, and tells a page about it. README.md has the commands."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

import nearcall

Whole = Annotated[int, nearcall.field(type="int32")]
"""A number that JavaScript has: it would see an ``int`` of 64 bits as text."""

EVERY = 0.1
"""Seconds between what a worker tells."""


@dataclass
class Spot:
    x: Whole
    y: Whole


@dataclass
class Seen:
    """What a worker has done since it told last."""

    worker: Whole
    """Its process."""
    frames: Whole
    milliseconds: float
    """What a frame took."""
    spot: Spot
    """Where the last one was."""


@nearcall.service(name="example.v1.Detector")
class Detector:
    def __init__(self) -> None:
        # One topic in all workers: whoever serves a page knows what the others have seen.
        self._seen = nearcall.Topic[Seen](name="seen", when_full="drop_oldest")
        self._told = time.monotonic()
        self._frames = 0
        self._busy = 0.0

    @nearcall.idempotent  # so it may be sent once more if its worker has died
    def find(self, frame: NDArray[np.uint8]) -> Spot:
        begun = time.monotonic()
        rows, columns = frame.sum(axis=1, dtype=np.uint32), frame.sum(axis=0, dtype=np.uint32)
        spot = Spot(int(columns.argmax()), int(rows.argmax()))
        now = time.monotonic()
        self._frames += 1
        self._busy += now - begun
        if now - self._told >= EVERY:
            took = 1000 * self._busy / self._frames
            self._seen.publish(Seen(os.getpid(), self._frames, took, spot))
            self._told, self._frames, self._busy = now, 0, 0.0
        return spot

    def watch(self) -> Iterator[Seen]:
        return self._seen.subscribe()
