"""Peers that do not read: nobody else waits for them, and the server still ends when it is told to."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

from .busy import Busy
from .frames import CALL, CANCEL, PING, credit, encode, frame
from .raw import Gone, Peer
from .target import SOCKETS, Attack, Scene, Stopped, Table, every

TABLE = Table()
ENDLESS = (1 << 63) - (1 << 21)


@TABLE.add(terminate=True)
def a_call_and_pings_and_nothing_read(scene: Scene) -> None:
    peer = scene.connect()
    peer.send(scene.call(peer, "nap", encode([0.2])))
    pings = [frame(PING, bytes(1000), call=2 + number) for number in range(100)]
    peer.flood(pings, 2, most=7 << 20)
    time.sleep(0.3)  # the call ends while its connection is full


@TABLE.add(server={"token": True}, terminate=True)
def the_same_where_a_token_is_needed(scene: Scene) -> None:
    a_call_and_pings_and_nothing_read(scene)


@TABLE.add()
def tiny_pings_and_nothing_read(scene: Scene) -> None:
    peer = scene.connect()
    peer.flood([frame(PING, call=number) for number in range(1000)], scene.seconds * 2)


@TABLE.add(terminate=True)
def echoes_of_150_kb_and_nothing_read(scene: Scene) -> None:
    for method in ("echo", "echo_in_loop"):
        peer = scene.connect()
        peer.flood([scene.call(peer, method, bytes(150_000), call=n) for n in range(8)], 1, most=30 << 20)


@TABLE.add(terminate=True)
def calls_in_flight_and_nothing_read(scene: Scene) -> None:
    """As many handlers as may run, each with a reply that has nowhere to go."""
    for _ in range(3):
        peer = scene.connect()
        calls = [scene.call(peer, "make", encode([150_000]), call=number) for number in range(300)]
        with contextlib.suppress(Gone):
            peer.send(*calls, seconds=0.3)


@TABLE.add()
def refusals_and_nothing_read(scene: Scene) -> None:
    """Errors that the server itself makes."""
    peer = scene.connect()
    wrong = [frame(CALL, b"", method=999, call=number) for number in range(500)]
    wrong += [scene.call(peer, "refuse", encode(["x" * 10_000]), call=1000 + number) for number in range(50)]
    peer.flood(wrong, scene.seconds * 2, most=64 << 20)


@TABLE.add(terminate=True)
def looks_at_the_server_and_nothing_read(scene: Scene) -> None:
    """Their answers are long, and made by whoever receives."""
    for _ in range(3):
        peer = scene.connect()
        peer.flood([scene.call(peer, "read", call=number) for number in range(500)], scene.seconds, most=4 << 20)


@TABLE.add(terminate=True)
def streams_with_endless_credit_and_nothing_read(scene: Scene) -> None:
    for _ in range(3):
        peer = scene.connect()
        for call in range(10):
            peer.send(scene.call(peer, "blocks", encode([100_000]), call=call), credit(ENDLESS, call))
    time.sleep(scene.seconds)


@TABLE.add()
def mirrors_and_nothing_read(scene: Scene) -> None:
    """A stream in both directions: what is sent comes back, and is not taken."""
    peer = scene.connect()
    for call in range(4):
        peer.send(scene.call(peer, "mirrored", call=call), credit(ENDLESS, call))
    items = [frame(2, bytes(30_000), call=call) for call in range(4)]
    peer.flood(items, scene.seconds * 2, most=32 << 20)


@TABLE.add(terminate=True)
def streams_opened_and_cancelled_beside_three_non_readers(scene: Scene) -> None:
    for _ in range(3):
        idle = scene.connect()
        idle.send(scene.call(idle, "blocks", encode([60_000])), credit(ENDLESS))
        idle.flood([frame(PING, bytes(1000), call=9)], 0.3, most=2 << 20)
    peer = scene.connect()
    batch = []
    for call in range(50):
        batch += [scene.call(peer, "count", encode([1000]), call=call), frame(CANCEL, call=call)]
    end = time.monotonic() + scene.seconds * 3
    with contextlib.suppress(Gone):
        while time.monotonic() < end and peer.send(*batch, seconds=0.5):
            _take(peer)


@TABLE.add()
def a_reader_of_a_byte_at_a_time(scene: Scene) -> None:
    peer = scene.connect()
    with contextlib.suppress(Gone):
        peer.send(*[scene.call(peer, "make", encode([200_000]), call=n) for n in range(100)], seconds=0.2)
    end = time.monotonic() + scene.seconds * 2
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            peer.socket.recv(1)
        time.sleep(0.001)


@TABLE.add(*SOCKETS)
def non_readers_that_read_all_at_once(scene: Scene) -> None:
    """What waited for them goes out as fast as they take it, and others have their turn meanwhile."""
    peers = [scene.connect(receive_buffer=8 << 20) for _ in range(3)]
    for _ in range(scene.amount(1, 8)):
        for peer in peers:
            peer.send(scene.call(peer, "make", encode([20 << 20])))
        time.sleep(0.05)
        for peer in peers:
            _discard(peer, 20 << 20)


@TABLE.add(*SOCKETS, terminate=True)
def a_half_closed_client_that_does_not_read(scene: Scene) -> None:
    peer = scene.connect()
    with contextlib.suppress(Gone):
        peer.send(*[scene.call(peer, "make", encode([400_000]), call=n) for n in range(40)], seconds=0.3)
    with contextlib.suppress(OSError):
        peer.socket.shutdown(socket.SHUT_WR)


@TABLE.add()
def offenders_that_hang_up_at_once(scene: Scene) -> None:
    """The replies' connection is gone before, while and after they are sent."""
    for number in range(scene.amount(20, 300)):
        peer = scene.connect()
        calls = [scene.call(peer, "make", encode([60_000]), call=n) for n in range(number % 20 + 1)]
        with contextlib.suppress(Gone):
            peer.send(*calls, credit(ENDLESS), seconds=0.05)
        peer.close()


