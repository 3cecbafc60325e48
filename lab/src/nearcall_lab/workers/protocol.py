"""Messages between the lab and a worker: one line of JSON each way, followed by a blob if the line gives the length of
one.

The worker reads requests from one descriptor and writes answers to another, so that whatever a mechanism prints on
its standard streams cannot be mistaken for an answer.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

_MOST_LINE = 16 << 20
_MOST_BLOB = 1 << 30
"""Bytes. Enough for the stamps of 44 million calls."""


class PeerGone(Exception):
    """The other end of the channel closed it."""


class Timeout(Exception):
    """No complete message arrived in time."""


def _message(line: bytes) -> dict[str, Any]:
    """The message in a line. Raises `ValueError`."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("a line is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a line is no JSON object")
    size = message.get("blob", 0)
    if type(size) is not int or not 0 <= size <= _MOST_BLOB:
        raise ValueError(f"blob is {size!r}, not a number of bytes up to {_MOST_BLOB}"[:200])
    return message


class Channel:
    """A pair of descriptors carrying messages in both directions. Not for several threads at once."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._buffer = bytearray()
        self._line: dict[str, Any] | None = None

    def send(self, message: dict[str, Any], blob: bytes = b"") -> None:
        """Write one message. Raises `PeerGone` if the other end has closed the channel."""
        if blob:
            message = {**message, "blob": len(blob)}
        data = memoryview(json.dumps(message).encode() + b"\n" + blob)
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except ConnectionError as error:
            raise PeerGone("the worker is gone") from error

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes]:
        """Read one message and its blob. `timeout` is in seconds; None waits for ever.

        Raises `PeerGone`, `Timeout`, and `ValueError` for what is no message. After a `Timeout`
        nothing is lost: the next call continues where this one stopped.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._line is None:  # else a time limit ended the last attempt within the blob
            while (end := self._buffer.find(b"\n")) < 0:
                if len(self._buffer) > _MOST_LINE:
                    raise ValueError(f"a line is longer than {_MOST_LINE} bytes")
                self._fill(deadline)
            self._line = _message(bytes(self._buffer[:end]))
            del self._buffer[: end + 1]
        message = self._line
        size = int(message.get("blob", 0))
        while len(self._buffer) < size:
            self._fill(deadline)
        blob = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._line = None
        return message, blob

    def skip_to(self, mark: bytes, timeout: float, most: int) -> None:
        """Forget what comes before `mark`, a line, at the channel's very beginning, and the mark. Raises `PeerGone`,
        `Timeout`, and `ValueError` if it is not among the first `most` bytes.
        """
        deadline = time.monotonic() + timeout
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > most:
                raise ValueError(f"it says other things first, more than {most} bytes")
            self._fill(deadline)
        del self._buffer[: at + len(mark)]

    def _fill(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read_fd], [], [], left)[0]:
                raise Timeout("no answer in time")
        chunk = os.read(self._read_fd, 1 << 20)
        if not chunk:
            raise PeerGone("the worker is gone")
        self._buffer += chunk

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._read_fd)
        os.close(self._write_fd)
