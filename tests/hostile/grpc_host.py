"""A gRPC server that makes HTTP/2's frames by hand, and so may make any. It reads no headers: it knows calls by
their streams."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..e2e.h2_raw import (
    ACK,
    DATA,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    Gone,
    data,
    field,
    frame,
    headers,
    message,
    settings,
    window,
)

PATIENCE = 5.0
WIDE = settings(window=1 << 30) + window(1 << 30)
"""Settings of a server that takes whatever is sent."""
STATUS_200 = field(b":status", b"200") + field(b"content-type", b"application/grpc")


@dataclass(frozen=True)
class Received:
    kind: int
    flags: int
    stream: int
    payload: bytes


class Connection:
    """To one client, whose preface has not been read."""

    def __init__(self, connection: socket.socket, closed: threading.Event, turns: Iterator[int]) -> None:
        self.socket = connection
        self.socket.settimeout(PATIENCE)
        self.closed = closed
        self.turns = turns
        """Numbers of the host's, one for each call, whichever connection it came on."""
        self._buffer = b""

    def send(self, *frames: bytes) -> None:
        try:
            self.socket.sendall(b"".join(frames))
        except OSError as error:
            raise Gone from error

    def _fill(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        try:
            more = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError as error:
            raise Gone from error
        finally:
            self.socket.settimeout(PATIENCE)
        if not more:
            raise Gone
        self._buffer += more
        return True

    def greet(self, greeting: bytes | None = None) -> None:
        """Reads the client's preface, and says these settings."""
        while len(self._buffer) < len(PREFACE):
            if not self._fill(PATIENCE):
                raise Gone
        self._buffer = self._buffer[len(PREFACE) :]
        self.send(WIDE if greeting is None else greeting)

    def frames(self) -> Iterator[Received]:
        """What comes, until the client has gone or the test is over."""
        while not self.closed.is_set():
            while len(self._buffer) >= 9:
                end = 9 + int.from_bytes(self._buffer[:3], "big")
                if len(self._buffer) < end:
                    break
                head, payload = self._buffer[:9], self._buffer[9:end]
                self._buffer = self._buffer[end:]
                yield Received(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)
            self._fill(0.05)

    def calls(self) -> Iterator[int]:
        """The streams of calls whose first message has come; settings and pings are answered on the way."""
        begun: set[int] = set()
        for one in self.frames():
            if one.kind == SETTINGS and not one.flags & ACK:
                self.send(frame(SETTINGS, flags=ACK))
            elif one.kind == PING and not one.flags & ACK:
                self.send(frame(PING, one.payload, flags=ACK))
            elif one.stream not in begun and (one.kind == DATA or (one.kind == HEADERS and one.flags & END_STREAM)):
                begun.add(one.stream)
                yield one.stream

    def head(self, stream: int, *more: tuple[bytes, bytes]) -> bytes:
        return headers(STATUS_200 + b"".join(field(*one) for one in more), stream)

    def trailers(self, stream: int, *fields: tuple[bytes, bytes]) -> bytes:
        return headers(b"".join(field(*one) for one in fields), stream, ends=True)

    def reply(self, stream: int, body: bytes = b"") -> bytes:
        """A whole answer."""
        return self.head(stream) + data(message(body), stream) + self.trailers(stream, (b"grpc-status", b"0"))


class GrpcHost:
    """Serves each client that comes, in a thread of its own, until closed."""

    def __init__(self, transport: str, directory: Path, name: str, harm: Callable[[Connection], None]) -> None:
        self._harm = harm
        self._path: Path | None = None
        if transport == "grpc+unix":
            self._path = directory / f"{name}.grpc"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self._path))
            self.url = f"grpc+unix://{self._path}"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._listener.listen(50)
        self._listener.settimeout(0.05)
        self.failures: list[str] = []
        self._closed = threading.Event()
        self._turns = itertools.count()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                continue
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.closing(connection):
            try:
                self._harm(Connection(connection, self._closed, self._turns))
            except (Gone, OSError):
                pass
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        self._closed.set()
        self._listener.close()
        self._accepting.join(10)
        for thread in self._threads:
            thread.join(10)
        if self._path is not None:
            self._path.unlink()
