"""Names of requests over HTTP."""

from __future__ import annotations

import re

_OWN = re.compile(r"(?<=/)(\d+|[0-9a-fA-F]{8,}|[0-9a-fA-F-]{32,36})(?=/|$)")


def name_of(method: str, scheme: str, host: str, path: str) -> str:
    """``GET http://host/users/*`` for the user 17: what differs from one object to the next is left out, and so is the
    query.
    """
    return f"{method} {scheme}://{host}{_OWN.sub('*', path.partition('?')[0])}"


def length_of(headers: object) -> int:
    """The length that headers say; 0 if they say none."""
    get = getattr(headers, "get", None)
    found = get("content-length") if get is not None else None
    return int(found) if found is not None and str(found).isdecimal() else 0
