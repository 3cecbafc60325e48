"""Probes of objects that are passed and memory that is handed over, and the services behind them."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from array import array
from collections.abc import Callable
from typing import Any

import nearcall
import numpy as np
import numpy.typing as npt

from nearcall_lab.contract import Spec

SMALL = b"fifteen bytes.."
FRAME = (1080, 1920, 3)
"""A picture of a camera or a screen: 6.2 MB."""
TURNS = 5
"""What is compared takes turns, so that a slow moment of the machine meets all of it."""


@nearcall.service
class Ear:
    """What a client passes."""

    def hear(self, data: bytes) -> bytes:
        return data


@nearcall.service
class Seat:
    """What the server passes."""

    def say(self, data: bytes) -> bytes:
        return data


@nearcall.service
class Taker:
    """Of its clients none passes an object."""

    def __init__(self) -> None:
        self._taken = 0

    def echo(self, data: bytes) -> bytes:
        return data

    def seat(self) -> Seat:
        return Seat()

    def mirror(self, data: memoryview) -> memoryview:
        return data

    def frame(self, frame: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return frame

    @nearcall.oneway  # type: ignore[untyped-decorator]
    def take(self, frame: npt.NDArray[np.uint8]) -> None:
        self._taken += int(frame[-1, -1, -1])

    def taken(self) -> int:
        """The sum of the last byte of each frame that came."""
        return self._taken


@nearcall.service
class Asker:
    """Its clients pass objects: others receive for such a connection."""

    def echo(self, data: bytes) -> bytes:
        return data

    def seat(self) -> Seat:
        return Seat()

    def ask(self, ear: Ear, seconds: float) -> float:
        """Calls back for so many seconds: median nanoseconds."""
        return statistics.median(_timed(ear.hear, SMALL, seconds))


def served() -> list[object]:
    """Further services of the probes' server."""
    return [Taker(), Asker()]


def url(spec: Spec, transport: str) -> str:
    """Where it is."""
    return f"shm://{spec.token}" if transport == "shm" else f"unix://{os.path.join(spec.directory, 'passing')}"


def _timed(call: Callable[[Any], Any], value: Any, seconds: float) -> array[int]:
    """Nanoseconds of calls that return their argument, after some that are not counted."""
    samples, clock = array("q"), time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    for number in itertools.count():
        started = clock()
        reply = call(value)
        finished = clock()
        if len(reply) != len(value):
            raise ValueError(f"wrong reply: {len(reply)} instead of {len(value)}")
        if number >= 50:
            samples.append(finished - started)
            if finished >= end:
                break
    return samples


def objects(spec: Spec, transport: str, seconds: float) -> dict[str, float]:
    """Median nanoseconds: plain calls, calls of objects, both where the client passes objects, and of calls back."""
    where = url(spec, transport)
    with nearcall.connect(where, Taker) as taker, nearcall.connect(where, Asker) as asker:
        calls = {
            "plain": taker.echo,
            "object": taker.seat().say,
            "plain, passing": asker.echo,
            "object, passing": asker.seat().say,
        }
        samples: dict[str, array[int]] = {name: array("q") for name in calls}
        back = []
        for _ in range(TURNS):
            for name, call in calls.items():
                samples[name] += _timed(call, SMALL, seconds / TURNS)
            back.append(asker.ask(Ear(), seconds / TURNS))
        return {name: statistics.median(found) for name, found in samples.items()} | {"back": statistics.median(back)}


def handed_over(spec: Spec, seconds: float, frames: int) -> dict[str, float]:
    """Median nanoseconds of echoes of memory that is handed over, and frames of fresh memory per second one way."""
    found: dict[str, float] = {}
    with nearcall.connect(url(spec, "shm"), Taker) as taker:
        for name, size in (("60k", 60_000), ("1m", 1_000_000)):
            memory = nearcall.buffer(size)
            memory[:] = bytes(range(250)) * (size // 250)
            if taker.mirror(memory) != memory:
                raise ValueError("a buffer came back as another one")
            found[name] = statistics.median(_timed(taker.mirror, memory, seconds))
        picture = nearcall.empty(FRAME, np.uint8)
        picture[:] = np.arange(FRAME[1], dtype=np.uint8)[:, None]
        if not np.array_equal(taker.frame(picture), picture):
            raise ValueError("a frame came back as another one")
        found["frame"] = statistics.median(_timed(taker.frame, picture, seconds))
        for count in (min(200, frames), frames):  # the first round is the warm-up
            before, begin = taker.taken(), time.perf_counter()
            for _ in range(count):
                fresh = nearcall.empty(FRAME, np.uint8)
                fresh[-1, -1, -1] = 1
                taker.take(fresh)
            while taker.taken() < before + count:
                time.sleep(0.0001)
            found["frames/s"] = count / (time.perf_counter() - begin)
    return found
