"""Addresses as grpcio's users write them."""

from __future__ import annotations

from urllib.parse import unquote

__all__ = ["peer_name", "url_of"]


_MAPPED = "[::ffff:"
"""The beginning of an IPv4 address at a socket for IPv6 and IPv4."""


def url_of(address: str, *, encrypted: bool = False) -> str:
    """The URL of an address: ``localhost:50051``, ``[::]:50051``, ``unix:/path``, ``dns:///host:port``.

    Raises:
        ValueError: the address is of another kind; the message says which are known.
    """
    scheme, colon, rest = address.partition(":")
    if colon and scheme == "unix":
        path = rest.removeprefix("//")
        return f"grpc+unix://{path}" if path.startswith("/") else f"grpc+unix:///{_absolute(path)}"
    if colon and scheme in ("dns", "ipv4", "ipv6", "passthrough"):
        address = unquote(rest.rpartition("/")[2])
        if "," in address:
            raise ValueError(f"'{scheme}:{rest}' has several addresses: give one, or a name that stands for them")
    elif "://" in address or scheme in ("unix-abstract", "vsock", "xds"):
        raise ValueError(
            f"'{address}' is none of grpcio's addresses that are known here: write host:port or unix:/path; "
            "nearcall's own URLs are for add_url() and channel()"
        )
    host, _, port = address.rpartition(":")
    if not host or host.endswith(":") or not port.isdigit():
        # Without a port, the port is that of HTTPS. An IPv6 address without brackets has colons in it.
        host, port = (address.strip("[]"), "443")
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'grpcs' if encrypted else 'grpc'}://{host}:{port}"


def _absolute(path: str) -> str:
    import os

    return os.path.abspath(path).lstrip("/")


def peer_name(peer: dict[str, object]) -> str:
    """The other side's address, as grpcio names it: ``ipv4:127.0.0.1:50051``, ``ipv6:%5B::1%5D:50051``, ``unix:``."""
    address = peer.get("address")
    if not isinstance(address, str):
        return "unix:"
    if address.startswith(_MAPPED):
        return f"ipv4:{address[len(_MAPPED) :].replace(']', '')}"
    if address.startswith("["):
        return f"ipv6:{address.replace('[', '%5B').replace(']', '%5D')}"
    return f"ipv4:{address}"
