"""Clients of HTTP/1.1 that are hostile or unlucky: the server keeps its limits, and serves the others."""

from __future__ import annotations

import base64
import contextlib
import gzip
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .connect_peer import PATIENCE, Peer, envelope
from .process import ServerProcess

MIB = 1 << 20
MEMORY = 130 * MIB
LONG = 60 * MIB
PATH = "/test.Raw/echo"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    options = {"max_memory": MEMORY, "handshake_timeout": 1.0}
    with ServerProcess("http://127.0.0.1:0", services="tests.e2e.grpc_services:raw", **options) as server:
        yield server


@pytest.fixture(autouse=True)
def honest(server: ServerProcess) -> Iterator[None]:
    """After each attack the server answers others, and has no more memory than it may."""
    (Path("/proc") / str(server.pid) / "clear_refs").write_text("5")
    before = peak(server)
    yield
    with Peer(server.url, "connect") as peer:
        assert peer.call(PATH, b"still here").only == b"still here"
    # What is decoded and answered just now comes on top of what is kept.
    assert peak(server) - before < 3 * MEMORY


def peak(server: ServerProcess) -> int:
    """The most memory that it has had since that was forgotten, bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@contextlib.contextmanager
def connected(server: ServerProcess) -> Iterator[socket.socket]:
    host, _, port = server.url.partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        yield connection


def rest(connection: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            answer += more
    return answer


def head(*fields: str, path: str = PATH, kind: str = "application/proto") -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Type: {kind}", *fields, "", ""]).encode()


SMUGGLED = head("Content-Length: 8") + b"smuggled"

SHAPES = {
    "two lengths": head("Content-Length: 1", "Content-Length: 1") + b"x",
    "a list of lengths": head("Content-Length: 1, 1") + b"x",
    "a signed length": head("Content-Length: +1") + b"x",
    "a length in hexadecimal": head("Content-Length: 0x1") + b"x",
    "length and chunks": head("Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks and length": head("Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n",
    "another encoding": head("Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "two encodings": head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "chunks twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: identity") + b"0\r\n\r\n",
    "space before the colon": head("Content-Length : 1") + b"x",
    "a folded line": head("X: a", " Content-Length: 1", "Content-Length: 0"),
    "bare line feeds": head("Content-Length: 1").replace(b"\r\n", b"\n") + b"x",
    "one bare line feed": head("X: a\nContent-Length: 1") + b"x",
    "a bare carriage return": head("X: a\rContent-Length: 1") + b"x",
    "a zero byte": head("X: a\0") + b"x",
    "two hosts": head("Host: y"),
    "no host": head().replace(b"Host: x\r\n", b""),
    "a target with a space": head(path="/a b"),
    "a tunnel": b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    "the version of another protocol": b"POST / HTTP/9.9\r\nHost: x\r\n\r\n",
    "a chunk of no length": head("Transfer-Encoding: chunked") + b"\r\nx\r\n0\r\n\r\n",
    "a chunk that is longer": head("Transfer-Encoding: chunked") + b"1\r\nxy\r\n0\r\n\r\n",
    "a chunk with a sign": head("Transfer-Encoding: chunked") + b"+1\r\nx\r\n0\r\n\r\n",
    "a chunk with space": head("Transfer-Encoding: chunked") + b"1 \r\nx\r\n0\r\n\r\n",
    "a chunk and a line feed": head("Transfer-Encoding: chunked") + b"1\nx\n0\n\n",
    "a chunk of many digits": head("Transfer-Encoding: chunked") + b"000000001\r\nx\r\n0\r\n\r\n",
    "a folded trailer": head("Transfer-Encoding: chunked") + b"0\r\nA: b\r\n c\r\n\r\n",
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_could_hide_a_request_is_refused_and_nothing_after_it_is_served(server: ServerProcess, name: str) -> None:
    with connected(server) as connection:
        connection.sendall(SHAPES[name] + SMUGGLED)
        answer = rest(connection)
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 501, 505), answer
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert b"smuggled" not in answer
    assert b"connection: close" in answer


def test_a_first_head_that_comes_slowly_is_not_waited_for(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 1")[:20])
        assert rest(connection).startswith(b"HTTP/1.1 400 ")


def test_headers_without_end_are_refused(server: ServerProcess) -> None:
    for part, status in ((b"GET /" + b"x" * 100_000, b"414"), (head("X: y")[:-2] + b"a: b\r\n" * 20_000, b"431")):
        with connected(server) as connection:
            connection.sendall(part)
            assert rest(connection).split(b" ", 2)[1] == status


def test_many_connections_that_say_nothing_more_cost_little(server: ServerProcess) -> None:
    before = peak(server)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(connected(server))
            connection.sendall(head("Content-Length: 1") + b"x" + head("Content-Length: 1000000"))
            assert b"200" in connection.recv(1000)
        with Peer(server.url, "connect") as peer:
            assert peer.call(PATH, b"meanwhile").only == b"meanwhile"
        assert peak(server) - before < 32 * MIB


def test_halves_of_messages_of_several_clients_do_not_shut_others_out(server: ServerProcess) -> None:
    """Each is within the limit, all together are not: who finds no room is refused or waits."""
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            connection = stack.enter_context(connected(server))
            connection.settimeout(1.0)
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection.sendall(head(f"Content-Length: {LONG}") + bytes(LONG - 1))
        with Peer(server.url, "connect") as peer:
            assert peer.call(PATH, b"meanwhile").only == b"meanwhile"


def test_answers_that_nobody_reads_stop_the_requests(server: ServerProcess) -> None:
    for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", head("Content-Length: 1") + b"x"):
        with connected(server) as connection:
            connection.settimeout(1.0)
            with contextlib.suppress(TimeoutError):
                for _ in range(2000):
                    connection.sendall(request * 1000)
                pytest.fail("the server reads on and on")
            with Peer(server.url, "connect") as peer:
                assert peer.call(PATH, b"meanwhile").only == b"meanwhile"


def test_a_stream_that_nobody_reads_waits(server: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(connected(server))
            body = envelope(b"1000000")
            path, kind = "/test.Raw/blocks", "application/connect+proto"
            connection.sendall(head(f"Content-Length: {len(body)}", path=path, kind=kind) + body)
        with Peer(server.url, "connect") as peer:
            assert peer.call(PATH, b"meanwhile").only == b"meanwhile"


def test_a_bomb_does_not_go_off(server: ServerProcess) -> None:
    bomb = gzip.compress(bytes(400 * MIB), 9)
    with Peer(server.url, "connect") as peer:
        result = peer.call("/test.Raw/length", bomb, headers=[("content-encoding", "gzip")])
        assert result.code == "resource_exhausted"


def test_bombs_in_queries_do_not_go_off_together(server: ServerProcess) -> None:
    """Each would be within the limit of a message."""
    bomb = base64.urlsafe_b64encode(gzip.compress(bytes(30 * MIB), 9)).decode()
    target = f"/test.Raw/echo?encoding=proto&compression=gzip&base64=1&message={bomb}"
    assert len(target) < 60_000
    request = f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(server)).sendall(request)
        with Peer(server.url, "connect") as peer:
            assert peer.call(PATH, b"meanwhile").only == b"meanwhile"


def test_a_client_that_goes_on_after_its_answer_is_cut_off(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 1", "Content-Length: 1"))
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(1000 * MIB))
