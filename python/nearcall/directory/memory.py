"""A directory that keeps its entries in memory: each for as long as whoever has registered it is connected."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec

from ..call.context import Context, context
from ..errors import AlreadyExists, PermissionDenied, ResourceExhausted
from ..log import INFO, log
from .entries import Entry, Found, answer, check_entry
from .reachable import reachable
from .service import Directory

__all__ = ["MemoryDirectory"]


class _Kept(NamedTuple):
    entry: Entry
    exclusive: bool
    size: int


class MemoryDirectory(Directory):
    """A directory, to be served: ``nearcall.serve(nearcall.directory.MemoryDirectory(), "tcp://127.0.0.1:7100")``.

    Whoever may call the server may register, and look up. Over a network demand certificates or tokens of them.

    Args:
        may_register: Called with the :class:`nearcall.Context` of the caller and the :class:`Entry`, in the event loop;
            a false result refuses it. ``None``: every caller may take any name.
        max_entries: The most entries.
        max_bytes: The most bytes in the names, URLs and metadata of all entries.
    """

    def __init__(
        self,
        *,
        may_register: Callable[[Context, Entry], object] | None = None,
        max_entries: int = 10_000,
        max_bytes: int = 16 << 20,
    ) -> None:
        self._may_register = may_register
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._began = time.monotonic()
        self._numbers = itertools.count()
        self._kept: dict[int, _Kept] = {}
        self._bytes = 0

    async def register(self, entry: Entry, exclusive: bool = False) -> AsyncIterator[Entry]:
        """Enters a server."""
        check_entry(entry)
        caller = context()
        entry = msgspec.structs.replace(entry, url=reachable(entry.url, str(caller.peer.get("address", ""))))
        size = check_entry(entry)
        if self._may_register is not None and not self._may_register(caller, entry):
            raise PermissionDenied(f"this caller may not register '{entry.name}' at {entry.url}")
        self._check_free(entry, exclusive)
        if len(self._kept) >= self._max_entries or self._bytes + size > self._max_bytes:
            raise ResourceExhausted(
                f"the directory is full: it keeps {len(self._kept)} entries of {self._bytes} bytes; "
                f"max_entries={self._max_entries} and max_bytes={self._max_bytes} are the most"
            )
        number = next(self._numbers)
        self._kept[number] = _Kept(entry, exclusive, size)
        self._bytes += size
        log(INFO, "%s is registered at %s", entry.name, entry.url)
        try:
            yield entry
            await asyncio.Event().wait()  # until the caller is gone
        finally:
            del self._kept[number]
            self._bytes -= size
            log(INFO, "%s at %s has left", entry.name, entry.url)

    async def lookup(  # type: ignore[override]
        self,
        name: str = "",
        metadata: dict[str, str] = {},  # noqa: B006 - not changed
    ) -> Found:
        """The servers that fit."""
        age = time.monotonic() - self._began
        return answer((kept.entry for kept in self._kept.values()), name, metadata, age)

    def _check_free(self, entry: Entry, exclusive: bool) -> None:
        for other in self._kept.values():
            if other.entry.name == entry.name and other.entry.url != entry.url and (exclusive or other.exclusive):
                raise AlreadyExists(
                    f"'{entry.name}' is registered at {other.entry.url}, and "
                    f"{'is to be' if exclusive else 'was'} registered there alone: take another name, or end that one"
                )
