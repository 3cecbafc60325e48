"""Says where the servers of a name are, for the connections of one channel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Protocol

from .. import _core
from ..errors import FailedPrecondition, RpcError, Unavailable
from ..log import INFO, WARNING, log
from ..options.schemes import speaks_protobuf
from ..types.shown import shown
from .address import FILE, Address
from .entries import Entry, Found
from .file import FileDirectory
from .service import Directory

__all__ = ["RemoteDirectory", "Resolver", "Source", "source_of"]

_SETTLED: Final = 10.0
"""Seconds after which all servers have found a directory again that was started anew."""

_MOST: Final = 128
"""Servers of a name that one client uses; a balanced one has a connection to each."""


class Source(Protocol):
    """A directory, as a client asks it."""

    def lookup(self, name: str, metadata: dict[str, str]) -> Found:
        """The servers that fit; raises :class:`~nearcall.RpcError` if that cannot be said now."""
        ...

    def close(self) -> None:
        """Ends what was made to ask it. Harmless when repeated."""
        ...


class Reached(Protocol):
    """A client of a directory."""

    @property
    def service(self) -> Directory:
        """Its calls."""
        ...

    def close(self) -> None:
        """Ends its connection."""
        ...


class RemoteDirectory:
    """A directory that is served.

    Args:
        connect: Connects to it.
    """

    def __init__(self, connect: Callable[[], Reached]) -> None:
        self._connect = connect
        self._clients: dict[str, Reached] = {}
        self._closed = False

    def lookup(self, name: str, metadata: dict[str, str]) -> Found:
        """Asks it."""
        client = self._clients.get("one")
        if client is None:
            made = self._connect()
            # Without a lock: one that another thread holds while the process forks is never released in the child.
            client = self._clients.setdefault("one", made)
            if client is not made:
                made.close()
        if self._closed:
            self.close()
        return client.service.lookup(name, metadata)

    def close(self) -> None:
        """Ends the connection to it."""
        self._closed = True
        client = self._clients.get("one")
        if client is not None:
            client.close()


def source_of(place: str, connect: Callable[[], Reached]) -> Source:
    """The directory at a place; ``connect`` is called if it is served."""
    if place.startswith(FILE):
        return FileDirectory(place.removeprefix(FILE))
    return RemoteDirectory(connect)


class Resolver:
    """Returns the URLs of the servers of a name when it is called, in any thread. While the directory cannot be asked,
    these are the last that it named.

    Args:
        url: The URL of the name, for messages.
        address: What it says.
        source: The directory.
    """

    def __init__(self, url: str, address: Address, source: Source) -> None:
        self._url = url
        self._address = address
        self._source = source
        self._last: list[str] = []
        self._missed = self._closed = False
        self._own = os.urandom(8)

    def __call__(self) -> list[str]:
        """The servers that there are now, in an order of this client's own, so that all clients together use all.

        Raises:
            FailedPrecondition: they do not speak nearcall's protocol.
            RpcError: the directory cannot be asked, and has never named one.
            Unavailable: there is none.
        """
        try:
            found = self._source.lookup(self._address.name, self._address.metadata)
        except RpcError as error:
            if self._last:
                if not self._missed and not self._closed:
                    self._missed = True
                    log(WARNING, "calls to %s go on to the servers that are known: %s", self._url, error.message)
                return self._last
            raise type(error)(f"cannot find {self._url}: {error.message}") from None
        if self._missed:
            self._missed = False
            log(INFO, "the directory of %s answers again", self._url)
        urls = self._usable(found.entries)
        if found.age < _SETTLED:
            # Not all servers are back at a directory that was started anew.
            urls = list(dict.fromkeys([*urls, *self._last]))
        if not urls:
            self._last = []
            raise Unavailable(f"cannot find {self._url}: {shown(found.why)}")
        process = os.getpid()
        self._last = sorted(urls, key=lambda url: hash((self._own, process, url)))[:_MOST]
        return self._last

    def _usable(self, entries: list[Entry]) -> list[str]:
        urls = [each.url for each in entries if each.url.partition(":")[0] in _core.SCHEMES]
        spoken = [url for url in urls if not speaks_protobuf(url)]
        if entries and not spoken:
            at = shown(entries[0].url, 200)
            raise FailedPrecondition(
                f"cannot use {self._url}: a server of that name is at {at}, and by a name only those are reached that "
                "speak nearcall's own protocol: connect to that URL"
            )
        return spoken

    def close(self) -> None:
        """Asks no more."""
        self._closed = True
        self._source.close()
