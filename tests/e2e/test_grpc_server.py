"""gRPC's own client against our server: processes of their own, and bytes without Protobuf."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import nearcall
from nearcall import _core
from nearcall.introspection import Introspection

from .grpc_services import Raw, with_paths
from .process import ServerProcess

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
MANY = 300


@pytest.fixture(scope="module")
def server(runtime_dir: Path) -> Iterator[ServerProcess]:
    urls = (
        "grpc://127.0.0.1:0",
        f"grpc+unix://{runtime_dir}/raw.grpc",
        f"unix://{runtime_dir}/raw.unix",
        "http://127.0.0.1:0",
    )
    with ServerProcess(*urls, services="tests.e2e.grpc_services:raw", max_message_size=8 << 20) as server:
        yield server


class Client:
    """A channel of grpcio's, whose methods take and give bytes."""

    def __init__(self, target: str, **options: Any) -> None:
        everything = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *options.items()]
        self.channel = grpc.insecure_channel(target, options=everything)

    def unary(self, name: str) -> Any:
        return self.channel.unary_unary(f"/test.Raw/{name}")

    def streamed(self, name: str) -> Any:
        return self.channel.unary_stream(f"/test.Raw/{name}")

    def sent(self, name: str) -> Any:
        return self.channel.stream_unary(f"/test.Raw/{name}")

    def both(self, name: str) -> Any:
        return self.channel.stream_stream(f"/test.Raw/{name}")


def target(url: str) -> str:
    scheme, _, place = url.partition("://")
    return f"unix://{place}" if scheme == "grpc+unix" else place


