"""URLs of names in directories: ``directory+tcp://host:port/name?key=value``."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InvalidArgument
from ..options.schemes import NAMED, names_hosts
from ..types.shown import shown
from .entries import check_name

__all__ = ["FILE", "Address", "read_address"]

FILE = "file://"
"""How the place of a directory begins that is a file."""
_FORM = f"{NAMED}tcp://host:port/name?key=value"


class Address(NamedTuple):
    """What such a URL says."""

    place: str
    """Where the directory is: a URL, also one that begins with ``file://``."""
    name: str
    """The name; empty for any."""
    metadata: dict[str, str]

    @property
    def places(self) -> list[str]:
        """The directories, if the URL lists several hosts."""
        if not names_hosts(self.place):
            return [self.place]
        scheme, _, hosts = self.place.partition("://")
        return [f"{scheme}://{host}" for host in hosts.split(",")]


def read_address(url: str) -> Address:
    """Reads the URL of a name.

    Raises:
        InvalidArgument: it is none.
    """

    def wrong(why: str) -> InvalidArgument:
        return InvalidArgument(f"cannot use the URL {shown(repr(url), 300)}: {why}; write {_FORM}")

    from urllib.parse import parse_qsl, unquote  # few have a directory

    if not url.startswith(NAMED):
        raise wrong("it names nothing in a directory")
    path, asks, query = url.removeprefix(NAMED).partition("?")
    place, _, name = path.rpartition("/")
    if "://" not in place or place.endswith("/") or place.startswith(NAMED):
        raise wrong("the directory's URL, a slash and the name follow the plus sign")
    if place.startswith(FILE) and not place.startswith(f"{FILE}/"):
        raise wrong("the path of a file begins with a slash, as in directory+file:///etc/services.toml/name")
    if name:
        check_name(name)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(asks), errors="strict")
    except ValueError:
        raise wrong("metadata is written key=value, with & between two of them") from None
    metadata = dict(pairs)
    if len(metadata) < len(pairs):
        raise wrong("a key of the metadata stands there twice")
    return Address(f"{FILE}{unquote(place.removeprefix(FILE))}" if place.startswith(FILE) else place, name, metadata)
