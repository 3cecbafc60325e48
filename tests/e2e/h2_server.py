"""A gRPC server that makes HTTP/2's frames by hand, and refuses calls as it is told."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import BinaryIO

from .h2_raw import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    SETTINGS,
    data,
    field,
    frame,
    message,
    reset,
    window,
)

GOAWAY = 7
REFUSED_STREAM = 7
MAX_CONCURRENT_STREAMS = 3
PLENTY = 1 << 26
"""Bytes of windows that are never used up."""

Refuse = Callable[[int], bytes]
"""What refuses a stream, and maybe others."""


def refuse_stream(stream: int) -> bytes:
    return reset(stream, REFUSED_STREAM)


def go_away(_: int) -> bytes:
    """Says that no stream was begun, and that none will be."""
    return frame(GOAWAY, bytes(8))


class Refusing:
    """Refuses the first calls, as many as it is told, when so many of their messages have come, and answers the others:
    each message with itself, or, if it ``totals``, all of them with the number of their bytes.
    """

    def __init__(
        self,
        refusals: int,
        *,
        refuse: Refuse = refuse_stream,
        after: int = 0,
        totals: bool = False,
        most_streams: int | None = None,
    ) -> None:
        self.seen = 0
        """Calls, refused ones too."""
        self.begun = threading.Event()
        self.connections = 0
        self._most_streams = most_streams
        self._open: list[socket.socket] = []
        self.messages: list[bytes] = []
        """Of the calls that were answered."""
        self._left, self._refuse, self._after, self._totals = refusals, refuse, after, totals
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            limit = (
                b"" if self._most_streams is None else struct.pack(">HI", MAX_CONCURRENT_STREAMS, self._most_streams)
            )
            values = struct.pack(">HI", INITIAL_WINDOW_SIZE, PLENTY) + limit
            connection.sendall(frame(SETTINGS, values) + window(PLENTY))
            assert incoming.read(len(PREFACE)) == PREFACE
            calls: dict[int, _Call] = {}
            with contextlib.suppress(ConnectionError):
                while head := incoming.read(9):
                    self._take_in(connection, calls, head, incoming)

    def _take_in(self, connection: socket.socket, calls: dict[int, _Call], head: bytes, incoming: BinaryIO) -> None:
        payload = incoming.read(int.from_bytes(head[:3], "big"))
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        if kind == HEADERS:
            self.seen += 1
            self.begun.set()
            calls[stream] = _Call(self._left > 0, self._totals)
            self._left -= calls[stream].refused
        if kind not in (HEADERS, DATA) or stream not in calls:
            return
        call = calls[stream]
        come = call.take(payload) if kind == DATA else []
        if call.refused:
            if call.count >= self._after:
                del calls[stream]
                connection.sendall(self._refuse(stream))
            return
        self.messages += come
        connection.sendall(call.answer(stream, come, ends=bool(flags & END_STREAM)))

    def hang_up(self) -> None:
        """Ends the connections of the moment."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Takes no more connections."""
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Refusing:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        for thread in self._threads:
            thread.join(20)


class _Call:
    """A call that has begun."""

    def __init__(self, refused: bool, totals: bool) -> None:
        self.refused = refused
        self.count = 0
        self._totals, self._rest, self._bytes, self._begun = totals, b"", 0, False

    def take(self, payload: bytes) -> list[bytes]:
        """The messages that are complete now."""
        self._rest += payload
        come: list[bytes] = []
        while len(self._rest) >= 5 and len(self._rest) >= (end := 5 + int.from_bytes(self._rest[1:5], "big")):
            come.append(self._rest[5:end])
            self._rest = self._rest[end:]
        self.count += len(come)
        self._bytes += sum(map(len, come))
        return come

    def answer(self, stream: int, come: list[bytes], *, ends: bool) -> bytes:
        out = b""
        replies = [] if self._totals else come
        if self._totals and ends:
            replies = [b"\x08" + _varint(self._bytes)]
        if replies and not self._begun:
            self._begun = True
            out += frame(
                HEADERS, b"\x88" + field(b"content-type", b"application/grpc"), flags=END_HEADERS, stream=stream
            )
        out += b"".join(data(message(reply), stream) for reply in replies)
        if ends:
            end = field(b"grpc-status", b"0")
            if not self._begun:
                end = b"\x88" + field(b"content-type", b"application/grpc") + end
            out += frame(HEADERS, end, flags=END_HEADERS | END_STREAM, stream=stream)
        return out


def _varint(number: int) -> bytes:
    out = []
    while number >= 128:
        out.append(number % 128 | 128)
        number //= 128
    return bytes([*out, number])
