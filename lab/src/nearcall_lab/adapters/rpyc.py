"""RPyC over a Unix socket. Values go by value (bytes, tuples); objects by reference would cost a trip per attribute."""

from __future__ import annotations

import os
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "rpyc",
        "RPyC",
        "rpc",
        requires=("rpyc",),
        distribution="rpyc",
        settings="UDS, ThreadedServer, zlib above 3 KB (its default); method looked up once",
        typed="tuple by value, dataclass rebuilt on both sides",
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import rpyc
    from rpyc.utils.server import ThreadedServer

    served = spec.served

    class Lab(rpyc.Service):  # type: ignore[misc]
        def exposed_echo(self, data: bytes) -> bytes:
            served.calls += 1
            return data

        def exposed_quote(self, order: tuple[Any, ...]) -> tuple[Any, ...]:
            served.calls += 1
            result = fill(Order(*order))
            return result.symbol, result.cost, result.lots, result.accepted

    path = os.path.join(spec.directory, "rpyc.sock")
    server = ThreadedServer(Lab, socket_path=path)
    stop.on(server.close)
    ready(path)
    server.start()


def connect(spec: Spec) -> SimpleSession:
    from rpyc.utils.factory import unix_connect

    connection = unix_connect(spec.address)
    echo, remote_quote = connection.root.echo, connection.root.quote

    def quote(order: Order) -> Fill:
        return Fill(*remote_quote((order.symbol, order.quantity, order.price, order.urgent)))

    return SimpleSession({"echo": echo, "quote": quote}, connection.close)
