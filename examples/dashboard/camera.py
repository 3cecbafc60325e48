"""Sends frames to the workers, on three connections, and counts the answers. README.md has the commands."""

from __future__ import annotations

import argparse
import contextlib
import math
import threading
import time

import numpy as np
from detector import Detector

import nearcall

WIDTH, HEIGHT = 640, 480


def picture(frame: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A spot that goes round, in memory that a worker on this machine reads without a copy."""
    x = WIDTH // 2 + round(200 * math.cos(frame / 60))
    y = HEIGHT // 2 + round(150 * math.sin(frame / 40))
    pixels = nearcall.empty((HEIGHT, WIDTH), np.uint8)
    pixels[:] = 8
    pixels[y - 9 : y + 10, x - 9 : x + 10] = 200
    pixels[y, :] += 20
    pixels[:, x] += 20
    return pixels


class Camera(threading.Thread):
    def __init__(self, url: str, rate: float, over: threading.Event) -> None:
        super().__init__()
        self._url, self._pause, self._over = url, 1 / rate, over
        self.sent = self.found = 0

    def run(self) -> None:
        with nearcall.connect(self._url, Detector, wait_for_ready=True, timeout=10) as detector:
            due = time.monotonic()
            while not self._over.wait(max(0.0, due - time.monotonic())):
                frame = picture(self.sent)
                self.sent += 1
                spot = detector.find(frame)
                self.found += bool(frame[spot.y, spot.x] > 200)
                due += self._pause


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="shm://detector")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=60, help="frames per second of each of three cameras")
    options = parser.parse_args()
    over = threading.Event()
    cameras = [Camera(options.url, options.rate, over) for _ in range(3)]
    for camera in cameras:
        camera.start()
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it sooner
        over.wait(options.seconds)
    over.set()
    for camera in cameras:
        camera.join()
    print(f"{sum(camera.sent for camera in cameras)} frames, {sum(camera.found for camera in cameras)} spots found")
