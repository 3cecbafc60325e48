"""The entries of a directory: how they are checked, which of them fit a question, and what is said if none does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from ..errors import InvalidArgument
from ..types.shown import shown

__all__ = ["Entry", "Found", "answer", "check_entry", "check_name"]

MOST_BYTES = 4096
"""Of one entry: its name, its URL and its metadata."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_MOST_COMPARED = 500
"""Names among which one that was meant is looked for."""
_SHOWN = 60
"""Characters of a text of others in a message."""


class Entry(msgspec.Struct, frozen=True):
    """A server, as a directory knows it."""

    name: str
    """1 to 128 letters, digits, ``.``, ``_`` and ``-``. Several servers may have one name."""
    url: str
    """Where it is."""
    metadata: dict[str, str] = {}
    """What else is said of it."""


class Found(msgspec.Struct, frozen=True):
    """What a directory answers."""

    entries: list[Entry]
    """The servers that fit, the one that was registered first first."""
    why: str = ""
    """If there is none: a sentence that says what there is instead."""
    age: float = 1e9
    """Seconds since the directory began. One that has just begun does not know all servers again."""


def check_name(name: str) -> None:
    """Makes sure that a name can stand in a directory.

    Raises:
        InvalidArgument: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{shown(repr(name), _SHOWN)} is no name for a directory: 1 to 128 letters, digits, '.', '_' and '-'"
        )


def check_entry(entry: Entry) -> int:
    """Makes sure that an entry can stand in a directory. Returns its bytes.

    Raises:
        InvalidArgument: it cannot.
    """
    check_name(entry.name)
    texts = [entry.name, entry.url, *entry.metadata.keys(), *entry.metadata.values()]
    size = sum(len(text.encode()) for text in texts)
    if size > MOST_BYTES:
        raise InvalidArgument(
            f"the entry {entry.name!r} has {size} bytes in its name, URL and metadata; {MOST_BYTES} is the most"
        )
    if "" in entry.metadata or not all(text.isprintable() for text in texts):
        raise InvalidArgument(f"the entry {entry.name!r}: its URL and metadata are printable, and no key is empty")
    return size


def answer(entries: Iterable[Entry], name: str, metadata: Mapping[str, str], age: float = 1e9) -> Found:
    """The entries that have this name, or any name if it is empty, and this metadata besides other.

    Args:
        entries: All that there are.
        name: Whom to look for.
        metadata: What its metadata must have.
        age: Seconds for which the directory has known them.
    """
    known = list(entries)
    named = [entry for entry in known if name in ("", entry.name)]
    fitting = {
        (entry.name, entry.url): entry for entry in named if metadata.items() <= entry.metadata.items()
    }  # the workers of one server register it several times
    if fitting:
        return Found(list(fitting.values()), age=age)
    if not known:
        return Found([], "no server is registered at all", age)
    if not named:
        return Found([], f"no server is registered as '{name}'{_meant(name, known)}", age)
    wanted = _pairs(metadata)
    whose = f"as '{name}'" if name else "at all"
    others = "; ".join(dict.fromkeys(_pairs(entry.metadata) or "none" for entry in islice(named, 3)))
    return Found([], f"no server is registered {whose} with {wanted}: there is metadata such as {others}", age)


def _meant(name: str, known: list[Entry]) -> str:
    import difflib  # only on the way to an error

    names = list(dict.fromkeys(entry.name for entry in islice(known, _MOST_COMPARED)))
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f": did you mean {' or '.join(close)}?"
    return f"; there is {', '.join(names[:5])}{', and others' if len(names) > 5 else ''}"


def _pairs(metadata: Mapping[str, str]) -> str:
    return shown(", ".join(f"{key}={value}" for key, value in metadata.items()), 2 * _SHOWN)
