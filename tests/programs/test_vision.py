"""The vision worker finds what is there, in every way to call it, and outlives its process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

import nearcall

from . import vision


@pytest.fixture(scope="module")
def worker() -> Iterator[vision.Worker]:
    with vision.Worker() as worker:
        yield worker


def test_frames_one_by_one_and_as_a_stream(worker: vision.Worker) -> None:
    one = worker.look(7, vision.image_of(7))
    assert one is not None
    assert one.worker != os.getpid()
    # The second square is to the right of the first one, and lower.
    assert one.boxes == [vision.Box(50, 7, 70, 27), vision.Box(7, 400, 27, 420)]
    found = list(worker.vision.watch((number, vision.image_of(number)) for number in range(50)))
    assert [each.frame for each in found] == list(range(50))
    assert found[7].boxes == one.boxes


def test_calibration_tells_how_far_it_is_and_is_given_up(worker: vision.Worker) -> None:
    seen: list[tuple[int, int]] = []

    def progress(done: int, of: int) -> None:
        seen.append((done, of))

    assert worker.vision.calibrate(np.full(vision.SHAPE, 90, np.uint8), 3, progress) == 91
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with nearcall.timeout(0.1), pytest.raises(nearcall.DeadlineExceeded):
        worker.vision.calibrate(vision.image_of(0), 1_000_000, progress)
    assert (worker.vision.negative(vision.image_of(1)) == 255 - vision.image_of(1)).all()


def test_what_is_no_image_is_refused(worker: vision.Worker) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"frame 3 has the shape \(4, 4\)"):
        worker.look(3, np.zeros((4, 4), np.uint8))
    with pytest.raises(nearcall.InvalidArgument, match="argument 'image'"):
        worker.look(3, cast(Any, np.zeros(vision.SHAPE, np.float32)))
    assert worker.deaths == 0


def test_a_worker_that_dies_of_a_frame_is_replaced() -> None:
    with vision.Worker() as worker:
        bad = vision.image_of(0)
        bad[0, 0] = 66
        assert worker.look(0, bad) is None
        assert worker.deaths == 2
        after = worker.look(1, vision.image_of(1))
        assert after is not None
        assert len(after.boxes) == 2


def test_the_program() -> None:
    done = subprocess.run(
        [sys.executable, vision.__file__, "30"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "calibrated to 21: 10/10\n60 boxes in 30 frames\n"
