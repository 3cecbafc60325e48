"""Images to a worker process and back: bytes, memoryview and numpy arrays, none of them converted or packed.

    pip install numpy
    python examples/image_worker.py serve
    python examples/image_worker.py

It prints::

    checksum of 6220800 bytes: 4192064000
    white pixels after inversion: 2073600
    (1080, 1920) float32 mean 1.0
    the result is read-only: True
"""

import sys
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import nearcall

URL = "shm://example-images"


@dataclass
class Picture:
    """Arrays may stand inside other types; their elements travel beside the message."""

    name: str
    pixels: NDArray[np.uint8]


@nearcall.service
class Images:
    def checksum(self, data: memoryview) -> int:
        """`memoryview`: looked at where it arrived. It may be kept, and keeps its memory for as long."""
        return zlib.crc32(data)

    def invert(self, picture: Picture) -> Picture:
        """What arrives is a read-only view; the arithmetic makes the one copy that is needed."""
        return Picture(picture.name, 255 - picture.pixels)

    def grey(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.asarray(pixels.mean(axis=2) / 255, np.float32)


def main() -> None:
    black = np.zeros((1080, 1920, 3), np.uint8)
    with nearcall.connect(URL, Images) as images:
        # Anything with a contiguous buffer can be given for bytes, bytearray or memoryview.
        print(f"checksum of {black.nbytes} bytes:", images.checksum(black.data))
        white = images.invert(Picture("night", black))
        print("white pixels after inversion:", int((white.pixels == 255).all(axis=2).sum()))
        grey = images.grey(white.pixels)
        print(grey.shape, grey.dtype, "mean", float(grey.mean()))
    # The arrays outlive the connection.
    print("the result is read-only:", not grey.flags.writeable)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Images(), URL)
    else:
        main()
