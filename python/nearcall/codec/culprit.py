"""Finds the value in a message at which the decoder stopped, for the text of the error.

msgspec's decoder says where it stopped, but for what is in a dict: there it says ``[...]``. It says what it was given,
but for dates, times and their like. This looks for the rest in the message, after the decoder has refused it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from .._core import check_keys
from ..types.guards import is_dict
from ..types.shown import shown
from .hashed import ANYTHING

__all__ = ["LONGEST_KEY", "Culprit", "find_culprit", "kind_of_text"]

_LONGEST = 64 * 1024
"""Bytes of a message in which this looks. A peer may send such messages to keep this process busy, so this must cost no
more than as many bytes of short calls.
"""
_LONGEST_SEARCHED = 8 * 1024
"""The same where the key of a dict is to be found: that decodes the message a dozen times."""
LONGEST_KEY = 80
"""Characters of a key that are shown."""
_STEP = r"\[(\d+|\.\.\.)\]|\.([^.\[]+)"


class Culprit(NamedTuple):
    """The value at which a decoder stopped."""

    path: str
    """Where it is: ``[0][3].points['home'].x``."""
    value: Any
    """The value as plain data, or the key."""


def find_culprit(body: bytes, path: str, *, is_key: bool, decode: Callable[[bytes], Any] | None) -> Culprit | None:
    """Looks for the value; ``None`` if it cannot be found, or the message is long.

    Args:
        body: The message.
        path: The decoder's path, without the dollar: ``[0][...].x``.
        is_key: Whether the decoder has stopped at a key of what is there.
        decode: The decoder, to find out at which key of a dict it stops; ``None`` if it takes more than the message.
    """
    if len(body) > _LONGEST:
        return None
    try:
        check_keys(body, ANYTHING)  # building the dicts of a message may be made to take long
        root = msgspec.msgpack.Decoder(ext_hook=lambda code, data: msgspec.msgpack.Ext(code, bytes(data))).decode(body)
        return _walk(root, path, is_key, decode if len(body) <= _LONGEST_SEARCHED else None)
    except Exception:  # whatever a peer has sent: the error is told without this
        return None


def _walk(root: Any, path: str, is_key: bool, decode: Callable[[bytes], Any] | None) -> Culprit | None:
    value, found, end = root, "", 0
    for step in re.finditer(_STEP, path):
        if step.start() != end:
            return None
        end = step.end()
        index, name = step.groups()
        if index == "...":
            key = _refused_key(root, value, decode)
            value, found = value[key], f"{found}[{shown(repr(key), LONGEST_KEY)}]"
        elif index is not None:
            value, found = value[int(index)], f"{found}[{index}]"
        else:
            value, found = value[name], f"{found}.{name}"
    if end != len(path):
        return None
    return Culprit(found, _refused_key(root, value, decode)) if is_key else Culprit(found, value)


def _refused_key(root: Any, mapping: Any, decode: Callable[[bytes], Any] | None) -> Any:
    """The key of an entry at which the decoder stops. It decodes in order, so that is the last entry of the shortest
    beginning that it refuses.
    """
    if decode is None or not is_dict(mapping):
        raise ValueError("not to be found")
    entries = list(mapping.items())

    def refuses(count: int) -> bool:
        mapping.clear()
        mapping.update(islice(entries, count))
        try:
            decode(msgspec.msgpack.encode(root))
        except Exception:
            return True
        return False

    fits, refused = 0, len(entries)
    try:
        if not refuses(refused) or refuses(0):
            raise ValueError("another value is refused")
        while refused - fits > 1:
            middle = (fits + refused) // 2
            if refuses(middle):
                refused = middle
            else:
                fits = middle
    finally:
        mapping.clear()
        mapping.update(entries)
    return entries[refused - 1][0]


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
