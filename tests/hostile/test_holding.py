"""Clients that keep as much of the server's memory as they may, as long as they can: others find room for a call."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Callable

import pytest

import nearcall

from ..survival.observing import Holdings
from .frames import REPLY, encode
from .holding import LONG, fill, fill_and_die
from .raw import Gone, Peer
from .services import Target
from .target import SOCKETS, Attack, Scene, Table, every

TABLE = Table()
MIB = 1 << 20
LONGEST = 4 * MIB - 1024
"""Bytes of an argument that is about as long as it may be."""
SMALL = {"max_message_size": 4 * MIB, "max_memory": 64 * MIB}
"""Options of a server that is soon full: one call may need 10 MiB."""
PATIENCE = 8.0
"""Seconds that a call may wait for room."""


def echo(scene: Scene, size: int) -> None:
    """A call of somebody who makes one at a time. A reply without room fails at once; then he calls again."""
    end = time.monotonic() + 2 * PATIENCE
    with nearcall.connect(scene.url, Target, timeout=PATIENCE) as honest:
        while True:
            try:
                assert len(honest.echo(bytes(size))) == size
                return
            except nearcall.RpcError as error:
                why = f"an honest call of {size} bytes: {error}"
            assert time.monotonic() < end, why
            time.sleep(0.2)


def echo_at_once(scene: Scene, *sizes: int) -> None:
    begun = time.monotonic()
    for size in sizes:
        echo(scene, size)
    assert time.monotonic() - begun < PATIENCE / 2, "honest calls had to wait"


def descriptors_return(scene: Scene, before: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (now := Holdings.of(scene.server.pid).descriptors) > before:
        assert time.monotonic() < end, f"{now} descriptors after {before}"
        time.sleep(0.02)


@TABLE.add(server=SMALL)
def items_of_a_byte_of_five_clients(scene: Scene) -> None:
    """All within the credit of their streams: 112 bytes of memory for one that is sent."""
    for _ in range(5):
        fill(scene.connect())
    echo_at_once(scene, 2 * MIB, LONGEST)


@TABLE.add(*SOCKETS, server=SMALL)
def replies_that_nobody_reads(scene: Scene) -> None:
    for _ in range(8):
        peer = scene.connect()
        for call in range(8):
            peer.send(scene.call(peer, "make", encode([LONGEST]), call=call))
        peer.wait(2.0)
    time.sleep(0.5)
    # Who does not read for some seconds is hung up on then.
    echo(scene, LONGEST)


@TABLE.add(*SOCKETS, server=SMALL)
def messages_that_are_announced_and_do_not_come(scene: Scene) -> None:
    """Room for a message is kept free from its first bytes on, or many halves would have none for their ends."""
    for _ in range(17):
        peer = scene.connect()
        call = scene.call(peer, "echo")
        peer.push(struct.pack("<I", LONGEST) + call.head, 1.0)
    echo(scene, LONGEST)


def half_message(scene: Scene, size: int, sent: int) -> tuple[Peer, memoryview]:
    """A call of which the first bytes are sent; the client, and the rest."""
    peer = scene.connect()
    call = scene.call(peer, "echo", encode([bytes(size)]))
    whole = memoryview(peer.batch([call]))
    return peer, whole[peer.push(whole[:sent], 1.0) :]


def a_byte_now_and_then(peers: list[Peer], over: threading.Event) -> None:
    while not over.wait(0.5):
        for peer in peers:
            with contextlib.suppress(Gone):
                peer.push(b"\0", 0.0)


@TABLE.add(*SOCKETS, server=SMALL)
def half_messages_of_which_a_byte_comes_now_and_then(scene: Scene) -> None:
    """That is no progress: they are hung up on, and not an upload that pauses and keeps less."""
    upload, rest = half_message(scene, 3 * MIB, 2 * MIB)
    trickling = [half_message(scene, LONGEST, 2 * MIB)[0] for _ in range(20)]
    over = threading.Event()
    thread = threading.Thread(target=a_byte_now_and_then, args=(trickling, over))
    thread.start()
    try:
        echo(scene, 2 * MIB)
        assert upload.push(rest, 1.0) == len(rest)
        assert upload.receive().kind == REPLY
    finally:
        over.set()
        thread.join()
    assert "WARNING:nearcall:dropped the connection" in scene.server.log()


def clients_that_die_with_bytes_on_the_way(scene: Scene) -> None:
    """Nothing tells of their end while nothing is read from them: over TCP it stands behind what has no room."""
    before = Holdings.of(scene.server.pid).descriptors
    fill_and_die(scene.url, 5)
    descriptors_return(scene, before, 5.0)
    echo_at_once(scene, LONGEST)


TABLE.add("tcp", server=SMALL)(clients_that_die_with_bytes_on_the_way)
TABLE.add("tls", server=SMALL)(clients_that_die_with_bytes_on_the_way)
TABLE.add("unix", server=SMALL)(clients_that_die_with_bytes_on_the_way)


@TABLE.add("tcp", "unix", server=SMALL)
def calls_without_room_leave_nothing(scene: Scene) -> None:
    """All memory is in use by handlers at work, and stays so. Who gives up is gone all the same."""
    for _ in range(9):
        peer = scene.connect()
        body = encode([LONG]) + bytes(LONGEST)
        calls = [scene.call(peer, "hold", body, call=call, parts=[LONGEST]) for call in range(4)]
        peer.push(peer.batch(calls), 0.2)
    before = Holdings.of(scene.server.pid).descriptors
    for _ in range(3):
        with (
            nearcall.connect(scene.url, Target, timeout=0.3) as honest,
            pytest.raises(nearcall.RpcError),
        ):
            honest.echo(bytes(LONGEST))
    descriptors_return(scene, before, 9.0)


@every(TABLE)
def test_others_find_room(attack: Attack, transport: str, attempt: Callable[[Attack, str], None]) -> None:
    attempt(attack, transport)