@TABLE.add(server={"max_concurrency": 8})
def honest_threads_stopped_now_and_then(scene: Scene) -> None:
    """Two clients, 48 threads each, echoing 150 KB."""
    clients = [Busy(scene.url, 48, 150_000) for _ in range(2)]
    for client in clients:
        scene.keep(client.close)
    for client in clients:
        client.wait_for_calls(50)
    for turn in range(scene.amount(2, int(2 * scene.seconds) + 1)):
        with Stopped(clients[turn % 2].pid):
            time.sleep(0.4)
        time.sleep(0.1)
    for client in clients:
        client.wait_for_calls(client.calls() + 50)


@TABLE.add(server={"max_concurrency": 8})
def all_handlers_busy_for_clients_that_do_not_read(scene: Scene) -> None:
    """Others get a turn as soon as there is one."""
    peers = [scene.connect() for _ in range(4)]
    for peer in peers:
        peer.flood([scene.call(peer, "echo", bytes(100_000), call=n) for n in range(10)], 0.3, most=4 << 20)


@TABLE.add("shm")
def a_bell_that_never_stops(scene: Scene) -> None:
    peer = scene.connect()
    end = time.monotonic() + scene.seconds
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                peer.socket.send(b"B" * 4096)


def _discard(peer: Peer, least: int) -> None:
    """Takes bytes without looking at them, which is as fast as the other side can send them."""
    # Beneath TLS: nothing is decrypted.
    with socket.socket(fileno=os.dup(peer.socket.fileno())) as connection:
        connection.settimeout(20)
        into = bytearray(8 << 20)
        while least > 0:
            least -= connection.recv_into(into)


def _take(peer: Peer) -> None:
    while peer.try_receive() is not None:
        pass


@every(TABLE)
def test_who_does_not_read_keeps_nobody_waiting(
    attack: Attack, transport: str, attempt: Callable[[Attack, str], None]
) -> None:
    attempt(attack, transport)
