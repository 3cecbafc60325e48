"""Clients that keep what they may of a server's memory, in a process of their own that can be killed. Its program is
:func:`main`, with arguments ``URL CLIENTS``. It says with a line that all of them keep what they can, and stays.
"""

from __future__ import annotations

import contextlib
import sys

from ..e2e.process import start_program
from . import raw
from .frames import CALL, ITEM, encode, frame
from .raw import Gone, Peer

STREAMS = 400
LONG = 120.0
"""Seconds for which handlers look at nothing: more than any test waits."""
MOST = 50
"""Rounds of items: all of them are within the credit of their streams."""


def fill(peer: Peer) -> None:
    """Keeps as much as one client may: items of a byte, for handlers that do not look at them. Goes on until the server
    reads no more, so that bytes are on the way.
    """
    method = peer.methods["slow_total"]
    begin = [frame(CALL, encode([LONG]), method=method, call=call) for call in range(STREAMS)]
    items = peer.batch([frame(ITEM, b"\x01", call=call) for call in range(STREAMS) for _ in range(31)])
    with contextlib.suppress(Gone):
        peer.send(*begin)
        for _ in range(MOST):
            if peer.push(items, 0.3) < len(items):
                break


def main() -> None:
    peers = [raw.connect(sys.argv[1]) for _ in range(int(sys.argv[2]))]
    for peer in peers:
        fill(peer)
    print(flush=True)
    sys.stdin.read()


def fill_and_die(url: str, clients: int) -> None:
    """They keep what they can, and are killed: nobody says goodbye."""
    program = start_program("from tests.hostile.holding import main; main()", url, str(clients))
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "\n"
    finally:
        program.kill()
        program.communicate(timeout=10)
