"""Messages without a reply: what the sender puts into each, and what the receiver keeps of it.

The first 16 bytes of a message are its sequence number and the time it was due, as the sender's CLOCK_MONOTONIC, which
is the receiver's too. So the receiver's record alone shows how long each message took, which are missing, which came
twice and which came late.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Callable, Iterator

from nearcall_lab.workloads import octets

HEAD = struct.Struct("<QQ")
SMALLEST = HEAD.size
"""Bytes: shorter messages could not be told apart."""
PHASE_BIT, SLOT_BIT = 56, 40
_RING = 1 << 20
_CHECKED_EVERY = 64
"""Of every 64th message all the content is compared; of every message the length."""
_UNDERCOUNTED = 256
"""`Receiver.seen` may be behind by as many as there are threads that receive."""

WARM, TIMED = 0, 1
"""Phases. A message of the warm-up that arrives late must not be taken for a timed one."""


def body(size: int) -> bytes:
    """What follows the head, the same in every message of that size."""
    return octets(size)[0][SMALLEST:]


class Messages:
    """The messages of one slot."""

    def __init__(self, slot: int, phase: int, size: int, now: Callable[[], int], extra_copy: bool) -> None:
        self._base = phase << PHASE_BIT | slot << SLOT_BIT
        self._tail = body(size)
        self._now = now
        self._ring = bytearray(max(_RING, size)) if extra_copy else None
        self._numbers = itertools.count(self._base)
        self._at = 0

    def at_once(self) -> Iterator[bytes]:
        """Messages without end, each due at the time when it is taken."""
        pack, tail, now = HEAD.pack, self._tail, self._now
        for number in self._numbers:
            message = pack(number, now()) + tail
            yield message if self._ring is None else self._through_ring(message)

    def due(self, number: int, due_ns: int) -> bytes:
        """The next message, due at `due_ns`. `number` is that of the schedule, which all slots share; it is not
        used.
        """
        message = HEAD.pack(next(self._numbers), due_ns) + self._tail
        return message if self._ring is None else self._through_ring(message)

    def _through_ring(self, message: bytes) -> bytes:
        """Copy it in and out of a ring of the sender's own."""
        ring, size = self._ring, len(message)
        assert ring is not None
        if self._at + size > len(ring):
            self._at = 0
        place = slice(self._at, self._at + size)
        ring[place] = message
        self._at += size
        return bytes(ring[place])


class Receiver:
    """Records the time and the head of each message. The adapter's handler calls `receive`, in any thread.

    It lives in the server's process, whose memory is measured: hence no numpy here. `arrivals` reads the record.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.receive: Callable[[bytes], object]
        self._buffers: Callable[[], tuple[array[int], bytearray, int]]
        self._wrong: list[int] = []
        self._beyond: list[int] = []
        self.receive, self._swap, self._buffers = self._make(now)

    def arm(self, size: int, capacity: int) -> None:
        """Forget everything and expect messages of `size` bytes, `capacity` at most."""
        self._wrong.clear()
        self._beyond.clear()
        self._swap(size, capacity)

    def seen(self) -> int:
        """How many messages have come since `arm`, right or wrong."""
        return self._buffers()[2]

    def collect(self) -> tuple[bytes, bytes]:
        """Times and heads in the order of arrival; zeros where a message was not kept."""
        stamps, heads, seen = self._buffers()
        kept = min(len(stamps), seen + _UNDERCOUNTED)
        return stamps[:kept].tobytes(), bytes(heads[: kept * SMALLEST])

    def refused(self) -> tuple[int, int]:
        """Messages of another length or content than was announced, and messages for which there was no room."""
        return len(self._wrong), len(self._beyond)

    def _make(
        self, now: Callable[[], int]
    ) -> tuple[Callable[[bytes], object], Callable[[int, int], None], Callable[[], tuple[array[int], bytearray, int]]]:
        # Closed-over names are the fastest that Python has, and an adapter may keep the function.
        stamps, heads, numbers, seen = array("q"), bytearray(), itertools.count(), 0
        expected, tail = 0, b""
        wrong, beyond = self._wrong, self._beyond

        def receive(data: bytes) -> None:
            nonlocal seen
            stamp = now()
            at = next(numbers)  # in one step, whichever thread this is
            seen = at + 1
            if len(data) != expected or (at % _CHECKED_EVERY == 0 and data[SMALLEST:] != tail):
                wrong.append(at)
                return
            try:
                stamps[at] = stamp
            except IndexError:
                beyond.append(at)
                return
            heads[SMALLEST * at : SMALLEST * at + SMALLEST] = data[:SMALLEST]

        def swap(size: int, capacity: int) -> None:
            nonlocal stamps, heads, numbers, seen, expected, tail
            stamps, heads = array("q", bytes(8 * capacity)), bytearray(SMALLEST * capacity)
            expected, tail = size, body(size)
            numbers, seen = itertools.count(), 0

        return receive, swap, lambda: (stamps, heads, seen)
