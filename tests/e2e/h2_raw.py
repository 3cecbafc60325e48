"""A gRPC client that makes HTTP/2's frames by hand, and so may make any."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4
LONGEST = 16_384
"""Bytes of the longest frame."""

ENDED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a socket raises once the other side has hung up: with TLS in between, it is no ConnectionError."""

_STATUS = re.compile(rb"\x0bgrpc-status([\x01\x02])(\d{1,2})")


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    names = {"table": HEADER_TABLE_SIZE, "window": INITIAL_WINDOW_SIZE}
    return frame(SETTINGS, b"".join(struct.pack(">HI", names[name], value) for name, value in values.items()))


def window(more: int, stream: int = 0) -> bytes:
    return frame(WINDOW_UPDATE, struct.pack(">I", more), stream=stream)


def reset(stream: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, struct.pack(">I", code), stream=stream)


def field(name: bytes, value: bytes) -> bytes:
    """A header that is in no table."""
    return b"\x00" + _text(name) + _text(value)


def kept(name: bytes, value: bytes) -> bytes:
    """The same, and from here on it is the newest in the other side's table, by which :func:`again` names it."""
    return b"\x40" + _text(name) + _text(value)


def again() -> bytes:
    return b"\xbe"


def request(path: bytes, *more: tuple[bytes, bytes], content_type: bytes = b"application/grpc") -> bytes:
    """A block of the headers of a call."""
    usual = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"raw")]
    usual += [(b"content-type", content_type), (b"te", b"trailers")]
    return b"".join(field(name, value) for name, value in (*usual, *more))


def headers(block: bytes, stream: int, *, ends: bool = False) -> bytes:
    """In as many frames as it needs."""
    parts = [block[at : at + LONGEST] for at in range(0, len(block), LONGEST)] or [b""]
    last = len(parts) - 1
    return b"".join(
        frame(
            CONTINUATION if number else HEADERS,
            part,
            flags=(END_HEADERS if number == last else 0) | (END_STREAM if ends and not number else 0),
            stream=stream,
        )
        for number, part in enumerate(parts)
    )


def message(payload: bytes, *, length: int | None = None, flag: int = 0) -> bytes:
    """A message, which may say that it is longer than it is."""
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


def data(payload: bytes, stream: int, *, ends: bool = False) -> bytes:
    parts = [payload[at : at + LONGEST] for at in range(0, len(payload), LONGEST)] or [b""]
    last = len(parts) - 1
    return b"".join(
        frame(DATA, part, flags=END_STREAM if ends and number == last else 0, stream=stream)
        for number, part in enumerate(parts)
    )


def _text(text: bytes) -> bytes:
    return _number(len(text)) + text


def _number(number: int) -> bytes:
    """In HPACK's form with seven bits in the first byte."""
    if number < 127:
        return bytes([number])
    number, out = number - 127, [127]
    while number >= 128:
        out.append(number % 128 | 128)
        number //= 128
    return bytes([*out, number])


class Gone(Exception):
    """The server has ended the connection."""


class RawClient:
    """One connection. It asks for headers that are in no table, so that a status can be found without HPACK."""

    def __init__(self, target: str | tuple[str, int] | socket.socket, *, window: int = 65_535) -> None:
        if isinstance(target, socket.socket):
            self.socket = target
        else:
            kind = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
            self.socket = socket.socket(kind, socket.SOCK_STREAM)
            self.socket.settimeout(20.0)
            self.socket.connect(target)
        self.socket.settimeout(20.0)
        self._buffer = b""
        self.connection_window = 65_535
        self.windows: dict[int, int] = {}
        self.statuses: dict[int, int] = {}
        self.resets: dict[int, int] = {}
        self.bytes_of: dict[int, int] = {}
        self.goodbye: int | None = None
        self.last: int | None = None
        """The last stream that the server takes, once it has said goodbye."""
        self.pings: list[bytes] = []
        """The server's pings, which nothing here answers."""
        self._first_window = 65_535
        self.send(PREFACE + settings(table=0, window=window))
        while not self._first:
            self.receive()

    _first = False
    _ended = False

    def send(self, *frames: bytes) -> None:
        if self._ended:
            # TLS would take it for the rest of what could not be sent.
            raise Gone
        try:
            self.socket.sendall(b"".join(frames))
        except ENDED as error:
            self._ended = True
            raise Gone from error

    def push(self, payload: bytes, stream: int, seconds: float, *, ends: bool = False) -> int:
        """DATA as the windows allow, until the server refuses or gives no more for so long. How many bytes."""
        self.windows.setdefault(stream, self._first_window)
        at, end = 0, time.monotonic() + seconds
        while at < len(payload) and stream not in self.statuses and stream not in self.resets:
            room = min(self.connection_window, self.windows[stream], len(payload) - at, 1 << 20)
            if room > 0:
                part = payload[at : at + room]
                at += room
                self.send(data(part, stream, ends=ends and at == len(payload)))
                self.connection_window -= room
                self.windows[stream] -= room
                self.drain()
                end = time.monotonic() + seconds
            elif not self.receive(max(0.0, end - time.monotonic())):
                break
        return at

    def receive(self, seconds: float = 20.0) -> bool:
        """Takes in one frame; whether there was one in time."""
        while True:
            if len(self._buffer) >= 9:
                length = int.from_bytes(self._buffer[:3], "big")
                if len(self._buffer) >= 9 + length:
                    head, payload = self._buffer[:9], self._buffer[9 : 9 + length]
                    self._buffer = self._buffer[9 + length :]
                    self._take_in(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)
                    return True
            self.socket.settimeout(max(seconds, 0.000_1))
            try:
                more = self.socket.recv(1 << 18)
            except TimeoutError:
                return False
            except ENDED as error:
                raise Gone from error
            finally:
                self.socket.settimeout(20.0)
            if not more:
                raise Gone
            self._buffer += more

    def drain(self) -> None:
        """Takes in what is there."""
        while self.receive(0.0):
            pass

    def status(self, stream: int) -> int:
        """Waits for the status of a call; -1 if it was reset without one."""
        while stream not in self.statuses and stream not in self.resets:
            if not self.receive():
                raise TimeoutError(f"no status of {stream}")
        return self.statuses.get(stream, -1)

    def call(self, path: str, payload: bytes, stream: int, *more: tuple[bytes, bytes]) -> int:
        """A whole call with one message; its status."""
        self.send(headers(request(path.encode(), *more), stream), data(message(payload), stream, ends=True))
        return self.status(stream)

    def _take_in(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == INITIAL_WINDOW_SIZE:
                    self._first_window = value
            self._first = True
            self.send(frame(SETTINGS, flags=ACK))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self.windows[stream] = self.windows.get(stream, self._first_window) + more
            else:
                self.connection_window += more
        elif kind == HEADERS:
            if found := _STATUS.search(payload):
                self.statuses[stream] = int(found[2])
        elif kind == DATA:
            self.bytes_of[stream] = self.bytes_of.get(stream, 0) + len(payload)
        elif kind == RST_STREAM:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.last, self.goodbye = struct.unpack_from(">II", payload)
        elif kind == PING and not flags & ACK:
            self.pings.append(payload)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
