"""Where servers listen."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, cast

from .. import _core
from ..options.checked import with_option
from ..options.common import check_users
from ..options.nats import NATS, login_of
from ..options.tls import TLS, server_side

__all__ = ["OF_LISTENERS", "listen", "make_listeners"]

OF_LISTENERS = ("allow_plaintext", "tls", "nats", "allow_users", "allow_groups", "sockets")
"""Options that concern the sockets, which the parent of workers binds."""


def make_listeners(
    urls: Sequence[str],
    *,
    allow_plaintext: bool = False,
    tls: TLS | None = None,
    nats: NATS | None = None,
    allow_users: Sequence[str | int] = (),
    allow_groups: Sequence[str | int] = (),
    sockets: Sequence[int] = (),
) -> _core.Listeners:
    """Listeners that are bound nowhere yet, for these URLs.

    Raises:
        InvalidArgument: an option is malformed.
        TypeError, ValueError: an option does not fit the URLs, or one of the sockets does not listen.
    """
    users, groups = check_users(urls, allow_users, allow_groups)
    of_server = server_side(tls, urls)
    return _core.Listeners(
        allow_plaintext=bool(allow_plaintext),
        tls=of_server,
        nats=login_of(nats, urls),
        allow_users=users,
        allow_groups=groups,
        sockets=_copies(sockets),
    )


def listen(listeners: _core.Listeners, urls: Sequence[str], bound: list[str]) -> None:
    """Listens at URLs, and adds to ``bound`` where that is: with the port that the system chose.

    Raises:
        AlreadyExists: a URL is served already.
        InvalidArgument: a URL is malformed, or an option does not allow it.
        ValueError: a socket that was passed is for none of the URLs.
        OSError: the system refuses, for another reason.
    """
    bound.extend(map(listeners.bind, urls))
    if left := listeners.left():
        one = len(left) == 1
        raise with_option(
            ValueError(
                f"no URL has the address of the {'socket' if one else 'sockets'} passed to this process, "
                f"{', '.join(left)}: serve there, too, or pass {'it' if one else 'them'} to nobody"
            ),
            "sockets",
        )


def _copies(sockets: Sequence[int]) -> list[int]:
    """Descriptors that belong to nobody else, of sockets that listen."""
    copies: list[int] = []
    try:
        for number in sockets:
            if isinstance(cast(Any, number), bool) or not isinstance(cast(Any, number), int):
                raise TypeError(f"sockets takes numbers of descriptors, and {number!r} is none")
            try:
                copies.append(os.dup(number))
                with socket.socket(fileno=os.dup(number)) as looked_at:
                    listens = looked_at.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            except OSError as error:
                raise ValueError(
                    f"sockets: descriptor {number} is no socket of this process: {error.strerror}"
                ) from None
            if not listens:
                raise ValueError(
                    f"sockets: descriptor {number} does not listen; a connection is served at fd://{number}"
                )
    except (TypeError, ValueError) as error:
        for copy in copies:
            os.close(copy)
        raise with_option(error, "sockets") from None
    return copies
