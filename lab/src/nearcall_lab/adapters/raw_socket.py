"""Plain stream sockets, the least a Python program can do: four bytes of length, then the message."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from nearcall_lab.contract import Mechanism, Operation, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_POLL_NS = 100_000
"""How long a polling row looks before it sleeps: the longest that nearcall looks by default, too."""
_TYPED = "msgspec msgpack"
_OPERATIONS: tuple[Operation, ...] = ("echo", "quote", "wait", "send")
MECHANISMS = (
    Mechanism(
        "raw-unix",
        "raw socket, UDS",
        "socket",
        "unix",
        settings="blocking, one connection per method",
        typed=_TYPED,
        transport="UDS",
        operations=_OPERATIONS,
    ),
    Mechanism(
        "raw-unix-polling",
        "raw socket, UDS, polling",
        "socket",
        "unix-polling",
        settings=f"looks for up to {_POLL_NS // 1000} µs before it sleeps, on both sides; one connection per method",
        typed=_TYPED,
        transport="UDS",
        operations=_OPERATIONS,
        tuned=True,
        why="To poll instead of sleeping is the kernel's own advice for low latency (busy polling), which Unix sockets "
        "leave to the program; it shows how much of a raw socket's time is the transport, and how much waking up.",
    ),
    Mechanism(
        "raw-tcp",
        "raw socket, TCP",
        "socket",
        "tcp",
        settings="blocking, TCP_NODELAY, one connection per method",
        typed=_TYPED,
        transport="TCP",
        operations=_OPERATIONS,
    ),
)

_HEADER = struct.Struct("<I")
_JOIN_BELOW = 16_384
"""Bytes. Shorter messages are joined with their header into one send; longer ones would pay for the copy."""


def _receive(sock: socket.socket) -> bytes | bytearray:
    """One message. A short one costs one system call: with one call outstanding nothing else can be behind it."""
    return _rest(sock, sock.recv(_JOIN_BELOW))


def _receive_polling(sock: socket.socket) -> bytes | bytearray:
    """The same without sleeping, for a while."""
    until = time.monotonic_ns() + _POLL_NS
    while time.monotonic_ns() < until:
        with contextlib.suppress(BlockingIOError):
            return _rest(sock, sock.recv(_JOIN_BELOW, socket.MSG_DONTWAIT))
    return _receive(sock)


_Receive = Callable[[socket.socket], bytes | bytearray]


def _receiver(spec: Spec) -> _Receive:
    return _receive_polling if spec.mechanism.variant.endswith("polling") else _receive


def _rest(sock: socket.socket, first: bytes) -> bytes | bytearray:
    while len(first) < 4:
        more = sock.recv(4 - len(first)) if first else b""
        if not more:
            raise ConnectionResetError("peer closed")
        first += more
    size = _HEADER.unpack_from(first)[0]
    if len(first) == size + 4:
        return first[4:]
    whole = bytearray(size)
    whole[: len(first) - 4] = first[4:]
    view = memoryview(whole)[len(first) - 4 :]
    while view:
        got = sock.recv_into(view)
        if not got:
            raise ConnectionResetError("peer closed")
        view = view[got:]
    return whole


def _send(sock: socket.socket, data: bytes | bytearray) -> None:
    header = _HEADER.pack(len(data))
    if len(data) < _JOIN_BELOW:
        sock.sendall(header + data)
        return
    sent = sock.sendmsg((header, data))
    if sent < len(data) + 4:
        sock.sendall(memoryview(data)[sent - 4 :])


def _receive_many(sock: socket.socket) -> Iterator[bytes]:
    """Messages that come without being answered, so that several may arrive at once."""
    stream = sock.makefile("rb", buffering=1 << 18)
    while header := stream.read(4):
        yield stream.read(_HEADER.unpack(header)[0])


def _handle(sock: socket.socket, spec: Spec) -> None:
    """Serve one connection; its first message names the method all others call."""
    count_call, receive = spec.served.count, _receiver(spec)
    decode_wait = msgspec.msgpack.Decoder(float).decode
    decode = msgspec.msgpack.Decoder(Order).decode
    encode = msgspec.msgpack.Encoder().encode
    with sock:
        try:
            method = receive(sock)
            _send(sock, b"")
            if method == b"send":
                for data in _receive_many(sock):
                    spec.receive(data)
                return
            while method == b"wait":
                seconds = decode_wait(receive(sock))
                count_call()
                time.sleep(seconds)
                _send(sock, encode(named(seconds)))
            typed = method == b"quote"
            while True:
                request = receive(sock)
                count_call()
                _send(sock, encode(fill(decode(request))) if typed else request)
        except ConnectionResetError:
            return


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    if spec.mechanism.transport == "UDS":
        listener = socket.socket(socket.AF_UNIX)
        address = os.path.join(spec.directory, "raw.sock")
        listener.bind(address)
    else:
        listener = socket.socket(socket.AF_INET)
        listener.bind((spec.host, 0))
        address = str(listener.getsockname()[1])
    listener.listen()
    stop.on(lambda: listener.shutdown(socket.SHUT_RDWR))
    ready(address)
    while not stop.is_set():
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_handle, args=(sock, spec), daemon=True).start()


def _open(spec: Spec, method: Operation) -> socket.socket:
    if spec.mechanism.transport == "UDS":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(spec.address)
    else:
        sock = socket.create_connection((spec.host, int(spec.address)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _send(sock, method.encode())
    _receive(sock)
    return sock


class _Session(SimpleSession):
    """A connection for each method that is used; the first is that of ``echo``."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._open: dict[Operation, socket.socket] = {}
        super().__init__({}, self._close_all, lambda: self._of("echo"))

    def _of(self, method: Operation) -> socket.socket:
        if method not in self._open:
            self._open[method] = _open(self._spec, method)
        return self._open[method]

    def _close_all(self) -> None:
        for sock in self._open.values():
            sock.close()

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        sock, receive = self._of(operation), _receiver(self._spec)
        if operation == "send":
            return lambda data: _send(sock, data)
        if operation == "echo":

            def echo(data: bytes) -> Any:
                _send(sock, data)
                return receive(sock)

            return echo
        decode = msgspec.msgpack.Decoder(Fill if operation == "quote" else Named).decode
        encode = msgspec.msgpack.Encoder().encode

        def ask(value: Any) -> Any:
            _send(sock, encode(value))
            return decode(receive(sock))

        return ask


def connect(spec: Spec) -> SimpleSession:
    return _Session(spec)
