"""JSON-RPC 2.0 over HTTP, by jsonrpclib-pelix."""

from __future__ import annotations

import base64
import time
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_WHY = (
    "Its base class speaks HTTP/1.0 unless told otherwise: a connection for each call; the client keeps one if it may."
)


def _row(name: str, label: str, settings: str, why: str = "") -> Mechanism:
    return Mechanism(
        *(name, label, "http"),
        requires=("jsonrpclib",),
        distribution="jsonrpclib-pelix",
        settings=f"{settings}, a queue of 128 connections, request log off",
        typed="JSON object, dataclass rebuilt on both sides; bytes in base64",
        transport="TCP",
        operations=("echo", "quote", "wait"),
        tuned=bool(why),
        why=why,
    )


MECHANISMS = (
    _row("jsonrpc", "JSON-RPC", "SimpleJSONRPCServer with ThreadingMixIn, HTTP/1.0: a connection for each call"),
    _row(
        "jsonrpc-tuned",
        "JSON-RPC, tuned",
        "SimpleJSONRPCServer with ThreadingMixIn, HTTP/1.1: connections are kept; TCP_NODELAY",
        _WHY,
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    from socketserver import ThreadingMixIn

    from jsonrpclib.SimpleJSONRPCServer import SimpleJSONRPCRequestHandler, SimpleJSONRPCServer

    class Kept(SimpleJSONRPCRequestHandler):  # type: ignore[misc]
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        max_request_size = 2 * spec.max_message

    class Plain(SimpleJSONRPCRequestHandler):  # type: ignore[misc]
        max_request_size = 2 * spec.max_message

    class Threaded(ThreadingMixIn, SimpleJSONRPCServer):  # type: ignore[misc]
        daemon_threads = True
        request_queue_size = 128  # 5 by default, with which clients that connect together wait a second

    server = Threaded((spec.host, 0), requestHandler=Kept if spec.mechanism.tuned else Plain, logRequests=False)
    count_call = spec.served.count

    def echo(data: str) -> str:
        count_call()
        return base64.b64encode(base64.b64decode(data)).decode()

    def quote(order: dict[str, Any]) -> dict[str, Any]:
        count_call()
        return vars(fill(Order(**order)))

    def wait(seconds: float) -> dict[str, Any]:
        count_call()
        time.sleep(seconds)
        return vars(named(seconds))

    server.register_function(lambda: True, "connect")
    for function in (echo, quote, wait):
        server.register_function(function)
    stop.on(server.shutdown)
    ready(f"http://{spec.host}:{server.server_address[1]}")
    server.serve_forever()


def connect(spec: Spec) -> SimpleSession:
    import jsonrpclib

    proxy: Any = jsonrpclib.ServerProxy(spec.address)

    def echo(data: bytes) -> bytes:
        return base64.b64decode(proxy.echo(base64.b64encode(data).decode()))

    def quote(order: Order) -> Fill:
        return Fill(**proxy.quote(vars(order)))

    def wait(seconds: float) -> Named:
        return Named(**proxy.wait(seconds))

    # A proxy connects with its first call.
    return SimpleSession({"echo": echo, "quote": quote, "wait": wait}, proxy("close"), proxy.connect)
