"""How failed calls are grouped into kinds and described to a reader: by what the mechanism's own error states."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from enum import Enum

MOST_KINDS = 12
"""Largest number of kinds that one client process counts separately, so that errors whose text differs each time do not
fill the record.
"""
_MOST_CHARACTERS = 80
_PATH = re.compile(r"(?:/[^\s/:'\",;()\[\]<>]+){2,}/?")
_CHANGING = re.compile(r"0[xX][0-9a-fA-F]+|\b(?=[a-f-]*\d)[0-9a-f-]{8,}\b|\d+(?:[.,:]+\d+)*")
OTHERS = "other reasons"


def kind_of(error: BaseException) -> str:
    """What calls that failed for the same cause have in common, for example ``AioRpcError CANCELLED`` or
    ``OSError: Too many open files``: the exception's class, the status it carries, and its reason without numbers,
    addresses and paths, which differ from call to call."""
    name, reason = _name(error), _reason(error)
    if isinstance(error, OSError) and isinstance(error.errno, int):
        reason = os.strerror(error.errno)
    # After the first line comes a traceback of the server.
    reason = next((line for line in reason.splitlines() if line.strip()), "").strip()
    reason = _CHANGING.sub("…", _PATH.sub("…", reason))
    if len(reason) > _MOST_CHARACTERS:
        reason = reason[:_MOST_CHARACTERS].rpartition(" ")[0] + " …"
    return f"{name}: {reason}" if reason else name


def explain(error: BaseException) -> str:
    """One line for a table cell, with everything that distinguishes this failure from others."""
    name, reason = _name(error), " ".join(_reason(error).split())
    if not reason and not _status(error):
        reason = "no message"
    return f"{name}: {reason}"[:300] if reason else name


def few(kinds: Mapping[str, int]) -> Counter[str]:
    """The same counts with `MOST_KINDS` kinds at most: the rarest of each class are counted together."""
    found: Counter[str] = Counter()
    for place, (kind, count) in enumerate(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))):
        found[kind if place < MOST_KINDS else f"{kind.partition(':')[0]}: {OTHERS}"] += count
    return found


def _name(error: BaseException) -> str:
    """The class, and the status where that adds something: in nearcall each status has a class of its own."""
    name, status = type(error).__name__, _status(error)
    says_it = status.replace("_", "").lower() == name.replace("_", "").lower()
    return name if not status or says_it else f"{name} {status}"


def _status(error: BaseException) -> str:
    """What gRPC, nearcall and HTTP call status or code, by its name or number; empty where there is none."""
    for attribute in ("code", "status"):
        value = _told(error, attribute)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""


def _reason(error: BaseException) -> str:
    """The error's own text."""
    # gRPC's text is a whole paragraph with a time stamp in it; the status message is what it calls details.
    details = _told(error, "details") if callable(getattr(error, "details", None)) else None
    try:
        text = details if isinstance(details, str) else str(error)
    except Exception:  # an adapter's exception may be anything
        return ""
    return "" if text == _status(error) else text


def _told(error: BaseException, attribute: str) -> object:
    """An attribute, or what it returns where it is a method."""
    try:
        value = getattr(error, attribute, None)
        return value() if callable(value) else value
    except Exception:
        return None
