"""RPyC's three servers. Values go by value (bytes, tuples); objects by reference would cost a trip per attribute."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

from nearcall_lab.adapters import certificates
from nearcall_lab.contract import OPERATIONS, Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_TYPED = "tuple by value, dataclass rebuilt on both sides"
_UNREAD = 64
"""Calls that are not waited for, after which their replies are read."""
_COMMON = f"method looked up once; replies of one-way calls read after every {_UNREAD}"
_ZLIB = "zlib above 3 KB (its default)"
_PLAIN = "no zlib"
_NODELAY = "TCP, TCP_NODELAY on both sides"
_WHY = (
    "The maintainers' answer to who finds large messages slow (RPyC issue 438): switch off compression, which on one "
    "machine costs far more than the bytes that it saves."
)


def _row(name: str, label: str, variant: str, settings: str, why: str = "") -> Mechanism:
    # The forking server receives in a process per connection, where nothing of the lab could time an arrival.
    operations = tuple(each for each in OPERATIONS if each != "send" or not variant.startswith("forking"))
    return Mechanism(
        *(name, label, "rpc", variant, ("rpyc",), "rpyc", f"{settings}; {_COMMON}", _TYPED),
        operations=operations,
        transport="UDS" if variant.endswith("unix") else "TCP",
        tuned=bool(why),
        why=why,
    )


MECHANISMS = (
    _row("rpyc", "RPyC", "threaded-unix", f"UDS, ThreadedServer, {_ZLIB}"),
    _row("rpyc-tuned", "RPyC, tuned", "threaded-unix", f"UDS, ThreadedServer, {_PLAIN}", _WHY),
    _row("rpyc-tcp", "RPyC, TCP", "threaded-tcp", f"ThreadedServer, {_NODELAY}, {_ZLIB}"),
    _row("rpyc-tcp-tuned", "RPyC, TCP, tuned", "threaded-tcp", f"ThreadedServer, {_NODELAY}, {_PLAIN}", _WHY),
    _row("rpyc-tls", "RPyC, TLS", "threaded-tls", f"ThreadedServer, SSLAuthenticator, {_NODELAY}, {_ZLIB}"),
    _row(
        *("rpyc-forking", "RPyC, forking server", "forking-tcp"),
        f"ForkingServer, a process per connection, {_NODELAY}, {_ZLIB}",
    ),
    _row(
        *("rpyc-oneshot", "RPyC, one-shot server", "oneshot-tcp"),
        f"OneShotServer, one connection in all, {_NODELAY}, {_ZLIB}",
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import rpyc
    from rpyc.utils import server as servers

    kind, transport = spec.mechanism.variant.split("-")
    if kind == "forking":
        spec.served.share()
    count_call, receive = spec.served.count, spec.receive

    class Lab(rpyc.Service):  # type: ignore[misc]
        def on_connect(self, connection: Any) -> None:
            _set_up(connection, spec)

        def exposed_echo(self, data: bytes) -> bytes:
            count_call()
            return data

        def exposed_quote(self, order: tuple[Any, ...]) -> tuple[Any, ...]:
            count_call()
            result = fill(Order(*order))
            return result.symbol, result.cost, result.lots, result.accepted

        def exposed_wait(self, seconds: float) -> tuple[int, str]:
            count_call()
            time.sleep(seconds)
            result = named(seconds)
            return result.id, result.name

        def exposed_count(self, items: int) -> Iterator[int]:
            count_call()
            return iter(range(items))

        def exposed_send(self, data: bytes) -> None:
            receive(data)

    make = {"threaded": servers.ThreadedServer, "forking": servers.ForkingServer, "oneshot": servers.OneShotServer}[
        kind
    ]
    quiet = logging.getLogger("nearcall_lab.rpyc")
    quiet.setLevel(logging.CRITICAL)
    if transport == "unix":
        address = os.path.join(spec.directory, "rpyc.sock")
        server = make(Lab, socket_path=address, logger=quiet)
    else:
        server = make(
            Lab, hostname=spec.host, port=0, logger=quiet, protocol_config={}, authenticator=_authenticator(spec)
        )
        # RPyC has an option for the client's side only. Linux hands the listener's on to what it accepts; without it
        # each reply of more than one write waits 40 ms for the client's delayed acknowledgement.
        server.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = str(server.port)
    if kind != "forking":  # it sets a signal handler when it closes, which only the main thread may
        stop.on(server.close)
    threading.Thread(target=_announce, args=(server.listener, address, ready), daemon=True).start()
    server.start()


def _authenticator(spec: Spec) -> Any:
    """What makes TLS of an accepted connection; None without TLS."""
    from rpyc.utils.authenticators import SSLAuthenticator

    if not spec.mechanism.variant.endswith("tls"):
        return None
    made = certificates.make(spec)
    return SSLAuthenticator(str(made.key), str(made.cert))


def _set_up(connection: Any, spec: Spec) -> None:
    """What a tuned row changes, on either side: there is no option for it, only this attribute."""
    connection._channel.compress = not spec.mechanism.tuned


def _announce(listener: socket.socket, address: str, ready: Ready) -> None:
    """``start`` begins to listen and does not return; a client that came before would be refused."""
    while not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        time.sleep(0.001)
    ready(address)


def connect(spec: Spec) -> SimpleSession:
    connection: Any = None

    def open_() -> None:
        nonlocal connection
        import rpyc
        from rpyc.utils.factory import unix_connect

        if spec.mechanism.variant.endswith("unix"):
            connection = unix_connect(spec.address)
        else:
            if spec.mechanism.variant.endswith("tls"):
                trusted = {"ca_certs": str(certificates.of(spec).ca), "cert_reqs": ssl.CERT_REQUIRED}
                stream = rpyc.SocketStream.ssl_connect(spec.host, int(spec.address), trusted, nodelay=True)
            else:
                stream = rpyc.SocketStream.connect(spec.host, int(spec.address), nodelay=True)
            connection = rpyc.connect_stream(stream)
        _set_up(connection, spec)
        root = connection.root
        remote_quote, remote_wait = root.quote, root.wait

        def quote(order: Order) -> Fill:
            return Fill(*remote_quote((order.symbol, order.quantity, order.price, order.urgent)))

        def wait(seconds: float) -> Named:
            return Named(*remote_wait(seconds))

        remote_send, counter = rpyc.async_(root.send), itertools.count(1)

        def send(data: bytes) -> None:
            # Each such call has a reply, and somebody must read it: a server that cannot write stops reading, too.
            remote_send(data)
            if not next(counter) % _UNREAD:
                while connection.poll():
                    pass

        session.provide(echo=root.echo, quote=quote, wait=wait, send=send)

    def flush() -> None:
        connection.ping()  # handled in order, behind everything sent before

    session = SimpleSession(
        {}, lambda: connection.close(), open_, lambda items: iter(connection.root.count(items)), flush
    )
    return session
