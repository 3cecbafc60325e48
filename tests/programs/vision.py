"""A vision worker: a program that sends frames to a worker process, which may die, and draws what it finds.

Written from the pages of docs/ alone: guide/child-process, guide/large-data, guide/objects, guide/streams,
guide/deadlines, guide/failures. Run by test_vision.py, and by hand:

    python vision.py 300
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

import nearcall

SHAPE = (480, 640)

Image = NDArray[np.uint8]


@dataclass
class Box:
    top: int
    left: int
    bottom: int
    right: int


@dataclass
class Found:
    frame: int
    boxes: list[Box]
    worker: int
    """The process that has looked."""


class NoImage(nearcall.InvalidArgument):
    """What was sent has not the shape of an image."""


@nearcall.service
class Vision:
    """Runs in a process of its own, so that a crash of a library costs a frame and no program."""

    def __init__(self) -> None:
        self._threshold = 128

    def calibrate(self, dark: Image, rounds: int, progress: Callable[[int, int], None]) -> int:
        """Takes some time, says how far it is, and ends when nobody waits for it any more."""
        for done in range(rounds):
            if nearcall.context().cancelled:
                raise nearcall.Cancelled("nobody waits for it")
            time.sleep(0.005)
            progress(done + 1, rounds)
        self._threshold = int(dark.max()) + 1
        return self._threshold

    @nearcall.idempotent
    def look(self, number: int, image: Image) -> Found:
        if image.shape != SHAPE:
            raise NoImage(f"frame {number} has the shape {image.shape}, and not {SHAPE}")
        if image[0, 0] == 66:
            os.abort()  # as a bug in a library does
        return Found(number, boxes_in(image >= self._threshold), os.getpid())

    def watch(self, frames: Iterable[tuple[int, Image]]) -> Iterator[Found]:
        """The same for a stream: each side works while the other does."""
        for number, image in frames:
            yield self.look(number, image)

    def negative(self, image: Image) -> Image:
        out = nearcall.empty(image.shape, np.uint8)
        np.subtract(255, image, out=out)
        return out


def boxes_in(bright: NDArray[np.bool_]) -> list[Box]:
    """Boxes around what is bright, one for each run of columns."""
    columns = np.flatnonzero(np.diff(np.concatenate(([False], bright.any(axis=0), [False])).astype(np.int8)))
    boxes: list[Box] = []
    for left, right in zip(columns[::2].tolist(), columns[1::2].tolist(), strict=True):
        rows = np.flatnonzero(bright[:, left:right].any(axis=1))
        boxes.append(Box(int(rows[0]), int(left), int(rows[-1]) + 1, int(right)))
    return boxes


def image_of(number: int) -> Image:
    """What a camera would give: two squares that move."""
    image = nearcall.empty(SHAPE, np.uint8)
    image[:] = 10
    for left, row in ((number % 200, 50), (400, number % 400)):
        image[row : row + 20, left : left + 20] = 200
    return image


class Worker:
    """A worker process that is replaced when it dies."""

    def __init__(self) -> None:
        self.deaths = 0
        self._client = self._start()

    def _start(self) -> nearcall.Client[Vision]:
        return nearcall.spawn([sys.executable, __file__, "serve"], Vision, timeout=30)

    @property
    def vision(self) -> Vision:
        return self._client.service

    def look(self, number: int, image: Image) -> Found | None:
        """What is found in a frame; nothing if the worker dies of it twice."""
        for _ in range(2):
            try:
                return self.vision.look(number, image)
            except nearcall.Unavailable:
                self.deaths += 1
                self._client.close()
                self._client = self._start()
        return None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def main(count: int) -> None:
    with Worker() as worker:
        bars: list[str] = []
        dark = np.full(SHAPE, 20, np.uint8)
        threshold = worker.vision.calibrate(dark, 10, lambda done, of: bars.append(f"{done}/{of}"))
        print(f"calibrated to {threshold}: {bars[-1]}")
        begun = time.perf_counter()
        boxes = sum(len(found.boxes) for found in worker.vision.watch((n, image_of(n)) for n in range(count)))
        print(f"{boxes} boxes in {count} frames", flush=True)
        print(f"{count / (time.perf_counter() - begun):.0f} frames a second", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Vision(), "stdio:")
    else:
        main(int(sys.argv[1]))
