"""A program of RMR in plain Python, written from docs/rmr.md: it shares no code with nearcall."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

TRANSPORT, HEADER = 50, 280
CALL = 4
PATIENCE = 30.0


class Frame(NamedTuple):
    """A message."""

    type: int
    payload: bytes
    subscription: int = -1
    transaction: bytes = b""
    entity: bytes = b""
    source: bytes = b""
    source_address: bytes = b""
    trace: bytes = b""
    call: int = 0
    flags: int = 0
    version: int = 3


def encoded(frame: Frame, **wrong: int) -> bytes:
    """A message as bytes. ``wrong`` replaces lengths: that of all (``total``), and those of ``header``, ``trace``,
    ``data1``, ``data2`` and ``payload``.
    """
    data1 = bytes([frame.call, 0, 0, 0])
    head = b"".join(
        (
            struct.pack(">iii", frame.type, wrong.get("payload", len(frame.payload)), frame.version),
            frame.transaction.ljust(32, b"\0"),
            bytes(32),
            frame.source.ljust(64, b"\0"),
            frame.entity.ljust(32, b"\0"),
            bytes(4 + 16),
            struct.pack("=i", frame.flags),
            struct.pack(
                ">iiiii",
                wrong.get("header", HEADER),
                wrong.get("trace", len(frame.trace)),
                wrong.get("data1", len(data1)),
                wrong.get("data2", 0),
                frame.subscription,
            ),
            frame.source_address.ljust(64, b"\0"),
        )
    )
    assert len(head) == HEADER
    body = head + frame.trace + data1 + frame.payload
    total = wrong.get("total", TRANSPORT + len(body))
    # RMR does not clear the rest of its transport's bytes.
    return (struct.pack("=i", total) + struct.pack(">i", total) + b"$").ljust(TRANSPORT, b"\xa5") + body


def decoded(data: bytes) -> Frame:
    """The message that these bytes are, all of them."""
    assert struct.unpack("=i", data[:4]) == struct.unpack(">i", data[4:8]) == (len(data),)
    assert data[8:9] == b"$"
    head = data[TRANSPORT:]
    kind, payload, version = struct.unpack(">iii", head[:12])
    (flags,) = struct.unpack("=i", head[192:196])
    header, trace, data1, data2, subscription = struct.unpack(">iiiii", head[196:216])
    assert (version, header, data1, data2) == (3, HEADER, 4, 0)
    assert head[44:76] == bytes(32)
    assert head[172:192] == bytes(20)
    assert len(head) == HEADER + trace + 4 + payload
    return Frame(
        kind,
        head[HEADER + trace + 4 :],
        subscription,
        head[12:44].rstrip(b"\0"),
        head[140:172].rstrip(b"\0"),
        head[76:140].rstrip(b"\0"),
        head[216:280].rstrip(b"\0"),
        head[HEADER : HEADER + trace],
        head[HEADER + trace],
        flags,
        version,
    )


def read(connection: socket.socket) -> Frame:
    """The next message of a connection."""
    begin = _exactly(connection, 9)
    (length,) = struct.unpack(">i", begin[4:8])
    return decoded(begin + _exactly(connection, length - 9))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, "the connection has ended"
        data += piece
    return bytes(data)


class Peer:
    """A program that listens, and that dials the programs it sends to.

    Args:
        listener: Its listening socket.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._dialled: dict[str, socket.socket] = {}
        self._accepted: list[socket.socket] = []
        self.place = f"127.0.0.1:{listener.getsockname()[1]}"
        self.url = f"rmr://{self.place}"

    def frame(self, type: int, payload: bytes, **about: object) -> Frame:
        """A message of this program."""
        place = self.place.encode()
        return Frame(type, payload, **({"source": place, "source_address": place} | about))  # type: ignore[arg-type]

    def send(self, url: str, *frames: Frame) -> None:
        """Sends messages to a program."""
        self.connection(url).sendall(b"".join(encoded(frame) for frame in frames))

    def connection(self, url: str) -> socket.socket:
        """The connection to a program."""
        if url not in self._dialled:
            host, _, port = url.removeprefix("rmr://").rpartition(":")
            self._dialled[url] = socket.create_connection((host, int(port)), PATIENCE)
        return self._dialled[url]

    def accept(self) -> socket.socket:
        """The next connection that comes."""
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE)
        self._accepted.append(connection)
        return connection

    def receive(self) -> Frame:
        """The next message of the first connection that came."""
        return read(self._accepted[0] if self._accepted else self.accept())

    def close(self) -> None:
        """Ends all of it."""
        for each in (self._listener, *self._dialled.values(), *self._accepted):
            each.close()


@contextmanager
def peer() -> Iterator[Peer]:
    """A program that is there for a while."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)
    made = Peer(listener)
    try:
        yield made
    finally:
        made.close()
