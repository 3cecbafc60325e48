"""The URLs at which other processes reach a server."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, cast

from .. import _core
from ..errors import InvalidArgument
from ..options.schemes import names_hosts
from ..types.shown import shown

__all__ = ["reachable", "usable_elsewhere"]

_ONE_PROCESS: Final = ("inproc", "fd", "stdio")
"""Schemes of URLs that mean nothing to other processes."""
_HOST = re.compile(r"([a-z+]+)://(\[[^\]]+\]|[^/:,\[\]]+):(\d+)")


def usable_elsewhere(url: str) -> bool:
    """Whether other processes may reach a server at a URL."""
    scheme = url.partition(":")[0]
    return scheme in _core.SCHEMES and "://" in url and scheme not in _ONE_PROCESS


def reachable(url: str, address: str) -> str:
    """The URL at which others reach a server.

    Args:
        url: As the server has given it.
        address: Where the server is seen, host and port; empty on this machine.

    Raises:
        InvalidArgument: there is none.
    """
    said = shown(url, 200)
    scheme = url.partition(":")[0]
    if not usable_elsewhere(url):
        raise InvalidArgument(f"{said} is no URL at which other processes reach a server")
    if not names_hosts(url):
        return url
    match = _HOST.fullmatch(url)
    if match is None:
        raise InvalidArgument(f"{said} does not name one host and a port: write {scheme}://host:port")
    seen = _ip(address.rpartition(":")[0])
    host = _ip(match[2])
    if match[3] == "0":
        raise InvalidArgument(f"{said} has no port yet: register the URL that the server got")
    if host is not None and host.is_unspecified:
        if seen is None:
            raise InvalidArgument(
                f"{said} stands for all addresses of its machine, and the directory cannot tell which others reach: "
                "say it with Registration(..., at=URL)"
            )
        text = f"[{seen}]" if seen.version == 6 else str(seen)
        return f"{scheme}://{text}:{match[3]}"
    is_here = match[2] == "localhost" or (host is not None and host.is_loopback)
    if is_here and seen is not None and not seen.is_loopback:
        raise InvalidArgument(
            f"{said} can be reached from its own machine only, and the directory is elsewhere: serve at an address "
            "of the network, or say one with Registration(..., at=URL)"
        )
    return url


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    mapped = cast("ipaddress.IPv4Address | None", getattr(found, "ipv4_mapped", None))
    return mapped or found
