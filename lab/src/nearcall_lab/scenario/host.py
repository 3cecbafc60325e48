"""URLs of machines, as scenarios write them: ``ssh://user@host:port?python=…&address=…&directory=…``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

LOCAL = "local"
FORM = '"local", or a URL such as "ssh://user@host", "ssh://host:2222"'
_OPTIONS = ("python", "address", "directory")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class HostProblem(ValueError):
    """What is wrong with a URL, worded to follow it."""


@dataclass(frozen=True)
class Host:
    """Another machine, and what the lab is to use there."""

    name: str
    """As ``ssh`` is given it: a name of the network, an address, or an alias of its configuration."""
    user: str = ""
    port: int = 0
    """0: as the configuration of ``ssh`` says."""
    python: str = ""
    """A Python there; empty: one of the version that runs the lab, otherwise ``python3``."""
    address: str = ""
    """IPv4 address there that servers listen at; empty: the one that ``ssh`` has reached."""
    directory: str = ""
    """Where the lab keeps there what it needs; empty: ``~/.cache/nearcall-lab``."""

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{self.name}{f':{self.port}' if self.port else ''}"


def host_of(url: str) -> Host:
    """The machine that a URL names. Raises `HostProblem`."""
    try:
        parts = urlsplit(url)
        port, name, user = parts.port or 0, parts.hostname or "", parts.username or ""
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise HostProblem(f"is no URL: {error}") from None
    if parts.scheme != "ssh":
        raise HostProblem(f"is not reached by ssh; it is {FORM}")
    if parts.password is not None:
        raise HostProblem("has a password in it; ssh is to find a key by itself")
    # What begins with a hyphen would be an option of ssh.
    if not _NAME.fullmatch(name) or (user and not _NAME.fullmatch(user)):
        raise HostProblem("has no name of a machine, or one with characters that names do not have")
    if parts.path not in ("", "/") or parts.fragment:
        raise HostProblem("has a path, which means nothing here; a place there is given by ?directory=")
    options = dict(given)
    for key, value in options.items():
        if key not in _OPTIONS:
            raise HostProblem(f"has the option {key!r}; there are {', '.join(_OPTIONS)}")
        if not value or not value.isprintable() or value.startswith("-"):
            raise HostProblem(f"has an option {key} that is empty, begins with a hyphen, or has odd characters")
    if address := options.get("address"):
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            raise HostProblem(f"has the address {address!r}, which is no IPv4 address") from None
    # `hostname` is in lower case, which aliases of ssh's configuration need not be.
    written = parts.netloc.rpartition("@")[2].partition(":")[0]
    return Host(written, user, port, **options)
