"""TLS that ends or dwindles at any byte: on either side it costs one connection, and nobody else waits for it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nearcall

from .frames import CALL, encode, frame, hello
from .raw import PATIENCE, address
from .services import served_at
from .target import SECONDS, Attack, Scene, Server, Table, every

TABLE = Table(("tls", "grpcs"))


class Ciphertext:
    """A client whose encrypted bytes are in our hands: at most so many of them are sent, in pieces of that length."""

    def __init__(self, url: str, most: int, piece: int) -> None:
        family, place = address(url)
        self._socket = socket.socket(family)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(place)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
        if url.startswith("grpcs://"):
            context.set_alpn_protocols(["h2"])
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self._left, self._piece = most, piece
        self.sent = 0

    def _flush(self) -> None:
        data = self._out.read()[: self._left]
        self._left -= len(data)
        self.sent += len(data)
        with contextlib.suppress(OSError):
            for at in range(0, len(data), self._piece):
                self._socket.send(data[at : at + self._piece])

    def run(self, plaintext: bytes) -> None:
        """As far as the bytes go."""
        while self._left > 0:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                if self._left == 0 or not self._take(1.0):
                    return
        self._tls.write(plaintext)
        self._flush()

    def _take(self, seconds: float) -> bool:
        with contextlib.suppress(OSError):
            if select.select([self._socket], [], [], seconds)[0] and (data := self._socket.recv(1 << 16)):
                self._in.write(data)
                return True
        return False

    def close(self) -> None:
        self._socket.close()


def spoken(scene: Scene) -> bytes:
    """What a client says first."""
    if scene.transport == "grpcs":
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    calls = [frame(CALL, encode([0.0]), method=number, call=number) for number in range(3)]
    framed = [len(one.head + one.payload).to_bytes(4, "little") + one.head + one.payload for one in calls]
    return hello() + b"".join(framed)


@TABLE.add(terminate=True)
def records_that_end_at_every_byte(scene: Scene) -> None:
    """The client hangs up there, or stays and says no more."""
    whole = Ciphertext(scene.url, 1 << 20, 1 << 20)
    whole.run(spoken(scene))
    whole.close()
    length = whole.sent
    assert length > 500
    for most in range(1, length, scene.amount(23, 1)):
        one = Ciphertext(scene.url, most, 1 << 20)
        one.run(spoken(scene))
        if most % 2:
            one.close()
        else:
            scene.opened.append(one)
        if len(scene.opened) > 50:
            scene.opened.pop(0).close()


@TABLE.add()
def records_a_byte_at_a_time(scene: Scene) -> None:
    for piece in (1, 2, 7):
        one = Ciphertext(scene.url, 1 << 20, piece)
        scene.opened.append(one)
        one.run(spoken(scene))


@TABLE.add()
def records_with_a_wrong_byte(scene: Scene) -> None:
    """Each is one that the other side cannot decrypt."""
    for number in range(scene.amount(10, 200)):
        one = Ciphertext(scene.url, 1 << 20, 1 << 20)
        scene.opened.append(one)
        one.run(b"")
        noise = b"\x17\x03\x03\x00\x40" + os.urandom(64) if number % 2 else os.urandom(200)
        with contextlib.suppress(OSError):
            one._socket.send(noise)


@every(TABLE)
def test_cut_records_cost_their_connection(
    attack: Attack, transport: str, attempt: Callable[[Attack, str], None]
) -> None:
    attempt(attack, transport)


class Cutter:
    """Stands between a client and a server, and hangs up after so many bytes of the server's, or passes the rest
    on one by one.
    """

    def __init__(self, url: str) -> None:
        self._there = address(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{url.partition('://')[0]}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.most = 0
        self.drips = False
        self.passed = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.socket(self._there[0]) as server:
                server.connect(self._there[1])
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(OSError):
                    self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        self.passed = 0
        while True:
            for ready in select.select([client, server], [], [], PATIENCE)[0]:
                data = ready.recv(1 << 16)
                if not data:
                    return
                if ready is client:
                    server.sendall(data)
                    continue
                within, beyond = data[: max(0, self.most - self.passed)], data[max(0, self.most - self.passed) :]
                self.passed += len(data)
                client.sendall(within)
                if beyond and not self.drips:
                    return
                for byte in beyond:
                    client.send(bytes([byte]))

    def __enter__(self) -> Cutter:
        return self

    def __exit__(self, *_exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def cutter(servers: Callable[[str, dict[str, Any]], Server]) -> Iterator[Cutter]:
    with Cutter(servers("tls", {}).url) as made:
        yield made


def call_once(url: str) -> str:
    """How a client fares that connects and calls."""
    try:
        with nearcall.connect(url, served_at(url), timeout=5, handshake_timeout=5) as target:
            return "well" if target.echo(b"x" * 100) == b"x" * 100 else "a wrong answer"
    except nearcall.RpcError as error:
        return type(error).__name__


# The server's signature is some bytes longer in one handshake than in another (ECDSA, RFC 3279, 2.2.3).
LENGTHS = 8


def test_a_client_whose_server_is_cut_off_at_every_byte(cutter: Cutter) -> None:
    cutter.most = 1 << 40
    with nearcall.connect(cutter.url, served_at(cutter.url)) as target:
        assert target.echo(b"x" * 100) == b"x" * 100
        # Without the goodbye, which the client does not need.
        whole = cutter.passed
    outcomes = set[str]()
    for most in range(0, whole - LENGTHS, 1 if SECONDS else 97):
        cutter.most = most
        outcomes.add(call_once(cutter.url))
    assert outcomes <= {"Unavailable", "FailedPrecondition", "Internal"}, outcomes
    cutter.most = 1 << 40
    assert call_once(cutter.url) == "well"


def test_a_client_whose_server_drips(cutter: Cutter) -> None:
    cutter.drips = True
    assert call_once(cutter.url) == "well"
