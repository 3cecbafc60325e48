"""Video frames through another process without a copy: made in memory that both sides map, and handed back in part.

    pip install numpy
    python examples/frames.py serve
    python examples/frames.py

It prints::

    frame 1: mean 1.0, inverted 254.0
    frame 2: mean 2.0, inverted 253.0
    frame 3: mean 3.0, inverted 252.0
    the middle came back in the memory that was sent: True
    8 frames from the camera: [0, 1, 2, 3, 4, 5, 6, 7]
"""

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import nearcall

URL = "shm://example-frames"
SHAPE = (1080, 1920, 3)

Frame = NDArray[np.uint8]


@nearcall.service
class Filter:
    def invert(self, frame: Frame) -> Frame:
        """The result is made where the caller will read it."""
        inverted = nearcall.empty(frame.shape, np.uint8)
        np.subtract(255, frame, out=inverted)
        return inverted

    def middle(self, frame: Frame) -> Frame:
        """A part of what came goes back to whose memory it is."""
        return frame[400:500]

    def camera(self, count: int) -> Iterator[Frame]:
        """Each frame is lent until the caller drops it, and its memory used again then."""
        for number in range(count):
            frame = nearcall.empty(SHAPE, np.uint8)
            frame[:] = number
            yield frame


def main() -> None:
    with nearcall.connect(URL, Filter) as pictures:
        for number in range(1, 4):
            frame = nearcall.empty(SHAPE, np.uint8)  # for each message: nobody else has it
            frame[:] = number
            inverted = pictures.invert(frame)
            print(f"frame {number}: mean {frame.mean()}, inverted {inverted.mean()}")
        frame = nearcall.empty(SHAPE, np.uint8)
        middle = pictures.middle(frame)
        print("the middle came back in the memory that was sent:", np.shares_memory(middle, frame[400:500]))
        print("8 frames from the camera:", [int(frame[0, 0, 0]) for frame in pictures.camera(8)])


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Filter(), URL)
    else:
        main()
