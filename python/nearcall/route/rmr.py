"""A node's side towards programs of RMR: where it takes their messages, and tables that their route manager pushes."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import _core
from ..errors import InvalidArgument, RpcError
from ..log import ERROR, WARNING, log

if TYPE_CHECKING:
    from .sending import Sending

__all__ = ["SCHEME", "PushedTables", "is_rmr", "sender_at"]

SCHEME = "rmr://"
TABLE, REQUEST, STATE = 20, 21, 22
"""The types of messages between a route manager of RMR and those whose tables it makes."""
_ASK_EVERY = 5.0
"""Seconds between two requests for a table, as RMR has it."""
_ANYBODY = ("192.0.2.1", 9)
"""An address that nobody has: a socket that is to send there gets the address of this machine. Nothing is sent."""


def is_rmr(url: str) -> bool:
    """Whether a URL is that of a program of RMR."""
    return url.startswith(SCHEME)


def sender_at(name: str, places: Sequence[str]) -> tuple[str, str]:
    """Where a node takes messages of RMR's programs, as it tells them: by name and by address.

    Args:
        name: The node's name. If that is ``host:port``, it is what others know.
        places: Where the node listens, each ``host:port``. There may be none.
    """
    if not places:
        return name[:63], ""
    host, _, port = places[0].rpartition(":")
    if _is_any(host):
        source, address = f"{socket.gethostname().partition('.')[0]}:{port}", f"{_own_address()}:{port}"
    else:
        source = address = places[0]
    own_host, separator, own_port = name.rpartition(":")
    if separator and own_port.isdecimal() and own_port != "0" and not _is_any(own_host):
        source = name
    return source, address


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYBODY)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


class PushedTables:
    """Asks a route manager of RMR for a table until one has come, and puts those in force that it pushes.

    Args:
        node: The node.
        url: Where the manager is.
        install: Puts a table's text in force, or raises.
    """

    def __init__(self, node: Sending, url: str, install: Callable[[str], None]) -> None:
        self._node = node
        self._url = url
        self._install = install
        self._pushed = _core.RoutePushed()
        self._enough = threading.Event()

    def run(self) -> None:
        """Asks. For a thread of its own."""
        told = False
        while not self._enough.is_set():
            try:
                payload = f"{self._node.name} ts={int(time.time())}\n\0".encode()
                self._node.send_to(self._url, REQUEST, payload, subscription=0, timeout=0)
            except RpcError as error:
                if not told and not self._enough.is_set():
                    told = True
                    log(WARNING, "node %s cannot ask for a table: %s", self._node.name, str(error))
            self._enough.wait(_ASK_EVERY)

    def end(self) -> None:
        """Asks no more."""
        self._enough.set()

    def take(self, received: _core.RouteMessage) -> list[str]:
        """Takes a message with records. Returns what the manager is to be told: one answer for each table."""
        self._enough.set()
        return [
            self._answer(text) if problem is None else problem
            for text, problem in self._pushed.take(received.payload)
        ]

    def _answer(self, text: str) -> str:
        try:
            self._install(text)
        except InvalidArgument as error:
            log(ERROR, "node %s refuses a table that was pushed: %s", self._node.name, str(error))
            return _core.RoutePushed.answer(text, error.message)
        return _core.RoutePushed.answer(text)
