"""A server at ``fd://`` whose one client means harm: it ends with its client, and nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

import pytest

import nearcall
from nearcall.service.service import plan_of

from ..survival.observing import eventually
from .frames import CALL, HELLO, NOBODY, PING, WELCOME, credit, encode, frame, hello, message
from .raw import PATIENCE, Gone, SocketPeer, read_message
from .services import Target

MIB = 1 << 20
NAPS = [number for number, method in enumerate(plan_of(Target).methods) if method.name in ("nap", "nap_in_loop")]
ENDLESS = (1 << 63) - (1 << 21)
Harm = Callable[[socket.socket], None]


def greeted(client: socket.socket) -> SocketPeer:
    client.sendall(hello())
    read_message(client, WELCOME)
    return SocketPeer(client)


def says(data: bytes) -> Harm:
    return lambda client: client.sendall(data)


def hangs_up_at_once(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_RDWR)


def drips(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for byte in hello()[:40]:
            client.send(bytes([byte]))


def reads_nothing(client: socket.socket) -> None:
    peer = greeted(client)
    peer.flood([frame(CALL, b"x" * 100_000, method=0, call=call) for call in range(8)], 0.5, most=16 * MIB)
    peer.flood([frame(PING, bytes(1000), call=9)] * 100, 0.3, most=4 * MIB)


def leaves_streams(client: socket.socket) -> None:
    peer = greeted(client)
    for method in range(40):
        if method in NAPS:
            continue  # its handler would sleep for a day, and keep what it belongs to
        with contextlib.suppress(Gone):
            peer.send(frame(CALL, encode([100_000]), method=method, call=method), credit(ENDLESS, method))


def sends_garbage(client: socket.socket) -> None:
    peer = greeted(client)
    for _ in range(20):
        with contextlib.suppress(Gone):
            peer.push(os.urandom(5000), 0.1)


def announces_much(client: socket.socket) -> None:
    greeted(client)
    client.setblocking(True)
    client.sendall(b"\xff\xff\xff\xff" + bytes(100))


def stops_in_a_frame(client: socket.socket) -> None:
    peer = greeted(client)
    peer.push(peer.batch([frame(CALL, bytes(MIB))])[:500_000], 1.0)


@pytest.mark.parametrize(
    "harm",
    [
        hangs_up_at_once,
        drips,
        reads_nothing,
        leaves_streams,
        sends_garbage,
        announces_much,
        stops_in_a_frame,
        pytest.param(says(b"GET / HTTP/1.1\r\n\r\n"), id="speaks_http"),
        pytest.param(says(message(HELLO, b"", length=NOBODY)), id="announces_a_long_hello"),
        pytest.param(says(message(HELLO, b"{" * 5000)), id="says_an_odd_hello"),
        pytest.param(says(hello()[:-5]), id="says_half_a_hello"),
    ],
)
def test_a_server_with_one_client_that_means_harm(harm: Harm) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    with ours, theirs:
        server = nearcall.Server(Target(), f"fd://{theirs.fileno()}", handshake_timeout=0.5, max_memory=130 * MIB)
        server.start()
        theirs.close()
        with contextlib.suppress(Gone, OSError):
            harm(ours)
        ours.close()
        stopped = threading.Thread(target=server.stop, kwargs={"grace": 1.0})
        begun = time.monotonic()
        stopped.start()
        stopped.join(PATIENCE)
        assert not stopped.is_alive(), f"the server does not stop, after {time.monotonic() - begun:.1f} s"
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 1, "descriptors are left")
