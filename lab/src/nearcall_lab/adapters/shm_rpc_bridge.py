"""shm-rpc-bridge: shared memory with JSON inside."""

from __future__ import annotations

import json
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_SETTINGS = "buffer_size 2 MB (default 4 KB); bytes travel as ASCII text because it has only JSON"
MECHANISMS = tuple(
    Mechanism(
        *(name, label, "shared memory", variant, ("shm_rpc_bridge",), "shm-rpc-bridge"),
        settings=f"{_SETTINGS}{f', {codec}' if codec else ''}",
        typed="JSON object, dataclass rebuilt on both sides",
        transport="shared memory",
        operations=("echo", "quote", "wait"),
    )
    for name, label, variant, codec in (
        ("shm-rpc-bridge", "shm-rpc-bridge", "", ""),
        ("shm-rpc-bridge-json", "shm-rpc-bridge, json", "json", "encoded by Python's json in the place of orjson"),
    )
)


def _set_up(spec: Spec) -> None:
    """The codec of the versions before those on PyPI, in today's library: everything else stays as it is."""
    if spec.mechanism.variant != "json":
        return
    from shm_rpc_bridge._internal import data

    data.orjson = SimpleNamespace(
        dumps=lambda value: json.dumps(value).encode(), loads=json.loads, JSONDecodeError=json.JSONDecodeError
    )


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    from shm_rpc_bridge import RPCServer

    _set_up(spec)
    served = spec.served

    def echo(text: str) -> str:
        served.count()
        return text

    def quote(symbol: str, quantity: int, price: float, urgent: bool) -> dict[str, Any]:
        served.count()
        return vars(fill(Order(symbol, quantity, price, urgent)))

    def wait(seconds: float) -> dict[str, Any]:
        served.count()
        time.sleep(seconds)
        return vars(named(seconds))

    server = RPCServer(spec.token, buffer_size=spec.max_message)
    server.register("echo", echo)
    server.register("quote", quote)
    server.register("wait", wait)
    stop.on(lambda: os.kill(os.getpid(), signal.SIGTERM))  # the way it is made to be stopped; close() would wait
    ready(spec.token)
    try:
        server.start()
    except Exception:
        if not stop.is_set():  # closing it from outside surfaces as an error in its loop
            raise


def connect(spec: Spec) -> SimpleSession:
    from shm_rpc_bridge import RPCClient

    _set_up(spec)
    client: Any = None

    def open_() -> None:
        nonlocal client
        client = RPCClient(spec.address, buffer_size=spec.max_message, wait_for_server=5)
        remote = client.call

        def echo(data: bytes) -> bytes:
            reply: str = remote("echo", text=data.decode("ascii"))
            return reply.encode("ascii")

        def quote(order: Order) -> Fill:
            return Fill(**remote("quote", **vars(order)))

        def wait(seconds: float) -> Named:
            return Named(**remote("wait", seconds=seconds))

        session.provide(echo=echo, quote=quote, wait=wait)

    session = SimpleSession({}, lambda: client.close(), open_)
    return session
