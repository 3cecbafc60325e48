"""The option ``allow_origins``: the web pages that may call, by their origins."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import InvalidArgument
from .checked import with_option
from .schemes import speaks_http

__all__ = ["check_origins"]

_ORIGIN = r"[a-z][a-z0-9+.-]*://[^/?#@\s]+"


def check_origins(allow_origins: Sequence[str], urls: Sequence[str]) -> list[str]:
    """The option ``allow_origins`` of a server at ``urls``.

    Raises:
        InvalidArgument: an item is no origin.
        TypeError: a single origin was given in place of a list.
        ValueError: none of the URLs is for browsers.
    """
    if isinstance(allow_origins, str):
        raise with_option(
            TypeError(f"allow_origins takes a list: write allow_origins=[{allow_origins!r}]"), "allow_origins"
        )
    for origin in allow_origins:
        if origin != "*" and not re.fullmatch(_ORIGIN, origin):
            raise with_option(
                InvalidArgument(
                    f"allow_origins: {origin!r} is no origin; write it as browsers do, scheme://host or "
                    "scheme://host:port in lower case, without a path"
                ),
                "allow_origins",
            )
    if allow_origins and not any(map(speaks_http, urls)):
        raise with_option(
            ValueError("allow_origins is for http:// and https:// URLs, and there is none"), "allow_origins"
        )
    return list(allow_origins)