@pytest.fixture(params=[0, 1, 3], ids=["tcp", "unix", "http"])
def client(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Client]:
    client = Client(target(server.urls[request.param]))
    yield client
    client.channel.close()


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def failure(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code().name, error.details()


@pytest.mark.parametrize("name", ["echo", "echo_in_loop"])
@pytest.mark.parametrize("length", [0, 1, 60, 5000, 16_380, 70_000, 3_000_000])
def test_messages_of_any_length(client: Client, name: str, length: int) -> None:
    message = bytes(range(256)) * (length // 256 + 1)
    assert client.unary(name)(message[:length], timeout=PATIENCE) == message[:length]


def test_failures_have_their_status(client: Client) -> None:
    assert failure(lambda: client.unary("fail")("Käse is out".encode())) == ("NOT_FOUND", "Käse is out")
    assert failure(lambda: client.unary("crash")(b""))[0] == "UNKNOWN"
    # The next call is not disturbed.
    assert client.unary("echo")(b"still here") == b"still here"


def test_unknown_methods_are_named(client: Client) -> None:
    code, words = failure(lambda: client.unary("nothing")(b""))
    assert (code, "/test.Raw/nothing" in words) == ("UNIMPLEMENTED", True)


@pytest.mark.parametrize("name", ["count", "count_in_loop"])
def test_streams_of_the_server(client: Client, name: str) -> None:
    for length in (0, 1, 1000):
        expected = [str(number).encode() for number in range(length)]
        assert list(client.streamed(name)(str(length).encode(), timeout=PATIENCE)) == expected


@pytest.mark.parametrize("name", ["total", "total_in_loop"])
def test_streams_of_the_client(client: Client, name: str) -> None:
    for blocks in ([], [b"one"], [b"x" * 10_000] * 500):
        assert client.sent(name)(iter(blocks), timeout=PATIENCE) == str(sum(map(len, blocks))).encode()


@pytest.mark.parametrize("name", ["both", "both_in_loop"])
def test_streams_both_ways(client: Client, name: str) -> None:
    blocks = [str(number).encode() * 100 for number in range(500)]
    assert list(client.both(name)(iter(blocks), timeout=PATIENCE)) == [block[::-1] for block in blocks]


def test_a_stream_that_fails_keeps_what_came_before(client: Client) -> None:
    call = client.streamed("fail_after")(b"first")
    assert next(call) == b"first"
    assert failure(lambda: next(call)) == ("ABORTED", "enough")


def test_metadata_goes_both_ways(client: Client) -> None:
    sent = (("x-word", "hello"), ("x-word", "again"), ("x-bytes-bin", b"\x00\xff"))
    reply, call = client.unary("metadata").with_call(b"", metadata=sent)
    assert reply == repr(list(sent)).encode()
    assert [pair for pair in call.initial_metadata() if pair[0].startswith("x-")] == list(sent)
    back = [("x-word-back", "hello"), ("x-word-back", "again"), ("x-bytes-back-bin", b"\x00\xff")]
    assert [pair for pair in call.trailing_metadata() if pair[0].startswith("x-")] == back


def test_metadata_that_http_cannot_carry_fails_its_call_only(client: Client) -> None:
    assert failure(lambda: client.unary("unfit")(b""))[0] != "UNAVAILABLE"
    assert client.unary("echo")(b"x") == b"x"


def test_deadlines_reach_the_handler_and_end_the_call(client: Client) -> None:
    assert client.unary("left")(b"") == b"None"
    # grpcio rounds up.
    assert 0 < float(client.unary("left")(b"", timeout=PATIENCE)) <= 1.1 * PATIENCE
    code, _ = failure(lambda: client.unary("hold")(b"", timeout=0.05))
    assert code == "DEADLINE_EXCEEDED"


def test_a_cancelled_handler_learns_of_it(server: ServerProcess, client: Client) -> None:
    begun = client.unary("log")(b"").count(b"held")
    call = client.unary("hold").future(b"")
    until(lambda: client.unary("log")(b"").count(b"held") > begun)
    cancelled = client.unary("log")(b"").count(b"cancelled")
    call.cancel()
    until(lambda: client.unary("log")(b"").count(b"cancelled") > cancelled)


def test_a_stream_that_nobody_reads_waits_and_is_closed(client: Client) -> None:
    closed = client.unary("log")(b"").count(b"closed")
    call = client.streamed("blocks")(b"1000000")
    assert len(next(call)) == 64 << 10
    # Others go on meanwhile, on the same connection.
    assert client.unary("echo")(b"meanwhile", timeout=PATIENCE) == b"meanwhile"
    call.cancel()
    until(lambda: client.unary("log")(b"").count(b"closed") > closed)


def test_a_stream_longer_than_any_window(client: Client) -> None:
    received = sum(map(len, client.streamed("blocks")(b"200", timeout=PATIENCE)))
    assert received == 200 * (64 << 10)


@pytest.mark.parametrize("options", [{}, {"max_memory": 4 << 20, "max_message_size": 1 << 20}])
def test_streams_that_nobody_reads_for_long_go_on_when_they_are_read(options: dict[str, Any]) -> None:
    """More than may wait does: then room comes by frames, which are read although nothing else of the client is."""
    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw", **options) as server:
        client = Client(target(server.url))
        calls = [client.streamed("blocks")(b"100", timeout=3 * PATIENCE) for _ in range(24)]
        firsts = [len(next(call)) for call in calls]
        more = [client.unary("many").future(b"500000", timeout=3 * PATIENCE) for _ in range(40)]
        lengths = [first + sum(map(len, call)) for first, call in zip(firsts, calls, strict=True)]
        assert lengths == [100 * (64 << 10)] * len(calls)
        assert [len(call.result()) for call in more] == [500_000] * len(more)
        client.channel.close()


@pytest.mark.slow
def test_a_client_that_sends_more_than_is_taken_waits(client: Client, server: ServerProcess) -> None:
    """Short messages cost the core more than HTTP/2 counts; long ones fill the window."""
    with nearcall.connect(server.urls[2], Raw) as other:
        for block, count in ((b"", 35_000), (b"x" * 100_000, 60)):
            other.shut(b"")
            call = client.sent("slow_total").future(iter([block] * count), timeout=PATIENCE)
            assert client.unary("echo")(b"meanwhile", timeout=PATIENCE) == b"meanwhile"
            other.open(b"")
            assert call.result() == str(len(block) * count).encode()


def test_a_message_over_the_limit_fails_its_call_only(client: Client) -> None:
    held = client.unary("nap").future(b"0.5")
    code, words = failure(lambda: client.unary("length")(bytes((8 << 20) + 1)))
    assert code == "RESOURCE_EXHAUSTED", words
    assert held.result() == b"0.5"
    assert client.unary("length")(bytes(8 << 20)) == str(8 << 20).encode()


def test_many_calls_at_once(client: Client) -> None:
    for name in ("echo", "echo_in_loop"):
        calls = [client.unary(name).future(str(number).encode(), timeout=PATIENCE) for number in range(MANY)]
        assert [call.result() for call in calls] == [str(number).encode() for number in range(MANY)]
    with ThreadPoolExecutor(16) as pool:
        echo = client.unary("echo")
        sent = [str(number).encode() for number in range(MANY)]
        assert list(pool.map(lambda message: echo(message, timeout=PATIENCE), sent)) == sent


def test_a_fast_reply_does_not_wait_for_slow_calls(client: Client) -> None:
    slow = [client.unary("hold").future(b"") for _ in range(3)]
    assert client.unary("echo")(b"fast", timeout=PATIENCE) == b"fast"
    for call in slow:
        call.cancel()


def test_what_is_no_grpc_gets_an_answer(server: ServerProcess) -> None:
    place = target(server.urls[0]).rsplit(":", 1)
    for hello in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"NCAL\x01\x01\x00\x00\x00\x00\x00\x00", b"\x16\x03\x01"):
        with socket.create_connection((place[0], int(place[1])), PATIENCE) as connection:
            connection.sendall(hello)
            while connection.recv(4096):
                pass
    with pytest.raises(nearcall.RpcError, match="gRPC is spoken there"):
        nearcall.connect(f"tcp://{':'.join(place)}", Raw)


def test_a_server_that_stops_finishes_what_has_begun(runtime_dir: Path) -> None:
    url = f"unix://{runtime_dir}/stopping.unix"
    with ServerProcess("grpc://127.0.0.1:0", url, services="tests.e2e.grpc_services:raw") as server:
        client = Client(target(server.urls[0]))
        call = client.unary("nap").future(b"0.5")
        until(lambda: client.unary("echo")(b"") == b"")
        closed = threading.Thread(target=server.close)
        closed.start()
        assert call.result(PATIENCE) == b"0.5"
        closed.join()
        assert failure(lambda: client.unary("echo")(b"", timeout=PATIENCE))[0] == "UNAVAILABLE"
        client.channel.close()


def test_a_killed_server_is_noticed(runtime_dir: Path) -> None:
    with ServerProcess("grpc://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        client = Client(target(server.urls[0]))
        call = client.unary("hold").future(b"")
        assert client.unary("echo")(b"x") == b"x"
        server.kill()
        assert failure(lambda: call.result(PATIENCE))[0] == "UNAVAILABLE"
        client.channel.close()


def test_keep_alive_pings_are_answered(server: ServerProcess) -> None:
    options = {
        "grpc.keepalive_time_ms": 100,
        "grpc.keepalive_timeout_ms": 2000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
    }
    client = Client(target(server.urls[0]), **options)
    call = client.unary("nap").future(b"0.7")
    assert call.result(PATIENCE) == b"0.7"
    client.channel.close()


def test_statistics_count_grpc_calls_as_all_others(server: ServerProcess, client: Client) -> None:
    with nearcall.connect(server.urls[2], Introspection) as watcher:
        before = {method.method: method.started for method in watcher.read().methods}
        assert client.unary("echo")(b"x") == b"x"
        after = {method.method: method.started for method in watcher.read().methods}
        assert after["Raw.echo"] == before.get("Raw.echo", 0) + 1


def encrypted(url: str, ca: bytes, **own: bytes) -> Client:
    client = Client.__new__(Client)
    client.channel = grpc.secure_channel(target(url), grpc.ssl_channel_credentials(ca, **own))
    return client


def test_calls_over_tls(certificates: Path) -> None:
    ca = (certificates / "ca.pem").read_bytes()
    with ServerProcess("grpcs://127.0.0.1:0", services="tests.e2e.grpc_services:raw") as server:
        client = encrypted(server.url, ca)
        assert client.unary("echo")(b"x" * 100_000, timeout=PATIENCE) == b"x" * 100_000
        assert list(client.both("both")(iter([b"ab", b"cd"]), timeout=PATIENCE)) == [b"ba", b"dc"]
        client.channel.close()
        # Somebody without encryption is not served.
        plain = Client(target(server.url))
        assert failure(lambda: plain.unary("echo")(b"", timeout=PATIENCE))[0] == "UNAVAILABLE"
        plain.channel.close()


def test_both_sides_show_certificates(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "Server", _core.Server)
    with_paths()
    own = {name: certificates / f"{name}.pem" for name in ("ca", "server", "client")}
    tls = nearcall.TLS(cert=own["server"], key=certificates / "server.key", client_ca=own["ca"])
    ca, cert, key = (path.read_bytes() for path in (own["ca"], own["client"], certificates / "client.key"))
    with nearcall.Server(Raw(), "grpcs://127.0.0.1:0", tls=tls) as server:
        client = encrypted(server.urls[0], ca, private_key=key, certificate_chain=cert)
        assert client.unary("echo")(b"x", timeout=PATIENCE) == b"x"
        assert b"CN=" in client.unary("who")(b"", timeout=PATIENCE)
        client.channel.close()
        stranger = encrypted(server.urls[0], ca)
        assert failure(lambda: stranger.unary("echo")(b"", timeout=PATIENCE))[0] == "UNAVAILABLE"
        stranger.channel.close()
