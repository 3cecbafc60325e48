"""Finds the value in a message at which the decoder stopped, for the text of the error.

msgspec's decoder says where it stopped, but for what is in a dict: there it says ``[...]``. It says what it was given,
but for dates, times and their like. This looks for the rest in the message, after the decoder has refused it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from .._core import check_keys
from ..types.shown import shown
from .hashed import ANYTHING

__all__ = ["LONGEST_KEY", "Culprit", "Decode", "find_culprit", "kind_of_text"]

_LONGEST = 128 * 1024
"""Bytes of a message in which this looks. It holds up the whole process for as long as it looks."""
_MOST_DECODED = 16
"""How often as many bytes as the message has are decoded again at the most. A peer may send such messages to keep this
process busy, so this must cost no more than as many bytes of short calls.
"""
_LONGEST_VALUE = 64 * 1024
"""Bytes of a value that is decoded to say what it is."""
LONGEST_KEY = 80
"""Characters of a key that are shown."""
_INDEX = r"\[(\d+|\.\.\.)\]"

Decode: TypeAlias = "Callable[[bytes], Any]"
"""Decodes a message, or raises the error once more."""


class Culprit(NamedTuple):
    """The value at which a decoder stopped."""

    path: str
    """Where it is: ``[0][3].points['home'].x``."""
    value: Any
    """The value as plain data, or the key; ``None`` if it is long."""


def find_culprit(body: bytes, path: str, *, words: str, is_key: bool, decode: Decode | None) -> Culprit | None:
    """Looks for the value; ``None`` if it cannot be found, or the message is long.

    Args:
        body: The message.
        path: The decoder's path, without the dollar: ``[0][...].x``.
        words: The decoder's error.
        is_key: Whether the decoder has stopped at a key of what is there.
        decode: The decoder, to find out at which key of a dict it stops; ``None`` if it must not decode again.
    """
    if len(body) > _LONGEST:
        return None
    try:
        check_keys(body, ANYTHING)  # building the dicts of a message may be made to take long
        return _Search(body, words, decode).along(path, is_key)
    except Exception:  # whatever a peer has sent: the error is told without this
        return None


class _Search:
    """Follows a path into a message. What is beside the path is never decoded, but copied as it is."""

    def __init__(self, body: bytes, words: str, decode: Decode | None) -> None:
        self._words = words
        self._decode = decode
        self._left = _MOST_DECODED * len(body)
        self._outer: list[tuple[Any, Any]] = []
        """The lists and dicts that the path has led through, and the index or key of each at which it goes on."""
        self._here: Any = body

    def along(self, path: str, is_key: bool) -> Culprit:
        """The value at the end of the path."""
        found = ""
        while path:
            if step := re.match(_INDEX, path):
                path = path[step.end() :]
                if step[1] == "...":
                    key = self._refused_key()
                    found += f"[{shown(repr(key), LONGEST_KEY)}]"
                else:
                    self._go(msgspec.msgpack.decode(self._here, type=list[msgspec.Raw]), int(step[1]))
                    found += step[0]
            else:
                mapping = msgspec.msgpack.decode(self._here, type=dict[Any, msgspec.Raw])
                name = _name_of(path, mapping)
                path = path[1 + len(name) :]
                self._go(mapping, name)
                found += f".{name}"
        if is_key:
            return Culprit(found, self._refused_key())
        return Culprit(found, _plain(self._here) if len(self._here) <= _LONGEST_VALUE else None)

    def _go(self, container: Any, place: Any) -> None:
        self._outer.append((container, place))
        self._here = container[place]

    def _refused_key(self) -> Any:
        """The key at which the decoder stops in the dict that is here; goes on to its value. The decoder takes entries
        in order, so it stops at the first that it refuses. Entries that it takes are left out from then on.
        """
        entries = list(msgspec.msgpack.decode(self._here, type=dict[Any, msgspec.Raw]).items())
        if not self._refuses(entries) or self._refuses([]):
            raise ValueError("another value is refused")
        while len(entries) > 1:
            half = len(entries) // 2
            entries = entries[:half] if self._refuses(entries[:half]) else entries[half:]
        if not self._refuses(entries):
            raise ValueError("another value is refused")
        ((key, _),) = entries
        self._go(dict(entries), key)
        return key

    def _refuses(self, entries: list[tuple[Any, Any]]) -> bool:
        """Whether the decoder says the same of the message with these entries alone in the dict that is here."""
        message = msgspec.msgpack.encode(dict(entries))
        for container, place in reversed(self._outer):
            container[place] = msgspec.Raw(message)
            message = msgspec.msgpack.encode(container)
        self._left -= len(message)
        if self._decode is None or self._left < 0:
            raise ValueError("not to be found")
        try:
            self._decode(message)
        except Exception as error:
            return str(error) == self._words
        return False


def _name_of(path: str, mapping: dict[Any, Any]) -> str:
    """The name of a field that a path begins with. It may hold dots and brackets itself."""
    names = [name for name in mapping if isinstance(name, str) and path.startswith(f".{name}")]
    return max((name for name in names if path[1 + len(name) : 2 + len(name)] in ("", ".", "[")), key=len)


def _plain(body: Any) -> Any:
    decoder = msgspec.msgpack.Decoder(ext_hook=lambda code, data: msgspec.msgpack.Ext(code, bytes(data)))
    return decoder.decode(body)


def kind_of_text(value: Any) -> str:
    """What a text, which is no text of the expected kind, stands for: ``datetime``, ``date``, ``time``, or ``str``."""
    if isinstance(value, datetime.datetime):
        return "datetime"
    if not isinstance(value, str):
        return type(value).__name__
    for kind in (datetime.date, datetime.datetime, datetime.time):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            continue
        return kind.__name__
    return "str"
