"""multiprocessing.connection over a Unix socket: bytes as they are, objects by pickle."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from nearcall_lab.contract import Mechanism, Operation, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import fill, named

MECHANISMS = (
    Mechanism(
        "multiprocessing",
        "multiprocessing.connection",
        "messaging",
        settings="AF_UNIX, send_bytes/recv_bytes, one connection per method",
        typed="pickle (send/recv)",
        transport="UDS",
        operations=("echo", "quote", "wait", "send"),
    ),
)


def _handle(connection: Connection[Any, Any], spec: Spec) -> None:
    """Serves one connection; its first message names the method that all others call."""
    count_call, receive = spec.served.count, spec.receive
    with connection:
        try:
            method = connection.recv_bytes()
            connection.send_bytes(b"")
            while method == b"quote":
                order = connection.recv()
                count_call()
                connection.send(fill(order))
            while method == b"wait":
                seconds = connection.recv()
                count_call()
                time.sleep(seconds)
                connection.send(named(seconds))
            while method == b"send":
                receive(connection.recv_bytes())
            while True:
                data = connection.recv_bytes()
                count_call()
                connection.send_bytes(data)
        except (EOFError, ConnectionResetError):
            return


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    address = os.path.join(spec.directory, "mp.sock")
    with Listener(address, "AF_UNIX") as listener:

        def wake() -> None:
            Client(address, "AF_UNIX").close()

        stop.on(wake)
        ready(address)
        while True:
            connection = listener.accept()
            if stop.is_set():
                return
            threading.Thread(target=_handle, args=(connection, spec), daemon=True).start()


def _open(spec: Spec, method: Operation) -> Connection[Any, Any]:
    connection: Connection[Any, Any] = Client(spec.address, "AF_UNIX")
    connection.send_bytes(method.encode())
    connection.recv_bytes()
    return connection


class _Session(SimpleSession):
    """A connection for each method that is used; the first is that of ``echo``."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._open: dict[Operation, Connection[Any, Any]] = {}
        super().__init__({}, self._close_all, lambda: self._of("echo"))

    def _of(self, method: Operation) -> Connection[Any, Any]:
        if method not in self._open:
            self._open[method] = _open(self._spec, method)
        return self._open[method]

    def _close_all(self) -> None:
        for connection in self._open.values():
            connection.close()

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        connection = self._of(operation)
        if operation == "send":
            return connection.send_bytes

        def echo(data: bytes) -> bytes:
            connection.send_bytes(data)
            return connection.recv_bytes()

        def ask(value: Any) -> Any:
            connection.send(value)
            return connection.recv()

        return echo if operation == "echo" else ask


def connect(spec: Spec) -> SimpleSession:
    return _Session(spec)
