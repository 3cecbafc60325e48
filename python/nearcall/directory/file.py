"""A directory that is a file, in TOML. It is read again when it has changed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, cast

import msgspec

from ..errors import InvalidArgument, Unavailable
from .entries import Entry, Found, answer, check_entry

__all__ = ["FileDirectory"]

_MOST_BYTES = 64 << 20


class FileDirectory:
    """The entries that a file has.

    Args:
        path: Its path.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._read: tuple[tuple[int, int, int], list[Entry]] | None = None

    def lookup(self, name: str, metadata: dict[str, str]) -> Found:
        """The servers that fit.

        Raises:
            InvalidArgument: the file does not say what it should.
            Unavailable: it cannot be read now.
        """
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                state = status.st_mtime_ns, status.st_size, status.st_ino
                if self._read is None or self._read[0] != state:
                    self._read = state, self._entries(file.read(_MOST_BYTES))
                entries = self._read[1]
        except OSError as error:
            raise Unavailable(f"the directory {self._path} cannot be read: {error.strerror or error}") from None
        return answer(entries, name, metadata)

    def close(self) -> None:
        """Does nothing: the file is open only while it is read."""

    def _entries(self, content: bytes) -> list[Entry]:
        try:
            tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        except ModuleNotFoundError:
            raise InvalidArgument(f"{self._path} cannot be read by Python 3.10 alone: pip install tomli") from None
        try:
            tables: dict[str, object] = tomllib.loads(content.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"{self._path} is no TOML: {error or 'look at its brackets'}") from None
        entries: list[Entry] = []
        for name, servers in tables.items():
            if not isinstance(servers, list):
                raise InvalidArgument(f"{self._path}: '{name}' must be a list of servers: write [[{name}]] above each")
            for server in cast("list[object]", servers):
                try:
                    entry = msgspec.convert({**cast("dict[str, object]", server), "name": name}, _Strict)
                except (msgspec.ValidationError, TypeError) as error:
                    raise InvalidArgument(
                        f'{self._path}: [[{name}]] has a url, and may have metadata = {{ key = "value" }}: {error}'
                    ) from None
                entries.append(Entry(entry.name, entry.url, entry.metadata))
                check_entry(entries[-1])
        return entries


class _Strict(Entry, frozen=True, forbid_unknown_fields=True):
    """An entry in a file: there is nothing else in it."""
