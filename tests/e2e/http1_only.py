"""What makes an old server of a new one: it passes HTTP/1.1 on, and takes what HTTP/2 begins with for a bad request."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

__all__ = ["Http1Only"]

_REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Http1Only:
    """In front of a server at ``http://host:port``.

    Args:
        url: Where that is.
        words: Whether HTTP/2 is refused in words; else the connection just ends.
    """

    def __init__(self, url: str, *, words: bool = True) -> None:
        host, _, port = url.partition("://")[2].rpartition(":")
        self._behind = (host, int(port))
        self._words = words
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.refused = 0
        self.alive: list[socket.socket] = []
        """Connections of clients that have asked for something, in the order in which they did."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            first = client.recv(1 << 16)
            if first.startswith(b"PRI"):
                self.refused += 1
                if self._words:
                    client.sendall(_REFUSAL)
                return
            if not first:
                return
            with socket.create_connection(self._behind) as server:
                self._sockets.append(server)
                self.alive.append(client)
                back = threading.Thread(target=_carry, args=(server, client), daemon=True)
                back.start()
                with contextlib.suppress(OSError):
                    server.sendall(first)
                    _carry(client, server)
                back.join()
                self.alive.remove(client)

    def cut(self, connections: int) -> None:
        """Ends so many connections, those that have asked first."""
        for client in self.alive[:connections]:
            # The client may have ended it already.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Http1Only:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # To close a listener does not wake who accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
