"""multiprocessing.connection over a Unix socket: bytes as they are, objects by pickle."""

from __future__ import annotations

import os
import threading
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from nearcall_lab.contract import Mechanism, Operation, Ready, Served, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Order, fill

MECHANISMS = (
    Mechanism(
        "multiprocessing",
        "multiprocessing.connection",
        "messaging",
        settings="AF_UNIX, send_bytes/recv_bytes, one connection per method",
        typed="pickle (send/recv)",
    ),
)


def _handle(connection: Connection[Any, Any], served: Served) -> None:
    with connection:
        try:
            typed = connection.recv_bytes() == b"quote"
            while True:
                if typed:
                    order = connection.recv()
                    served.calls += 1
                    connection.send(fill(order))
                else:
                    data = connection.recv_bytes()
                    served.calls += 1
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
            threading.Thread(target=_handle, args=(connection, spec.served), daemon=True).start()


def _open(spec: Spec, method: Operation) -> Connection[Any, Any]:
    connection: Connection[Any, Any] = Client(spec.address, "AF_UNIX")
    connection.send_bytes(method.encode())
    return connection


def connect(spec: Spec) -> SimpleSession:
    echo_connection, quote_connection = _open(spec, "echo"), _open(spec, "quote")

    def echo(data: bytes) -> bytes:
        echo_connection.send_bytes(data)
        return echo_connection.recv_bytes()

    def quote(order: Order) -> Any:
        quote_connection.send(order)
        return quote_connection.recv()

    def close() -> None:
        echo_connection.close()
        quote_connection.close()

    return SimpleSession({"echo": echo, "quote": quote}, close)
