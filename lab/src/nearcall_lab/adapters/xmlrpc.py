"""XML-RPC of the standard library: as its documentation shows it, and with connections that stay open."""

from __future__ import annotations

import time
from socketserver import ThreadingMixIn
from typing import Any
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_WHY = (
    "The class speaks HTTP/1.0 unless told otherwise: a connection for each call. Its client keeps a connection where "
    "the server does (bpo-6267)."
)


def _row(name: str, label: str, settings: str, why: str = "") -> Mechanism:
    return Mechanism(
        *(name, label, "http"),
        settings=f"{settings}, a queue of 128 connections, request log off, use_builtin_types",
        typed="struct of XML, dataclass rebuilt on both sides",
        transport="TCP",
        operations=("echo", "quote", "wait"),
        tuned=bool(why),
        why=why,
    )


MECHANISMS = (
    _row("xmlrpc", "XML-RPC", "SimpleXMLRPCServer with ThreadingMixIn, HTTP/1.0: a connection for each call"),
    _row(
        "xmlrpc-tuned",
        "XML-RPC, tuned",
        "SimpleXMLRPCServer with ThreadingMixIn, HTTP/1.1: connections are kept; TCP_NODELAY",
        _WHY,
    ),
)


class _Kept(SimpleXMLRPCRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


class _Threaded(ThreadingMixIn, SimpleXMLRPCServer):
    daemon_threads = True
    request_queue_size = 128  # 5 by default, with which clients that connect together wait a second


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    handler = _Kept if spec.mechanism.tuned else SimpleXMLRPCRequestHandler
    server: Any = _Threaded((spec.host, 0), handler, logRequests=False, use_builtin_types=True)
    count_call = spec.served.count

    def echo(data: bytes) -> bytes:
        count_call()
        return data

    def quote(order: dict[str, Any]) -> dict[str, Any]:
        count_call()
        return vars(fill(Order(**order)))

    def wait(seconds: float) -> dict[str, Any]:
        count_call()
        time.sleep(seconds)
        return vars(named(seconds))

    server.register_function(lambda: True, "connect")
    server.register_function(echo)
    server.register_function(quote)
    server.register_function(wait)
    stop.on(server.shutdown)
    ready(f"http://{spec.host}:{server.server_address[1]}")
    server.serve_forever()


def connect(spec: Spec) -> SimpleSession:
    proxy: Any = ServerProxy(spec.address, use_builtin_types=True)

    def quote(order: Order) -> Fill:
        return Fill(**proxy.quote(vars(order)))

    def wait(seconds: float) -> Named:
        return Named(**proxy.wait(seconds))

    # A proxy connects with its first call.
    return SimpleSession({"echo": proxy.echo, "quote": quote, "wait": wait}, proxy("close"), proxy.connect)
