"""What attacked servers and clients have in common: their service, and descriptors that are no shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import nearcall

BACKWARDS = "the writer's counter of the ring went backwards or past the ring's size"


@nearcall.service
class Echo:
    def echo(self, data: bytes) -> bytes:
        return data

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    async def refuse(self) -> None:
        self.refused = True
        raise nearcall.NotFound("nothing")

    def has_refused(self) -> bool:
        return getattr(self, "refused", False)


ECHO, COUNT, TOTAL, REFUSE = range(4)


def not_memory() -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


def ordinary_file() -> int:
    fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.ftruncate(fd, 1 << 16)
    return fd
