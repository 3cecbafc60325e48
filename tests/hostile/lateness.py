"""How late a thread wakes that only sleeps: what no call can beat, whatever answers it.

One such thread runs in the server's own process: it is late by what the machine and the interpreter take.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from pathlib import Path

PACE = 0.001
"""Seconds between two looks at the clock: what the honest client waits between two calls."""
MOST = 1 << 17
"""Looks that are remembered; at one a millisecond, those of two minutes."""
_COUNT = struct.Struct("<Q")
_LATE = struct.Struct("<d")
_LENGTH = _COUNT.size + MOST * _LATE.size


class Notes:
    """A file of a :class:`Lateness`, for the process that writes it."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LENGTH)
        self._count = 0

    def add(self, seconds: float) -> None:
        _LATE.pack_into(self._memory, _COUNT.size + self._count % MOST * _LATE.size, seconds)
        self._count += 1
        _COUNT.pack_into(self._memory, 0, self._count)


def _record(path: str) -> None:
    notes = Notes(path)
    while True:
        due = time.monotonic() + PACE
        time.sleep(PACE)
        notes.add(time.monotonic() - due)


def record_aside(path: str) -> None:
    """Begins a thread that sleeps and notes in a file how late it woke, in seconds, as long as the process lives."""
    threading.Thread(target=_record, args=(path,), name="lateness", daemon=True).start()


class Lateness:
    """What such a thread has noted, or handlers of their naps, as the tests read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "w+b") as file:
            file.truncate(_LENGTH)
            self._memory = mmap.mmap(file.fileno(), _LENGTH, access=mmap.ACCESS_READ)
        self._begun = 0

    def _count(self) -> int:
        count: int = _COUNT.unpack_from(self._memory, 0)[0]
        return count

    def begin(self) -> None:
        """Forgets what was noted before."""
        self._begun = self._count()

    def after(self, later: int) -> float:
        """The most seconds that were noted since ``begin``, but for so many that were more still; 0 if there were no
        more than those.

        Both the calls and the looks are fewer where they are held up, and not by the same share. So the honest client's
        p99, which so many calls exceed, stands beside this, and not beside a p99 of the looks.
        """
        end = self._count()
        begin = max(self._begun, end - MOST)
        noted = sorted(
            _LATE.unpack_from(self._memory, _COUNT.size + number % MOST * _LATE.size)[0] for number in range(begin, end)
        )
        return noted[-1 - later] if later < len(noted) else 0.0

    def close(self) -> None:
        """Removes the file."""
        self._memory.close()
        self.path.unlink()
