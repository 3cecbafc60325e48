"""A gRPC client that connects and says nothing is told why it is turned away, in frames that HTTP/2 allows: a server's
first frame is SETTINGS (RFC 9113, section 3.4), and clients such as Node's read nothing of what begins otherwise.
"""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

import pytest

import nearcall

from .h2_raw import GOAWAY, PREFACE, SETTINGS

PATIENCE = 20.0
PROTOCOL_ERROR = 1


@nearcall.service
class Shop:
    def price(self) -> int:
        return 1


def all_of(connection: socket.socket) -> bytes:
    got = b""
    while some := connection.recv(1 << 16):
        got += some
    return got


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each."""
    found = []
    while data:
        length = int.from_bytes(data[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", data[3:9])
        found.append((kind, flags, stream, data[9 : 9 + length]))
        data = data[9 + length :]
    return found


@pytest.mark.parametrize("sent", [b"", PREFACE[:10]])
@pytest.mark.parametrize("scheme", ["grpc", "grpcs", "grpc+unix"])
def test_settings_come_before_the_goodbye(
    scheme: str, sent: bytes, key: str, runtime_dir: Path, certificates: Path
) -> None:
    place = f"{runtime_dir}/late-{key}" if scheme == "grpc+unix" else "127.0.0.1:0"
    with nearcall.Server(Shop(), f"{scheme}://{place}", handshake_timeout=0.2) as server:
        place = server.urls[0].partition("://")[2]
        if scheme == "grpc+unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(place)
        else:
            connection = socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2])))
        connection.settimeout(PATIENCE)
        if scheme == "grpcs":
            context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
            context.set_alpn_protocols(["h2"])
            connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
        with connection:
            connection.sendall(sent)
            settings, goodbye = frames(all_of(connection))
    assert settings == (SETTINGS, 0, 0, b"")
    assert goodbye == (GOAWAY, 0, 0, struct.pack(">II", 0, PROTOCOL_ERROR) + b"the handshake took too long")
