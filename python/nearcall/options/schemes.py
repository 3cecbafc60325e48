"""What a URL's scheme says of how values cross."""

from __future__ import annotations

from typing import Final

__all__ = ["speaks_http", "speaks_protobuf"]

_HTTP: Final = frozenset({"http", "https", "http+unix"})
_PROTOBUF: Final = frozenset({"grpc", "grpcs", "grpc+unix"}) | _HTTP


def speaks_protobuf(url: str) -> bool:
    """Whether Protobuf is spoken at a URL; msgpack is at all others."""
    return _scheme(url) in _PROTOBUF


def speaks_http(url: str) -> bool:
    """Whether browsers and ``curl`` can call at a URL: Connect, gRPC-Web and JSON are spoken besides gRPC."""
    return _scheme(url) in _HTTP


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()
