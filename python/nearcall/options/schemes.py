"""What a URL's scheme says of the place, the protocol and its codec. The core has the table."""

from __future__ import annotations

from typing import Final

from .. import _core

__all__ = [
    "NAMED",
    "encrypted_like",
    "is_encrypted",
    "is_named",
    "names_hosts",
    "names_socket",
    "speaks_grpc",
    "speaks_http",
    "speaks_protobuf",
]

NAMED: Final = "directory+"
"""How the URL of a name in a directory begins. The directory says where its servers are, by any of nearcall's own
transports.
"""
_UNKNOWN: Final = ("", "nearcall", False)
"""What is said of a scheme that the core does not know, before the core refuses it."""


def is_named(url: str) -> bool:
    """Whether a URL is a name in a directory. Then the options of every transport may be meant."""
    return str(url).startswith(NAMED)


def speaks_protobuf(url: str) -> bool:
    """Whether a URL's protocol uses Protobuf; all others are nearcall's own."""
    return _said(url)[1] != "nearcall"


def speaks_grpc(url: str) -> bool:
    """Whether only gRPC is spoken at a URL."""
    return _said(url)[1] == "grpc"


def speaks_http(url: str) -> bool:
    """Whether browsers and ``curl`` can call at a URL: it serves Connect, gRPC-Web and JSON besides gRPC."""
    return _said(url)[1] == "http"


def names_hosts(url: str) -> bool:
    """Whether a URL names hosts, of which there may be several."""
    return is_named(url) or _said(url)[0].endswith("://host:port")


def names_socket(url: str) -> bool:
    """Whether a URL names a Unix socket by its path."""
    return is_named(url) or _said(url)[0].endswith(":///path")


def is_encrypted(url: str) -> bool:
    """Whether everything at a URL is encrypted, or may be, for the URL of a name."""
    return is_named(url) or _said(url)[2]


def encrypted_like(url: str) -> str:
    """The scheme at which the same protocol is spoken and everything is encrypted, such as ``grpcs://``."""
    protocol = _said(url)[1]
    found = (name for name, (_, speaks, encrypts) in _core.SCHEMES.items() if encrypts and speaks == protocol)
    return f"{next(found)}://"


def _said(url: str) -> tuple[str, str, bool]:
    """The form of such URLs, what is spoken there, and whether it is encrypted."""
    return _core.SCHEMES.get(str(url).partition(":")[0].lower(), _UNKNOWN)
