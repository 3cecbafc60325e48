"""Apache Thrift by thriftpy2, which reads the service's definition when it starts; protocol and transport in C."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop, Transport
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_DEFINITION = Path(__file__).parent.parent / "programs" / "lab.thrift"


def _row(name: str, label: str, transport: Transport) -> Mechanism:
    return Mechanism(
        *(name, label, "rpc"),
        requires=("thriftpy2",),
        distribution="thriftpy2",
        settings="TThreadedServer, buffered transport, binary protocol, no timeouts"
        + (", TCP_NODELAY on both sides" if transport == "TCP" else ""),
        typed="Thrift struct, dataclass rebuilt on both sides",
        transport=transport,
        operations=("echo", "quote", "wait", "send"),
    )


MECHANISMS = (_row("thrift", "Thrift", "UDS"), _row("thrift-tcp", "Thrift, TCP", "TCP"))


def _load() -> Any:
    import thriftpy2

    return thriftpy2.load(str(_DEFINITION), module_name="nearcall_lab_thrift")


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    from thriftpy2.server import TThreadedServer
    from thriftpy2.thrift import TProcessor
    from thriftpy2.transport import TServerSocket

    logging.getLogger("thriftpy2").setLevel(logging.CRITICAL)  # it logs that its socket is closed when it stops
    types = _load()
    count_call, receive = spec.served.count, spec.receive
    over_tcp = spec.mechanism.transport == "TCP"

    class Lab:
        def echo(self, data: bytes) -> bytes:
            count_call()
            return data

        def quote(self, order: Any) -> Any:
            count_call()
            return types.Fill(**vars(fill(Order(order.symbol, order.quantity, order.price, order.urgent))))

        def wait(self, seconds: float) -> Any:
            count_call()
            time.sleep(seconds)
            return types.Named(**vars(named(seconds)))

        def send(self, data: bytes) -> None:
            receive(data)

    class Listener(TServerSocket):  # type: ignore[misc]
        def listen(self) -> None:
            super().listen()
            if over_tcp:
                # It has an option for the client's side only. Linux hands the listener's on to what it accepts.
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready(str(self.sock.getsockname()[1]) if over_tcp else self.unix_socket)

    where = {"host": spec.host, "port": 0} if over_tcp else {"unix_socket": os.path.join(spec.directory, "thrift.sock")}
    listener = Listener(**where, client_timeout=None)
    server = TThreadedServer(TProcessor(types.Lab, Lab()), listener, daemon=True)
    stop.on(server.close)
    stop.on(listener.close)
    server.serve()


def connect(spec: Spec) -> SimpleSession:
    from thriftpy2.rpc import make_client

    types = _load()

    def open_() -> None:
        over_tcp = spec.mechanism.transport == "TCP"
        where = {"host": spec.host, "port": int(spec.address)} if over_tcp else {"unix_socket": spec.address}
        client = make_client(types.Lab, **where, timeout=None)

        def quote(order: Order) -> Fill:
            filled = client.quote(types.Order(**vars(order)))
            return Fill(filled.symbol, filled.cost, filled.lots, filled.accepted)

        def wait(seconds: float) -> Named:
            reply = client.wait(seconds)
            return Named(reply.id, reply.name)

        session.provide(echo=client.echo, quote=quote, wait=wait, send=client.send)
        session.on_close = client.close

    session = SimpleSession({}, on_open=open_)
    return session
