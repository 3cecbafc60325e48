"""Two pipes between two processes: the oldest way, and a floor for everything that goes through the kernel."""

from __future__ import annotations

import os
import struct
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop

MECHANISMS = (
    Mechanism(
        "raw-pipe",
        "raw pipe",
        "socket",
        settings="two named pipes, four bytes of length before each message; one client only",
        transport="pipe",
        operations=("echo",),
    ),
)

_HEADER = struct.Struct("<I")


def _paths(spec: Spec) -> tuple[str, str]:
    return os.path.join(spec.directory, "requests"), os.path.join(spec.directory, "replies")


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, size)
        if not part:
            raise EOFError("the other end closed the pipe")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _receive(descriptor: int) -> bytes:
    return _read(descriptor, _HEADER.unpack(_read(descriptor, 4))[0])


def _send(descriptor: int, data: bytes) -> None:
    left = memoryview(_HEADER.pack(len(data)) + data)
    while left:
        left = left[os.write(descriptor, left) :]


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    requests, replies = _paths(spec)
    os.mkfifo(requests)
    os.mkfifo(replies)
    count_call = spec.served.count
    # Opened for both directions: neither side's opening waits for the other's, and a client may come late.
    read_end, write_end = os.open(requests, os.O_RDWR), os.open(replies, os.O_RDWR)
    stop.on(lambda: os._exit(0))
    ready(spec.directory)
    while True:
        data = _receive(read_end)
        count_call()
        _send(write_end, data)


def connect(spec: Spec) -> SimpleSession:
    descriptors: list[int] = []

    def open_() -> None:
        requests, replies = (os.path.join(spec.address, name) for name in ("requests", "replies"))
        descriptors.extend((os.open(requests, os.O_WRONLY), os.open(replies, os.O_RDONLY)))

    def echo(data: bytes) -> Any:
        _send(descriptors[0], data)
        return _receive(descriptors[1])

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return SimpleSession({"echo": echo}, close, open_)
