"""Where servers listen."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _core
from ..options.common import check_users
from ..options.tls import TLS, server_side

__all__ = ["OF_LISTENERS", "make_listeners"]

OF_LISTENERS = ("allow_plaintext", "tls", "allow_users", "allow_groups")
"""Options that concern the sockets, which the parent of workers binds."""


def make_listeners(
    urls: Sequence[str],
    *,
    allow_plaintext: bool = False,
    tls: TLS | None = None,
    allow_users: Sequence[str | int] = (),
    allow_groups: Sequence[str | int] = (),
) -> _core.Listeners:
    """Listeners that are bound nowhere yet, for these URLs.

    Raises:
        InvalidArgument: an option is malformed.
        TypeError, ValueError: an option does not fit the URLs.
    """
    users, groups = check_users(urls, allow_users, allow_groups)
    return _core.Listeners(
        allow_plaintext=bool(allow_plaintext), tls=server_side(tls, urls), allow_users=users, allow_groups=groups
    )
