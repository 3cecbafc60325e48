"""A node's side towards programs of RMR: where it takes their messages, and tables that their route manager pushes."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from ..errors import InvalidArgument, RpcError
from ..log import ERROR, WARNING, log

__all__ = ["SCHEME", "PushedTables", "is_rmr", "sender_at"]

SCHEME = "rmr://"
REQUEST, STATE = 21, 22
"""The types of messages to a route manager of RMR: who asks for a table, and says what became of one."""
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
    if is_any(host):
        source, address = f"{socket.gethostname().partition('.')[0]}:{port}", f"{own_address()}:{port}"
    else:
        source = address = places[0]
    own_host, separator, own_port = name.rpartition(":")
    if separator and own_port.isdecimal() and own_port != "0" and not is_any(own_host):
        source = name
    return source, address


def is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYBODY)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


class PushedTables:
    """Asks a route manager of RMR for a table until one has come, and puts those in force that it pushes.

    Args:
        core: The node.
        url: Where the manager is.
        name: The node's name, for the log.
        install: Puts a table's text in force, or raises.
    """

    def __init__(self, core: _core.RouteNode, url: str, name: str, install: Callable[[str], None]) -> None:
        self._core = core
        self._url = url
        self._name = name
        self._install = install
        self._ended = threading.Event()

    def run(self, source: str) -> None:
        """Works until the node takes no more messages. For a thread of its own.

        Args:
            source: Where the node takes messages of RMR's programs, as they know it.
        """
        pushed, has_table, told = _core.RoutePushed(), False, False
        while not self._ended.is_set():
            if not has_table:
                told = self._ask(source, told)
            received = self._core.receive_table(None if has_table else _ASK_EVERY)
            if received is None:
                continue
            has_table = True
            for text, problem in pushed.take(received.payload):
                self._tell(received, self._answer(text) if problem is None else problem)

    def end(self) -> None:
        """The node takes no more messages from now on."""
        self._ended.set()

    def _ask(self, source: str, told: bool) -> bool:
        """Asks for a table. Returns whether a failure was logged, now or before."""
        try:
            payload = f"{source} ts={int(time.time())}\n\0".encode()
            self._core.send(REQUEST, payload, subscription=0, to=self._url, timeout=0)
        except RpcError as error:
            if not told:
                log(WARNING, "node %s cannot ask for a table: %s", self._name, str(error))
            return True
        return told

    def _answer(self, text: str) -> str:
        try:
            self._install(text)
        except InvalidArgument as error:
            log(ERROR, "node %s refuses a table that was pushed: %s", self._name, str(error))
            return _core.RoutePushed.answer(text, error.message)
        return _core.RoutePushed.answer(text)

    def _tell(self, received: _core.RouteMessage[Any], answer: str) -> None:
        if received.address:
            try:
                self._core.reply(received, STATE, f"{answer}\0".encode(), timeout=0.0)
            except RpcError as error:
                log(WARNING, "cannot tell %s what became of its table: %s", received.source, str(error))
