"""Our server as browsers and programs of Connect and gRPC-Web see it, over HTTP/1.1: bytes without Protobuf or JSON."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nearcall
from nearcall.introspection import Introspection

from .connect_peer import PATIENCE, PROTOCOLS, Connection, Peer, Result, envelope
from .grpc_services import Raw
from .h2_raw import DATA, END_STREAM, HEADERS, RawClient, data, headers, request, reset
from .process import ServerProcess

STREAMING = PROTOCOLS[1:]
GRPC_WEB = PROTOCOLS[2:]
LIMIT = 8 << 20


@pytest.fixture(scope="module")
def server(runtime_dir: Path) -> Iterator[ServerProcess]:
    urls = ("http://127.0.0.1:0", f"http+unix://{runtime_dir}/raw.http", f"unix://{runtime_dir}/raw-of-http.unix")
    options = {"max_message_size": LIMIT, "allow_origins": ["https://page.example"]}
    with ServerProcess(*urls, services="tests.e2e.grpc_services:raw", **options) as server:
        yield server


@pytest.fixture(params=PROTOCOLS)
def peer(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Peer]:
    with Peer(server.urls[0], request.param) as peer:
        yield peer


@pytest.fixture(params=[*GRPC_WEB, "connect"])
def unary(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Peer]:
    """One that calls methods without streams."""
    with Peer(server.urls[0], request.param) as peer:
        yield peer


@pytest.fixture(params=STREAMING)
def streaming(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Peer]:
    """One that calls methods with streams."""
    with Peer(server.urls[0], request.param) as peer:
        yield peer


@pytest.fixture
def control(server: ServerProcess) -> Iterator[Raw]:
    """The same object by a transport of our own."""
    with nearcall.connect(server.urls[2], Raw) as control:
        yield control


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def path(name: str) -> str:
    return f"/test.Raw/{name}"


def raw(server: ServerProcess, *parts: bytes) -> bytes:
    """What comes of bytes, until the server ends the connection."""
    host, _, port = server.urls[0].partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
        return answer


@pytest.mark.parametrize("name", ["echo", "echo_in_loop"])
@pytest.mark.parametrize("length", [0, 1, 60, 5000, 70_000, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_messages_of_any_length(unary: Peer, name: str, length: int, chunked: bool) -> None:
    message = (bytes(range(256)) * (length // 256 + 1))[:length]
    for _ in range(2):  # on one connection
        assert unary.call(path(name), message, chunked=chunked).only == message


@pytest.mark.parametrize("name", ["count", "count_in_loop"])
def test_streams_of_the_server(streaming: Peer, name: str) -> None:
    for length in (0, 1, 1000):
        result = streaming.call(path(name), str(length).encode())
        assert (result.code, result.messages) == ("ok", [str(number).encode() for number in range(length)])


@pytest.mark.parametrize("name", ["total", "total_in_loop"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_streams_of_the_client(streaming: Peer, name: str, chunked: bool) -> None:
    for blocks in ([], [b"one"], [b"x" * 10_000] * 500):
        result = streaming.call(path(name), blocks, chunked=chunked)
        assert result.only == str(sum(map(len, blocks))).encode()


@pytest.mark.parametrize("name", ["both", "both_in_loop"])
def test_streams_both_ways(streaming: Peer, name: str) -> None:
    blocks = [str(number).encode() * 100 for number in range(500)]
    assert streaming.call(path(name), blocks).messages == [block[::-1] for block in blocks]


def test_a_stream_comes_message_by_message(streaming: Peer, control: Raw) -> None:
    if streaming.protocol == "grpc-web-text":
        pytest.skip("this peer reads text as a whole")
    response = streaming.begin(path("blocks"), [b"1000000"])
    assert next(streaming.envelopes(response)) == (0, bytes(64 << 10))
    closed = control.log(b"").count(b"closed")
    response.close()
    streaming.close()  # which is how such a call is cancelled
    until(lambda: control.log(b"").count(b"closed") > closed)


def test_a_stream_longer_than_any_window(streaming: Peer) -> None:
    assert sum(map(len, streaming.call(path("blocks"), b"200").messages)) == 200 * (64 << 10)


def test_failures_have_their_status(unary: Peer) -> None:
    result = unary.call(path("fail"), 'Käse is "out"'.encode())
    assert (result.code, result.message) == ("not_found", 'Käse is "out"')
    assert result.status == (404 if unary.protocol == "connect" else 200)
    assert unary.call(path("crash"), b"").code == "unknown"
    # The next call on the connection is not disturbed.
    assert unary.call(path("echo"), b"still here").only == b"still here"


def test_a_stream_that_fails_keeps_what_came_before(streaming: Peer) -> None:
    result = streaming.call(path("fail_after"), b"first")
    assert (result.code, result.message, result.messages) == ("aborted", "enough", [b"first"])


def test_unknown_methods_are_named(peer: Peer) -> None:
    result = peer.call(path("nothing"), b"")
    assert result.code == "unimplemented"
    assert path("nothing") in result.message
    assert result.status == (404 if peer.protocol == "connect" else 200)


def test_metadata_goes_both_ways(unary: Peer) -> None:
    sent = [("x-word", "hello"), ("x-word", "again"), ("X-Bytes-Bin", base64.b64encode(b"\x00\xff").decode())]
    result = unary.call(path("metadata"), b"", headers=sent)
    pairs = [("x-word", "hello"), ("x-word", "again"), ("x-bytes-bin", b"\x00\xff")]
    assert result.only == repr(pairs).encode()
    assert [pair for pair in result.head if pair[0].startswith("x-")] == [*sent[:2], ("x-bytes-bin", "AP8")]
    back = [("x-word-back", "hello"), ("x-word-back", "again"), ("x-bytes-back-bin", "AP8")]
    assert [pair for pair in result.trailers if pair[0].startswith("x-")] == back


def test_metadata_that_http_cannot_carry_fails_its_call_only(unary: Peer) -> None:
    assert unary.call(path("unfit"), b"").code not in ("ok", "unavailable")
    assert unary.call(path("echo"), b"x").only == b"x"


def test_deadlines_reach_the_handler_and_end_the_call(unary: Peer) -> None:
    assert unary.call(path("left"), b"").only == b"None"
    assert 0 < float(unary.call(path("left"), b"", timeout_ms=20_000).only) <= 20
    result = unary.call(path("echo"), b"", timeout_ms=0)
    assert result.code == "deadline_exceeded"
    assert result.status == (504 if unary.protocol == "connect" else 200)
    wrong = ("connect-timeout-ms", "soon") if unary.protocol == "connect" else ("grpc-timeout", "soon")
    assert unary.call(path("echo"), b"", headers=[wrong]).code == "invalid_argument"


def test_deadlines_end_streams(streaming: Peer) -> None:
    if streaming.protocol == "grpc-web-text":
        pytest.skip("this peer reads text slowly")
    assert streaming.call(path("blocks"), b"1000000", timeout_ms=300).code == "deadline_exceeded"


@pytest.mark.parametrize("what", ["return", "raise"])
@pytest.mark.parametrize("place", ["", "_in_loop"])
def test_a_handler_that_ends_after_the_deadline_was_late(unary: Peer, place: str, what: str) -> None:
    assert unary.call(path(f"late{place}"), what.encode(), timeout_ms=50).code == "deadline_exceeded"


@pytest.mark.parametrize("what", ["return", "raise", "item"])
@pytest.mark.parametrize("place", ["", "_in_loop"])
def test_a_stream_that_ends_after_the_deadline_was_late(streaming: Peer, place: str, what: str) -> None:
    result = streaming.call(path(f"late_items{place}"), what.encode(), timeout_ms=50)
    assert (result.code, result.messages) == ("deadline_exceeded", [b"first"])


def test_who_hangs_up_cancels(unary: Peer, control: Raw) -> None:
    control.shut(b"")
    begun, cancelled = (control.log(b"").count(word) for word in (b"held", b"cancelled"))
    response: list[object] = []

    def call() -> None:
        try:
            response.append(unary.begin(path("hold"), [b""]))
        except OSError as error:
            response.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    until(lambda: control.log(b"").count(b"held") > begun)
    unary.connection.sock.shutdown(socket.SHUT_RDWR)
    until(lambda: control.log(b"").count(b"cancelled") > cancelled)
    caller.join()


def test_a_client_that_sends_more_than_is_taken_waits(streaming: Peer, control: Raw) -> None:
    """Short messages cost the core more than their bytes; long ones fill what may wait."""
    for block, count in ((b"", 35_000), (b"x" * 100_000, 60)):
        control.shut(b"")
        results: list[Result] = []

        def call(block: bytes = block, count: int = count, results: list[Result] = results) -> None:
            results.append(streaming.call(path("slow_total"), [block] * count, chunked=True))

        caller = threading.Thread(target=call)
        caller.start()
        assert control.echo(b"meanwhile") == b"meanwhile"
        control.open(b"")
        caller.join()
        assert results[0].only == str(len(block) * count).encode()


def test_a_message_over_the_limit_fails_its_call_only(unary: Peer) -> None:
    assert unary.call(path("length"), bytes(LIMIT)).only == str(LIMIT).encode()
    result = unary.call(path("length"), bytes(LIMIT + 1))
    assert result.code == "resource_exhausted", result.message
    assert unary.call(path("length"), b"12").only == b"2"


def test_compressed_messages_are_read(server: ServerProcess) -> None:
    packed = gzip.compress(b"x" * 100_000)
    with Peer(server.urls[0], "connect") as peer:
        assert peer.call(path("length"), packed, headers=[("content-encoding", "gzip")]).only == b"100000"
        too_long = gzip.compress(bytes(LIMIT + 1))
        assert peer.call(path("length"), too_long, headers=[("content-encoding", "gzip")]).code == "resource_exhausted"
        broken = peer.call(path("length"), packed[:-9], headers=[("content-encoding", "gzip")])
        assert broken.code == "internal"
        unknown = peer.call(path("length"), packed, headers=[("content-encoding", "br")])
        assert (unknown.code, unknown.status) == ("unimplemented", 501)
        assert "gzip" in dict(unknown.head)["accept-encoding"]
    for protocol, header in (("connect stream", "connect-content-encoding"), ("grpc-web", "grpc-encoding")):
        with Peer(server.urls[0], protocol) as peer:
            kind = f"application/{protocol.removesuffix(' stream')}+proto"
            name = "total" if protocol == "connect stream" else "length"
            peer.connection.request("POST", path(name), envelope(packed, 1), {"content-type": kind, header: "gzip"})
            assert peer.result(peer.connection.getresponse()).only == b"100000"


def test_calls_by_get(server: ServerProcess) -> None:
    connection = Connection(server.urls[0])

    def get(target: str) -> tuple[int, bytes]:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.read()

    assert get(f"{path('echo')}?connect=v1&encoding=json&message=%7B%22a%22%3A1%7D") == (200, b'{"a":1}')
    coded = base64.urlsafe_b64encode(b"\xfb\xff\x00").decode()
    assert get(f"{path('echo')}?encoding=proto&base64=1&message={coded}") == (200, b"\xfb\xff\x00")
    packed = base64.urlsafe_b64encode(gzip.compress(b"x" * 1000)).decode()
    assert get(f"{path('echo')}?encoding=proto&base64=1&compression=gzip&message={packed}") == (200, b"x" * 1000)
    status, words = get(f"{path('length')}?encoding=json&message=x")
    assert (status, b"POST" in words) == (405, True)
    assert get(path("echo"))[0] == 400
    assert get(f"{path('echo')}?encoding=yaml&message=x")[0] == 415
    assert get("/")[0] in (400, 404)
    connection.close()


def test_what_is_no_call_is_answered_in_words(server: ServerProcess) -> None:
    connection = Connection(server.urls[0])

    def answer(method: str, name: str, kind: str | None) -> tuple[int, str]:
        connection.request(method, path(name), b"x" * 1000, {} if kind is None else {"content-type": kind})
        response = connection.getresponse()
        return response.status, response.read().decode()

    assert answer("POST", "echo", None) == (200, "x" * 1000)
    assert answer("POST", "echo", "application/x-www-form-urlencoded") == (200, "x" * 1000)
    assert answer("POST", "echo", "application/json; charset=utf-8") == (200, "x" * 1000)
    for kind in ("text/plain", "application/xml", "application/connect+yaml", "multipart/form-data; boundary=x", "x"):
        status, words = answer("POST", "echo", kind)
        assert (status, "application/json" in words) == (415, True), kind
    assert answer("POST", "echo", "application/grpc")[0] == 505
    status, words = answer("POST", "count", "application/json")
    assert (status, "application/connect+json" in words) == (415, True)
    status, words = answer("POST", "echo", "application/connect+json")
    assert (status, "application/json" in words) == (415, True)
    for method in ("PUT", "DELETE", "HEAD", "OPTIONS"):
        assert answer(method, "echo", "application/json")[0] == 405, method
    connection.request(
        "POST", path("echo"), b"x", {"content-type": "application/proto", "connect-protocol-version": "2"}
    )
    assert connection.getresponse().status == 400
    connection.close()


def test_pages_may_call_if_they_are_named(server: ServerProcess) -> None:
    connection = Connection(server.urls[0])

    def ask(method: str, **headers: str) -> tuple[int, dict[str, str]]:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path("metadata"), b"" if method == "POST" else None, fields)
        response = connection.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}

    page, other = "https://page.example", "https://other.example"
    wanted = {"access_control_request_method": "POST", "access_control_request_headers": "content-type,x-word"}
    status, head = ask("OPTIONS", origin=page, **wanted)
    assert (status, head["access-control-allow-origin"]) == (204, page)
    assert head["access-control-allow-headers"] == "content-type,x-word"
    assert "POST" in head["access-control-allow-methods"]
    assert ask("OPTIONS", origin=other, **wanted)[0] == 403
    status, head = ask("POST", origin=page, content_type="application/proto", x_word="hello")
    assert (status, head["access-control-allow-origin"], head["vary"]) == (200, page, "origin")
    exposed = [name.strip() for name in head["access-control-expose-headers"].split(",")]
    assert {"x-word", "trailer-x-word-back"} <= set(exposed)
    for kind in ("application/proto", "application/grpc-web+proto", "application/connect+proto"):
        assert ask("POST", origin=other, content_type=kind)[0] == 403
        assert ask("POST", origin="null", content_type=kind)[0] == 403
    # What a page can send without being asked is not taken from one.
    assert ask("POST", origin=page, content_type="application/x-www-form-urlencoded")[0] == 415
    connection.close()


def test_no_page_may_call_unless_one_is_named(runtime_dir: Path) -> None:
    with ServerProcess("http://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        connection = Connection(server.urls[0])
        connection.request("POST", path("echo"), b"", {"origin": "http://x", "content-type": "application/proto"})
        response = connection.getresponse()
        assert (response.status, b"allow_origins" in response.read()) == (403, True)
        connection.close()


def test_requests_in_one_go_are_answered_in_order(server: ServerProcess) -> None:
    def post(name: str, body: bytes, more: str = "") -> bytes:
        head = f"POST {path(name)} HTTP/1.1\r\nhost: x\r\ncontent-type: application/proto\r\n{more}"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    requests = [post("nap", b"0.2"), *(post("echo", str(number).encode()) for number in range(500))]
    answer = raw(server, b"".join(requests), post("echo", b"last", "connection: close\r\n"))
    bodies = [part.split(b"\r\n\r\n", 1)[1] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert bodies == [b"0.2", *(str(number).encode() for number in range(500)), b"last"]


def test_a_body_is_asked_for(server: ServerProcess) -> None:
    host, _, port = server.urls[0].partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        head = f"POST {path('echo')} HTTP/1.1\r\nhost: x\r\ncontent-type: application/proto\r\n"
        connection.sendall(f"{head}expect: 100-continue\r\ncontent-length: 4\r\n\r\n".encode())
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert connection.recv(1000).endswith(b"\r\n\r\nbody")


def test_a_server_that_stops_finishes_what_has_begun() -> None:
    results: list[Result] = []
    with (
        ServerProcess("http://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server,
        Peer(server.urls[0], "connect") as idle,
        Peer(server.urls[0], "connect") as peer,
    ):
        assert idle.call(path("echo"), b"x").only == b"x"
        caller = threading.Thread(target=lambda: results.append(peer.call(path("nap"), b"0.5")))
        caller.start()
        assert idle.call(path("nap"), b"0.1").only == b"0.1"
        server.close()
        caller.join()
    assert results[0].only == b"0.5"
    assert ("connection", "close") in results[0].head


def test_statistics_count_these_calls_as_all_others(server: ServerProcess, unary: Peer) -> None:
    with nearcall.connect(server.urls[2], Introspection) as watcher:
        before = {method.method: method.started for method in watcher.read().methods}
        assert unary.call(path("echo"), b"x").only == b"x"
        after = {method.method: method.started for method in watcher.read().methods}
        assert after["Raw.echo"] == before.get("Raw.echo", 0) + 1


def test_calls_over_a_unix_socket(server: ServerProcess) -> None:
    with Peer(server.urls[1], "connect") as peer:
        assert peer.call(path("echo"), b"x").only == b"x"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_over_tls(protocol: str, certificates: Path) -> None:
    with ServerProcess("https://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        trust = ssl.create_default_context(cafile=certificates / "ca.pem")
        with Peer(server.url, protocol, tls=trust) as peer:
            if protocol == "connect stream":
                assert peer.call(path("both"), [b"ab"]).only == b"ba"
            else:
                assert peer.call(path("echo"), b"x" * 100_000).only == b"x" * 100_000


def test_the_option_is_checked() -> None:
    for wrong, error in (
        (["page.example"], nearcall.InvalidArgument),
        (["https://page.example/"], nearcall.InvalidArgument),
        ("https://page.example", TypeError),
    ):
        with pytest.raises(error, match="allow_origins"):
            nearcall.Server(Raw(), "http://127.0.0.1:0", allow_origins=wrong)
    with pytest.raises(ValueError, match="allow_origins is for http"):
        nearcall.Server(Raw(), "tcp://127.0.0.1:0", allow_origins=["https://page.example"])


def test_errors_have_details_in_json(server: ServerProcess) -> None:
    with Peer(server.urls[0], "connect") as peer:
        result = peer.call(path("fail"), b"plain")
        assert result.details == []
        assert json.loads(json.dumps(result.message)) == "plain"


class Http2(RawClient):
    """A client of HTTP/2 that keeps what it is answered."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        super().__init__(target)

    def _take_in(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        super()._take_in(kind, flags, stream, payload)
        if kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + payload
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.add(stream)

    def body(self, stream: int, name: str, kind: bytes, *parts: bytes, **more: bytes) -> bytes:
        """The body of the response to a request whose body comes in frames of its own."""
        fields = [(key.replace("_", "-").encode(), value) for key, value in more.items()]
        self.send(headers(request(path(name).encode(), *fields, content_type=kind), stream))
        for part in parts:
            self.push(part, stream, PATIENCE)
        self.send(data(b"", stream, ends=True))
        while stream not in self.ended:
            assert self.receive(PATIENCE)
        return self.bodies.get(stream, b"")


def test_the_same_over_http_2(server: ServerProcess) -> None:
    host, _, port = server.urls[0].partition("://")[2].rpartition(":")
    with Http2((host, int(port))) as client:
        assert client.body(1, "echo", b"application/proto", b"in ", b"parts") == b"in parts"
        assert client.body(3, "echo", b"application/proto") == b""
        # More than a window holds, whose bytes are given back as they come.
        assert client.body(5, "length", b"application/proto", bytes(5 << 20)) == str(5 << 20).encode()
        too_long = client.body(7, "length", b"application/json", bytes(LIMIT + 1))
        assert json.loads(too_long)["code"] == "resource_exhausted"
        packed = gzip.compress(b"x" * 100_000)
        assert client.body(9, "length", b"application/proto", packed, content_encoding=b"gzip") == b"100000"
        stream = client.body(11, "both", b"application/connect+proto", envelope(b"ab"), envelope(b"cd"))
        assert stream == envelope(b"ba") + envelope(b"dc") + envelope(b"{}", 2)
        web = client.body(13, "count", b"application/grpc-web+proto", envelope(b"2"))
        assert web == envelope(b"0") + envelope(b"1") + envelope(b"grpc-status:0\r\n", 0x80)
        text = client.body(15, "echo", b"application/grpc-web-text", base64.b64encode(envelope(b"x")))
        assert base64.b64decode(text[:8]) == envelope(b"x")
        assert b"not known" in client.body(17, "echo", b"text/plain", b"x" * 100)
        cut = client.body(19, "echo", b"application/grpc-web+proto", envelope(b"xyz")[:-1])
        assert b"grpc-status:13" in cut


def test_calls_that_are_reset_are_cancelled(server: ServerProcess, control: Raw) -> None:
    host, _, port = server.urls[0].partition("://")[2].rpartition(":")
    control.shut(b"")
    begun, cancelled = (control.log(b"").count(word) for word in (b"held", b"cancelled"))
    with Http2((host, int(port))) as client:
        client.send(
            headers(request(path("hold").encode(), content_type=b"application/proto"), 1), data(b"", 1, ends=True)
        )
        until(lambda: control.log(b"").count(b"held") > begun)
        client.send(reset(1))
        until(lambda: control.log(b"").count(b"cancelled") > cancelled)
