"""XML-RPC of the standard library: as its documentation shows it, and with connections that stay open."""

from __future__ import annotations

from typing import Any
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from nearcall_lab.adapters import http_rpc
from nearcall_lab.contract import Ready, SimpleSession, Spec, Stop

MECHANISMS = http_rpc.mechanisms(
    *("xmlrpc", "XML-RPC", "SimpleXMLRPCServer"),
    "The class speaks HTTP/1.0 unless told otherwise: a connection for each call. Its client keeps a connection where "
    "the server does (bpo-6267).",
    more=", use_builtin_types",
    typed="struct of XML, dataclass rebuilt on both sides",
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    classes = (SimpleXMLRPCServer, SimpleXMLRPCRequestHandler)
    http_rpc.serve(spec, ready, stop, *classes, lambda data: data, use_builtin_types=True)


def connect(spec: Spec) -> SimpleSession:
    proxy: Any = ServerProxy(spec.address, use_builtin_types=True)
    return http_rpc.session(proxy, proxy.echo)
