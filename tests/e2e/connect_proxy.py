"""A proxy that connects by HTTP's CONNECT, for tests: it counts what it is asked for, and passes everything on."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading


class ConnectProxy:
    """Use it in a ``with`` statement. Names lead to this machine, whatever they are."""

    def __init__(self, *, user: str | None = None, answer: str | None = None) -> None:
        self.asked: list[str] = []
        self._wanted = None if user is None else "Basic " + base64.b64encode(user.encode()).decode()
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            self._start(self._serve, client)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = client.recv(1)
                if not byte:
                    return
                head += byte
            line, *fields = head.decode().split("\r\n")
            method, authority, version = line.split(" ")
            assert (method, version) == ("CONNECT", "HTTP/1.1")
            assert f"Host: {authority}" in fields
            self.asked.append(authority)
            if self._answer is not None:
                client.sendall(self._answer.encode())
                client.shutdown(socket.SHUT_WR)
                return
            if self._wanted is not None and f"Proxy-Authorization: {self._wanted}" not in fields:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            server = socket.create_connection(("127.0.0.1", int(authority.rpartition(":")[2])))
            self._open.append(server)
            client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: tests\r\n\r\n")
            self._start(_pass_on, client, server)
            self._start(_pass_on, server, client)

    def __enter__(self) -> ConnectProxy:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(20)
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(20)
        for connection in self._open:
            connection.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while some := source.recv(65536):
            target.sendall(some)
        target.shutdown(socket.SHUT_WR)
