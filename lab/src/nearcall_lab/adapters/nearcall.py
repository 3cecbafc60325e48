"""nearcall through its public API: the same service over four transports, and once with views instead of copies."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, Served, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

_NEEDS = ("nearcall",)
_TYPED = "dataclass by nearcall's msgpack"
MECHANISMS = (
    Mechanism("nearcall-shm", "nearcall shm", "nearcall", "shm", _NEEDS, "nearcall", typed=_TYPED),
    Mechanism(
        "nearcall-shm-view",
        "nearcall shm, memoryview",
        "nearcall",
        "shm-view",
        _NEEDS,
        "nearcall",
        "handler takes and returns a memoryview",
        operations=("echo",),
    ),
    Mechanism("nearcall-unix", "nearcall unix", "nearcall", "unix", _NEEDS, "nearcall", typed=_TYPED),
    Mechanism("nearcall-tcp", "nearcall tcp", "nearcall", "tcp", _NEEDS, "nearcall", typed=_TYPED),
    Mechanism(
        "nearcall-inproc",
        "nearcall inproc",
        "nearcall",
        "inproc",
        _NEEDS,
        "nearcall",
        "client and server in one process",
        _TYPED,
        same_process=True,
    ),
)


def _service(served: Served) -> Any:
    """The service class: the server makes an instance of it, the client only reads its signatures."""
    import nearcall

    class Echo:
        def echo(self, data: bytes) -> bytes:
            served.calls += 1
            return data

        def echo_view(self, data: memoryview) -> memoryview:
            served.calls += 1
            return data

        def quote(self, order: Order) -> Fill:
            served.calls += 1
            return fill(order)

    return nearcall.service(Echo)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _url(spec: Spec) -> str:
    transport = spec.mechanism.variant.removesuffix("-view")
    if transport == "unix":
        return f"unix://{os.path.join(spec.directory, 'nearcall.sock')}"
    if transport == "tcp":
        return f"tcp://127.0.0.1:{_free_port()}"
    return f"{transport}://{spec.token}"


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import nearcall

    url = _url(spec)
    with nearcall.Server(_service(spec.served)(), url):
        ready(url)
        stop.wait()


def connect(spec: Spec) -> SimpleSession:
    import nearcall

    service = _service(spec.served)
    url = spec.address
    stack = contextlib.ExitStack()
    if spec.mechanism.same_process:
        url = _url(spec)
        stack.enter_context(nearcall.Server(service(), url))
    client = stack.enter_context(nearcall.connect(url, service))
    echo = client.echo_view if spec.mechanism.variant.endswith("-view") else client.echo
    return SimpleSession({"echo": echo, "quote": client.quote}, stack.close)
