"""TCP ports that stay the test's own while nobody serves there."""

from __future__ import annotations

import socket

_held: list[socket.socket] = []


def own_port() -> int:
    """A port of 127.0.0.1 that the system gives to nobody else until :func:`let_go`.

    Who stops a server and starts another one at its address would else find, now and then, that one of the many tests
    beside it was given the port meanwhile. A socket that does not listen keeps it: servers share it with that, since
    both allow it (``SO_REUSEADDR``), and who connects while there is no server is refused.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


def let_go() -> None:
    """To be called when a test is over."""
    while _held:
        _held.pop().close()
