"""Pyro5 over a Unix socket, with the marshal serializer (the fastest it has that carries bytes as they are)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

MECHANISMS = (
    Mechanism(
        "pyro5",
        "Pyro5",
        "rpc",
        requires=("Pyro5",),
        distribution="Pyro5",
        settings="UDS, SERIALIZER=marshal, THREADPOOL_SIZE=1000; streams by remote generator, a trip per item; "
        "a thread per one-way call",
        typed="dict by marshal, dataclass rebuilt on both sides",
        operations=("echo", "quote", "wait", "count", "send"),
    ),
)

_THREADS = 1_000
"""At most, one per connection. The default is 40 (Pyro4) or 80 (Pyro5), and refuses connections beyond that."""


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import Pyro5.api

    count_call, receive = spec.served.count, spec.receive

    class Lab:
        def echo(self, data: bytes) -> bytes:
            count_call()
            return data

        def quote(self, order: dict[str, Any]) -> dict[str, Any]:
            count_call()
            return vars(fill(Order(**order)))

        def wait(self, seconds: float) -> dict[str, Any]:
            count_call()
            time.sleep(seconds)
            return vars(named(seconds))

        def count(self, items: int) -> Iterator[int]:
            count_call()
            yield from range(items)

        @Pyro5.api.oneway  # type: ignore[untyped-decorator]
        def send(self, data: bytes) -> None:
            receive(data)

    Pyro5.api.config.THREADPOOL_SIZE = _THREADS
    daemon = Pyro5.api.Daemon(unixsocket=os.path.join(spec.directory, "pyro.sock"))
    uri = daemon.register(Pyro5.api.expose(Lab)(), "lab")
    stop.on(daemon.shutdown)
    ready(str(uri))
    daemon.requestLoop()


def connect(spec: Spec) -> SimpleSession:
    import Pyro5.api

    Pyro5.api.config.SERIALIZER = "marshal"
    proxy = Pyro5.api.Proxy(spec.address)

    def open_() -> None:
        # Binding also learns the methods; until then the proxy has none.
        proxy._pyroBind()
        remote_quote, remote_wait = proxy.quote, proxy.wait

        def quote(order: Order) -> Fill:
            return Fill(**remote_quote(vars(order)))

        def wait(seconds: float) -> Named:
            return Named(**remote_wait(seconds))

        session.provide(echo=proxy.echo, quote=quote, wait=wait, send=proxy.send)

    session = SimpleSession({}, proxy._pyroRelease, open_, lambda items: iter(proxy.count(items)))
    return session
