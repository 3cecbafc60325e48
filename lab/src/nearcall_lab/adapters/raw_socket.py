"""Plain stream sockets, the least a Python program can do: four bytes of length, then the message."""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import Any

import msgspec

from nearcall_lab.contract import Mechanism, Operation, Ready, Served, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

_TYPED = "msgspec msgpack"
MECHANISMS = (
    Mechanism(
        "raw-unix", "raw socket, UDS", "socket", "unix", settings="blocking, one connection per method", typed=_TYPED
    ),
    Mechanism(
        "raw-tcp",
        "raw socket, TCP",
        "socket",
        "tcp",
        settings="blocking, TCP_NODELAY, one connection per method",
        typed=_TYPED,
    ),
)

_HEADER = struct.Struct("<I")
_JOIN_BELOW = 16_384
"""Bytes. Shorter messages are joined with their header into one send; longer ones would pay for the copy."""


def _receive(sock: socket.socket) -> bytes | bytearray:
    """One message. A short one costs one system call: with one call outstanding nothing else can be behind it."""
    first = sock.recv(_JOIN_BELOW)
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


def _handle(sock: socket.socket, served: Served) -> None:
    """Serve one connection; its first message names the method all others call."""
    decode = msgspec.msgpack.Decoder(Order).decode
    encode = msgspec.msgpack.Encoder().encode
    with sock:
        try:
            typed = _receive(sock) == b"quote"
            _send(sock, b"")
            while True:
                data = _receive(sock)
                served.calls += 1
                _send(sock, encode(fill(decode(data))) if typed else data)
        except ConnectionResetError:
            return


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    if spec.mechanism.variant == "unix":
        listener = socket.socket(socket.AF_UNIX)
        address = os.path.join(spec.directory, "raw.sock")
        listener.bind(address)
    else:
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", 0))
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
        threading.Thread(target=_handle, args=(sock, spec.served), daemon=True).start()


def _open(spec: Spec, method: Operation) -> socket.socket:
    if spec.mechanism.variant == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(spec.address)
    else:
        sock = socket.create_connection(("127.0.0.1", int(spec.address)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _send(sock, method.encode())
    _receive(sock)
    return sock


def connect(spec: Spec) -> SimpleSession:
    echo_socket, quote_socket = _open(spec, "echo"), _open(spec, "quote")
    decode = msgspec.msgpack.Decoder(Fill).decode
    encode = msgspec.msgpack.Encoder().encode

    def echo(data: bytes) -> Any:
        _send(echo_socket, data)
        return _receive(echo_socket)

    def quote(order: Order) -> Fill:
        _send(quote_socket, encode(order))
        return decode(_receive(quote_socket))

    def close() -> None:
        echo_socket.close()
        quote_socket.close()

    return SimpleSession({"echo": echo, "quote": quote}, close)
