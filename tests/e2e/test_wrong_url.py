"""URLs whose server speaks something else: the client is told which URL to use."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import nearcall

from .process import ServerProcess
from .test_grpc import Shop

PAIRS = [("tcp", "grpc"), ("tls", "grpcs"), ("unix", "grpc+unix")]


@pytest.fixture(scope="module")
def server(runtime_dir: Path, certificates: Path) -> Iterator[ServerProcess]:
    places = {"unix": f"{runtime_dir}/wrong", "grpc+unix": f"{runtime_dir}/wrong.grpc"}
    urls = [f"{scheme}://{places.get(scheme, '127.0.0.1:0')}" for pair in PAIRS for scheme in pair]
    with ServerProcess(*urls, services="tests.e2e.test_grpc:shop") as server:
        yield server


def url_of(server: ServerProcess, scheme: str) -> str:
    return next(url for url in server.urls if url.startswith(f"{scheme}://"))


def said_to(url: str) -> str:
    with pytest.raises(nearcall.RpcError) as caught:
        nearcall.connect(url, Shop, handshake_timeout=20)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(("own", "grpcs"), PAIRS)
def test_the_two_protocols_of_nearcall_are_told_apart(server: ServerProcess, own: str, grpcs: str) -> None:
    place = url_of(server, own).partition("://")[2]
    said = said_to(f"{grpcs}://{place}")
    assert "nearcall's own protocol is spoken there, and neither gRPC nor HTTP" in said
    assert f"connect with {own}://" in said
    place = url_of(server, grpcs).partition("://")[2]
    said = said_to(f"{own}://{place}")
    assert "gRPC is spoken there" in said
    assert f"connect with {grpcs}://" in said
    # Who asked wrongly harms nobody.
    with nearcall.connect(url_of(server, own), Shop) as shop:
        assert shop.price("pen") == 2.5


@pytest.mark.parametrize(("plain", "encrypted"), [("tcp", "tls"), ("grpc", "grpcs")])
def test_encryption_and_none_are_told_apart(server: ServerProcess, plain: str, encrypted: str) -> None:
    place = url_of(server, encrypted).partition("://")[2]
    assert f"connect with {encrypted}://" in said_to(f"{plain}://{place}")
    place = url_of(server, plain).partition("://")[2]
    said = said_to(f"{encrypted}://{place}")
    assert "does not encrypt" in said or "does not speak TLS; connect without the 's'" in said


def test_a_client_of_http_at_a_server_of_grpc_only(server: ServerProcess) -> None:
    place = url_of(server, "grpc").partition("://")[2]
    with nearcall.connect(f"http://{place}", Shop) as shop, pytest.raises(nearcall.RpcError) as caught:
        shop.price("pen")
    assert "only gRPC is spoken here: connect with grpc://, or serve http:// there" in caught.value.message


@pytest.mark.parametrize("scheme", ["tcp", "tls", "grpcs", "unix"])
def test_clients_of_grpcs_own_are_sent_away_at_once(server: ServerProcess, scheme: str) -> None:
    """Rather than to try again and again until their deadline."""
    place = url_of(server, scheme).partition("://")[2]
    target = f"unix:{place}" if scheme == "unix" else place
    with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/Shop/Price")(b"", timeout=20)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("scheme", "status", "words"),
    [
        ("grpc", 505, "gRPC is spoken here, which needs HTTP/2, .* serve http://"),
        ("grpc+unix", 505, r"gRPC is spoken here, .* serve http\+unix://"),
        ("tcp", 400, "nearcall's own protocol is spoken here, and not HTTP; .* serve http://"),
        ("unix", 400, r"nearcall's own protocol is spoken here, .* serve http\+unix://"),
        ("tls", 400, "this port is encrypted; connect with tls://"),
        ("grpcs", 400, "this port is encrypted; connect with grpcs://"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_curl_and_browsers_are_told_what_is_spoken(
    server: ServerProcess, scheme: str, status: int, words: str, method: str
) -> None:
    place = url_of(server, scheme).partition("://")[2]
    if "unix" in scheme:
        client = socket.socket(socket.AF_UNIX)
        client.connect(place)
    else:
        host, _, port = place.rpartition(":")
        client = socket.create_connection((host, int(port)))
    with client:
        client.settimeout(20)
        client.sendall(f"{method} /Shop/Price HTTP/1.1\r\nhost: example.org\r\n\r\n".encode())
        response = http.client.HTTPResponse(client, method=method)
        response.begin()
        assert response.status == status
        assert response.headers["content-type"] == "text/plain"
        assert re.search(words, response.read().decode())
        assert client.recv(1) == b"", "the connection is over"


def test_a_request_that_comes_byte_by_byte_is_answered_too(server: ServerProcess) -> None:
    host, _, port = url_of(server, "grpc").partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.settimeout(20)
        client.sendall(b"P")
        assert not select.select([client], [], [], 0.05)[0], "it may be the preface of HTTP/2"
        client.sendall(b"U")
        assert client.recv(12) == b"HTTP/1.1 505"


def test_a_grpc_server_met_by_another_protocol_is_named() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        assert f"connect with grpc://127.0.0.1:{port}" in said_to(f"tcp://127.0.0.1:{port}")
    finally:
        other.stop(0).wait()


@pytest.mark.parametrize(
    ("scheme", "answer", "words"),
    [
        ("grpc", b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP/1, and gRPC needs HTTP/2"),
        ("grpc", b"<!DOCTYPE HTML>", "does not speak HTTP/2, which gRPC needs"),
        # The settings and the goodbye come in one piece, as of a server that is about to end.
        ("grpc", b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x0c\7\0\0\0\0\0" + bytes(8) + b"soon", "takes no more calls: soon"),
        ("grpc", b"\0\0\x0c\7\0\0\0\0\0" + bytes(7) + b"\x0balso", "refused: also"),
        ("grpc", b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x0b\7\0\0\0\0\0" + bytes(7) + b"\x0bso!", "refused: so!"),
        # Words that a terminal would obey.
        ("grpc", b"\0\0\x0e\7\0\0\0\0\0" + bytes(7) + b"\x0b\x1b[2J\nX", "refused: \\u{1b}[2J\\nX"),
        ("grpc", b"\x15\3\1\0\2\2\x46", "connect with grpcs://"),
        ("tcp", b"\0\0\0\4\0\0\0\0\0", "connect with grpc://"),
        ("tcp", b"\x15\3\1\0\2\2\x46", "connect with tls://"),
    ],
)
def test_what_other_servers_speak_is_named(scheme: str, answer: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):  # until the test ends
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(ConnectionError):
                        connection.sendall(answer)
                        while connection.recv(4096):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert words in said_to(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes it
            thread.join(20)


def test_a_server_of_http_0_9_is_asked_by_http_1() -> None:
    """As Python's own answers HTTP/2's preface: with a page and no head."""
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{other.server_port}"
            with nearcall.connect(url, Shop) as shop, pytest.raises(nearcall.RpcError) as caught:
                shop.price("pen")
            assert "501" in caught.value.message, caught.value
        finally:
            other.shutdown()


@pytest.mark.parametrize("path", ["/", "/api/v1"])
def test_a_url_has_no_path(path: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=rf"without '{path}': write http://\[::1\]:7000"):
        nearcall.connect(f"http://[::1]:7000{path}", Shop)
