"""Pyro4 over a Unix socket, with the marshal serializer (the fastest it has that carries bytes as they are)."""

from __future__ import annotations

import os
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "pyro4",
        "Pyro4",
        "rpc",
        requires=("Pyro4",),
        distribution="Pyro4",
        settings="UDS, SERIALIZER=marshal",
        typed="dict by marshal, dataclass rebuilt on both sides",
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import Pyro4

    served = spec.served

    class Lab:
        def echo(self, data: bytes) -> bytes:
            served.calls += 1
            return data

        def quote(self, order: dict[str, Any]) -> dict[str, Any]:
            served.calls += 1
            return vars(fill(Order(**order)))

    Pyro4.config.SERIALIZERS_ACCEPTED = {"marshal"}
    daemon = Pyro4.Daemon(unixsocket=os.path.join(spec.directory, "pyro.sock"))
    uri = daemon.register(Pyro4.expose(Lab)(), "lab")
    stop.on(daemon.shutdown)
    ready(str(uri))
    daemon.requestLoop()


def connect(spec: Spec) -> SimpleSession:
    import Pyro4

    Pyro4.config.SERIALIZER = "marshal"
    proxy = Pyro4.Proxy(spec.address)
    proxy._pyroBind()
    echo, remote_quote = proxy.echo, proxy.quote

    def quote(order: Order) -> Fill:
        return Fill(**remote_quote(vars(order)))

    return SimpleSession({"echo": echo, "quote": quote}, proxy._pyroRelease)
