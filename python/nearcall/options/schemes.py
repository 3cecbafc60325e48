"""What a URL's scheme says of the protocol and its codec."""

from __future__ import annotations

from typing import Final

__all__ = ["speaks_http", "speaks_protobuf"]

_HTTP: Final = frozenset({"http", "https", "http+unix"})
_PROTOBUF: Final = frozenset({"grpc", "grpcs", "grpc+unix"}) | _HTTP


def speaks_protobuf(url: str) -> bool:
    """Whether a URL's protocol uses Protobuf; all others use msgpack."""
    return _scheme(url) in _PROTOBUF


def speaks_http(url: str) -> bool:
    """Whether browsers and ``curl`` can call at a URL: it serves Connect, gRPC-Web and JSON besides gRPC."""
    return _scheme(url) in _HTTP


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()
