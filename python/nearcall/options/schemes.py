"""What a URL's scheme says of how values cross."""

from __future__ import annotations

from typing import Final

__all__ = ["speaks_protobuf"]

_PROTOBUF: Final = frozenset({"grpc", "grpcs", "grpc+unix"})


def speaks_protobuf(url: str) -> bool:
    """Whether Protobuf is spoken at a URL; msgpack is at all others."""
    return url.partition("://")[0].lower() in _PROTOBUF
