"""What the workers of a server keep together: memory that outlives each of them, and that the death of none harms."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["Kept"]

PATIENCE = 1.0
"""Seconds that a worker waits for another one that has the memory."""
_LOOK = 0.002
"""Seconds after which it looks again."""
_HEAD = struct.Struct("=QQ")
"""Where the content begins, and its length."""
_TURN = 1 << 40
"""The byte whose lock a worker has that has the memory. It is behind all content, as are the lives."""
_LIVES = _TURN + 1
"""The byte whose lock the process with the number 0 would have as long as it lives."""


class Kept:
    """A file in memory with a dict, in JSON. The parent makes it, before it starts workers; they inherit it.

    The locks are the system's, which frees them when a process dies. They belong to a process and a file, and are lost
    when the process closes any descriptor of that file. So there is only this one.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("nearcall-kept", os.MFD_CLOEXEC)
        os.pwrite(self._file, _HEAD.pack(_HEAD.size, 0), 0)
        self._turn = threading.Lock()
        self._own: set[int] = set()

    def close(self) -> None:
        """In the parent: nobody starts workers any more."""
        os.close(self._file)

    def live(self) -> int:
        """A number for the calling process that no other has, now or later."""
        with self.open() as content:
            number: int = content.get("lives", 0) + 1
            content["lives"] = number
            self._own.add(number)
            self._lock(_LIVES + number)  # which nobody has looked at yet
        return number

    def lives(self, number: int) -> bool:
        """Whether the process with that number lives. To be asked while the memory is :meth:`open`."""
        if number in self._own:
            return True  # whose lock would be given to this process again
        if self._lock(_LIVES + number):
            self._unlock(_LIVES + number)
            return False
        return True

    @contextmanager
    def open(self) -> Generator[dict[str, Any], None, None]:
        """The content, to be read and changed, by one thread of one worker at a time. Who dies or raises meanwhile has
        changed nothing.

        Raises:
            TimeoutError: another worker has it, and is stuck.
        """
        end = time.monotonic() + PATIENCE
        if not self._turn.acquire(timeout=PATIENCE):
            raise TimeoutError("another thread has what the workers keep")
        try:
            while not self._lock(_TURN):
                if time.monotonic() >= end:
                    raise TimeoutError("another worker has what the workers keep")
                time.sleep(_LOOK)
            try:
                content = self._read()
                yield content
                self._write(content)
            finally:
                self._unlock(_TURN)
        finally:
            self._turn.release()

    def _lock(self, byte: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def _where(self) -> tuple[int, int]:
        start, length = _HEAD.unpack(os.pread(self._file, _HEAD.size, 0))
        return start, length

    def _read(self) -> dict[str, Any]:
        start, length = self._where()
        content: dict[str, Any] = json.loads(os.pread(self._file, length, start) or b"{}")
        return content

    def _write(self, content: dict[str, Any]) -> None:
        """Writes beside what is there, and then where to read: who dies in between has written nothing."""
        data = json.dumps(content, ensure_ascii=False).encode()
        start, length = self._where()
        place = _HEAD.size if _HEAD.size + len(data) <= start else start + length
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], place + written)
        os.pwrite(self._file, _HEAD.pack(place, len(data)), 0)
