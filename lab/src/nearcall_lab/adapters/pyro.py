"""What the adapters for Pyro4 and Pyro5 share: the two differ in their settings and in where their names are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from nearcall_lab.contract import OPERATIONS, Mechanism, Ready, SimpleSession, Spec, Stop, Transport
from nearcall_lab.workloads import Fill, Named, Order, fill, named

THREADS = 1_000
"""At most, one per connection. The default is 40 (Pyro4) or 80 (Pyro5), and refuses connections beyond that."""


def mechanisms(distribution: str, one_way: str) -> tuple[Mechanism, ...]:
    """The rows of one of them; `one_way` says how it handles one-way calls."""
    name, rest = distribution.lower(), f"streams by remote generator, a trip per item; {one_way}"
    rows: tuple[tuple[str, str, Transport, str], ...] = (
        (name, distribution, "UDS", "UDS"),
        (f"{name}-tcp", f"{distribution}, TCP", "TCP", "TCP, SOCK_NODELAY"),
    )
    return tuple(
        Mechanism(
            *(row, label, "rpc"),
            requires=(distribution,),
            distribution=distribution,
            settings=f"{settings}, SERIALIZER=marshal, THREADPOOL_SIZE={THREADS}; {rest}",
            typed="dict by marshal, dataclass rebuilt on both sides",
            transport=transport,
            operations=OPERATIONS,
        )
        for row, label, transport, settings in rows
    )


def serve(spec: Spec, ready: Ready, stop: Stop, api: Any) -> None:
    """Serves with the names of `api`, which is configured."""
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

        @api.oneway  # type: ignore[untyped-decorator]
        def send(self, data: bytes) -> None:
            receive(data)

    api.config.SOCK_NODELAY = True  # off by default; of TCP only
    if spec.mechanism.transport == "UDS":
        daemon = api.Daemon(unixsocket=os.path.join(spec.directory, "pyro.sock"))
    else:
        daemon = api.Daemon(host=spec.host, port=0)
    uri = daemon.register(api.expose(Lab)(), "lab")
    stop.on(daemon.shutdown)
    ready(str(uri))
    daemon.requestLoop()


def connect(spec: Spec, api: Any) -> SimpleSession:
    """A proxy with the names of `api`."""
    api.config.SERIALIZER = "marshal"
    api.config.SOCK_NODELAY = True
    proxy = api.Proxy(spec.address)

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
