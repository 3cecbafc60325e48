"""Descriptors that a peer sends, and that nobody should have to wait for: neither while one is closed, nor for one that
is left.

Closing a socket of the network waits for its last bytes, if its owner has asked for that (``SO_LINGER``) and its other
end takes none. Whoever closes it last waits: its owner only has to send it away.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

import nearcall

from ..survival.hostile import Echo
from ..survival.raw_shm import SHOWN_SEALS, End
from ..survival.test_hostile_shm_server import Host
from .frames import CALL, frame, hello
from .raw import PAGE, PATIENCE, RING, MemoryPeer, memfd
from .services import Target
from .target import Attack, Scene, Table, every

TABLE = Table(("shm", "unix"))
LINGERS = 60
"""Seconds that closing one takes: more than any test waits."""


class Lingering:
    """A descriptor whose last closing waits, for as long as :meth:`close` is not called."""

    def __init__(self) -> None:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            self._sent = socket.create_connection(listener.getsockname())
            self._other, _ = listener.accept()
        self._closing = threading.Thread(target=self._sent.close)
        self._sent.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._sent.send(bytes(1 << 16))
        self._sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGERS))

    def give(self, to: socket.socket, beside: bytes, *others: int) -> None:
        """Sends it away; what is on the way is the last one. A system may refuse to carry it."""
        with contextlib.suppress(PermissionError):
            socket.send_fds(to, [beside], [self._sent.fileno(), *others])
            # If the other side is through with it already, this one is the last, and waits.
            self._closing.start()

    def close(self) -> None:
        """Nobody waits any more."""
        self._other.close()
        if self._closing.ident is None:
            self._closing.start()
        self._closing.join()


def lingering(scene: Scene) -> Lingering:
    one = Lingering()
    scene.keep(one.close)
    return one


def memory_of(scene: Scene) -> list[int]:
    """What goes beside a hello."""
    if scene.transport != "shm":
        return []
    fd = memfd(PAGE + 2 * RING)
    scene.keep(lambda: os.close(fd))
    return [fd]


@TABLE.add(terminate=True)
def closing_waits_in_the_handshake(scene: Scene) -> None:
    """Sent with all of a hello, with its first bytes, or before it is hung up on."""
    for length in (len(hello(RING)), 4, 1):
        for _ in range(scene.amount(3, 20)):
            connection = scene.dial()
            lingering(scene).give(connection, hello(RING)[:length], *memory_of(scene))
            if length == 1:
                connection.close()


@TABLE.add(terminate=True)
def closing_waits_in_a_socket_within_a_socket(scene: Scene) -> None:
    """One that is in the queue of another one that is closed."""
    for _ in range(scene.amount(3, 20)):
        here, there = socket.socketpair()
        one = lingering(scene)
        # If the server is through with it already, closing it waits here.
        closing = threading.Thread(target=there.close)
        scene.keep(closing.join)
        one.give(here, b"x")
        here.close()
        connection = scene.dial()
        try:
            socket.send_fds(connection, [hello(RING)[:4]], [there.fileno()])
        except PermissionError:
            one.close()
        closing.start()


@TABLE.add(terminate=True)
def closing_waits_in_a_connection(scene: Scene) -> None:
    """Beside a bell, or the first bytes of a frame; the peer stays, or hangs up."""
    for number in range(scene.amount(8, 40)):
        peer = scene.connect()
        lingering(scene).give(peer.socket, b"B" if scene.transport == "shm" else struct.pack("<I", 8))
        if number % 2:
            peer.close()


@TABLE.add("shm", terminate=True)
def closing_waits_for_what_is_announced(scene: Scene) -> None:
    for letter in b"RS":
        for used in (True, False):
            peer = scene.connect()
            assert isinstance(peer, MemoryPeer)
            lingering(scene).give(peer.socket, struct.pack("<BIQ", letter, 1, 1 << 16))
            if used:
                echo = frame(CALL, method=peer.methods["echo"])
                peer.lay(peer.record(struct.pack("<IQB", 1, 10, 1) + bytes(echo.head), is_note=True))
            peer.bell()


@TABLE.add(terminate=True)
def closing_waits_for_many_beside_one_byte(scene: Scene) -> None:
    """More than are looked at."""
    peer = scene.connect()
    several = [os.dup(0) for _ in range(200)]
    lingering(scene).give(peer.socket, b"B", *several)
    for fd in several:
        os.close(fd)


@TABLE.add("shm")
def descriptors_of_memory_that_nobody_uses(scene: Scene) -> None:
    """As many as each connection may announce and show, until the server could have no other."""
    server = scene.server.pid
    before = resource.prlimit(server, resource.RLIMIT_NOFILE)
    scene.keep(lambda: resource.prlimit(server, resource.RLIMIT_NOFILE, before))
    resource.prlimit(server, resource.RLIMIT_NOFILE, (256, before[1]))
    region, buffer = memfd(1 << 16), memfd(1 << 16, SHOWN_SEALS)
    with nearcall.connect(scene.url, Target, timeout=PATIENCE) as honest:
        for _ in range(20):
            peer = scene.connect()
            with contextlib.suppress(OSError):
                for number in range(60):
                    socket.send_fds(peer.socket, [struct.pack("<BIQ", ord("R"), number, 1 << 16)], [region])
                for number in range(30):
                    socket.send_fds(peer.socket, [struct.pack("<BIQ", ord("S"), number, 1 << 16)], [buffer])
            # Its message needs a descriptor, too.
            assert honest.length(memoryview(bytes(1 << 20))) == 1 << 20
    os.close(region)
    os.close(buffer)


@every(TABLE)
def test_nobody_waits_for_descriptors(attack: Attack, transport: str, attempt: Callable[[Attack, str], None]) -> None:
    attempt(attack, transport)


def test_a_client_does_not_wait_for_them(runtime_dir: object) -> None:
    def announced(end: End) -> None:
        end.receive()
        one.give(end.socket, struct.pack("<BIQ", ord("R"), 1, 1 << 16))
        end.note(1, 10)

    def beside_a_bell(end: End) -> None:
        end.receive()
        one.give(end.socket, b"B")

    url = f"shm://descriptors-{os.getpid()}"
    for harm in (announced, beside_a_bell):
        one = Lingering()
        with Host(url, harm):
            begun = time.monotonic()
            with nearcall.connect(url, Echo, timeout=0.5) as echo, pytest.raises(nearcall.RpcError):
                echo.echo(b"x")
            assert time.monotonic() - begun < LINGERS / 2
        one.close()
