"""JSON-RPC 2.0 over HTTP, by jsonrpclib-pelix."""

from __future__ import annotations

import base64
from typing import Any

from nearcall_lab.adapters import http_rpc
from nearcall_lab.contract import Ready, SimpleSession, Spec, Stop

MECHANISMS = http_rpc.mechanisms(
    *("jsonrpc", "JSON-RPC", "SimpleJSONRPCServer"),
    "Its base class speaks HTTP/1.0 unless told otherwise: a connection for each call; the client keeps one if it may.",
    requires=("jsonrpclib",),
    distribution="jsonrpclib-pelix",
    typed="JSON object, dataclass rebuilt on both sides; bytes in base64",
)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    from jsonrpclib.SimpleJSONRPCServer import SimpleJSONRPCRequestHandler, SimpleJSONRPCServer

    class Handler(SimpleJSONRPCRequestHandler):  # type: ignore[misc]
        max_request_size = 2 * spec.max_message

    http_rpc.serve(spec, ready, stop, SimpleJSONRPCServer, Handler, lambda text: _text(base64.b64decode(text)))


def connect(spec: Spec) -> SimpleSession:
    import jsonrpclib

    proxy: Any = jsonrpclib.ServerProxy(spec.address)
    return http_rpc.session(proxy, lambda data: base64.b64decode(proxy.echo(_text(data))))
