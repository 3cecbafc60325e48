"""gRPC clients that mean harm: they ask for much by few bytes, never end what they begin, and break HTTP/2's rules."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable

from ..e2e.h2_raw import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    SETTINGS,
    Gone,
    RawClient,
    again,
    data,
    field,
    frame,
    headers,
    kept,
    message,
    request,
    reset,
    settings,
    window,
)
from .target import GRPC, Attack, Scene, Table, every
from .test_messages import double, integer

TABLE = Table(GRPC)
MIB = 1 << 20
STREAMS = 1000
"""As many as a server lets one client open."""


def path(method: str) -> bytes:
    return f"/hostile.Messages/{method}".encode()


def ids(count: int, first: int = 1) -> range:
    return range(first, first + 2 * count, 2)


def repeated(method: str, count: int) -> Iterable[tuple[int, bytes]]:
    """Blocks of requests whose metadata has 58 KB, which every block but the first says by 15 bytes."""
    usual = request(path(method))
    for number, stream in enumerate(ids(count)):
        yield stream, usual + (kept(b"x", b"v" * 3900) if not number else b"") + again() * 14


@TABLE.add()
def values_of_calls_that_wait_over_grpc(scene: Scene) -> None:
    """Two bytes become an object with four fields."""
    client = scene.grpc()
    client.send(window(1 << 30))
    for stream in ids(scene.amount(30, 100)):
        client.send(headers(request(path("HoldNodes")), stream))
        client.push(message(b"\x0a\x00" * 100_000 + double(2, 2.0)), stream, 5.0, ends=True)
    # All are begun, or refused, before the first is answered.
    client.status(1)


def send(client: RawClient, *frames: bytes, seconds: float = 1.0) -> bool:
    """What is taken of it in time; whether all was. A server may stop to read, or hang up."""
    client.socket.settimeout(seconds)
    try:
        client.send(*frames)
    except (Gone, TimeoutError, OSError):
        return False
    finally:
        client.socket.settimeout(20.0)
    return True


def flood(client: RawClient, frames: Callable[[int], bytes], scene: Scene, *, most: int = 64 * MIB) -> None:
    """Frames by the thousand, of consecutive numbers, until time is up or nothing more is taken."""
    number, sent, end = 0, 0, time.monotonic() + 3 * scene.seconds
    while time.monotonic() < end and sent < most:
        batch = b"".join(map(frames, range(number, number + 500)))
        if not send(client, batch, seconds=0.3):
            return
        number, sent = number + 500, sent + len(batch)


@TABLE.add(terminate=True)
def metadata_in_calls_that_never_begin(scene: Scene) -> None:
    """Their first messages do not come."""
    for method in ("Echo", "SlowTotal") * scene.amount(3, 30):
        client = scene.grpc()
        for stream, block in repeated(method, STREAMS):
            if not send(client, headers(block, stream)):
                break


@TABLE.add(server={"max_concurrency": 4})
def metadata_in_calls_that_wait(scene: Scene) -> None:
    for _ in range(scene.amount(6, 60)):
        client = scene.grpc()
        for stream, block in repeated("Nap", STREAMS):
            call = data(message(double(1, 0.001)), stream, ends=True)
            if not send(client, headers(block, stream), call):
                break


@TABLE.add(terminate=True)
def calls_of_nothing_and_nothing_read(scene: Scene) -> None:
    """The answers repeat the path, which is said by one byte."""
    usual = field(b":method", b"POST") + field(b":scheme", b"http")
    more = field(b":authority", b"raw") + field(b"content-type", b"application/grpc")
    client = scene.grpc()
    send(client, headers(usual + kept(b":path", b"/" + b"x" * 3900) + more, 1, ends=True))
    flood(client, lambda number: headers(usual + again() + more, 3 + 2 * number, ends=True), scene)


@TABLE.add()
def answers_of_http_and_nothing_read(scene: Scene) -> None:
    """What is not gRPC gets an answer in text."""
    client = scene.grpc(window=0)
    flood(client, lambda number: headers(request(b"/", content_type=b"text/html"), 1 + 2 * number, ends=True), scene)


@TABLE.add(terminate=True, budget=96 * MIB)
def clients_that_greet_and_sleep(scene: Scene) -> None:
    for number in range(scene.amount(200, 4000)):
        if number % 2:
            scene.grpc()
        else:
            scene.dial().sendall(PREFACE)


@TABLE.add(terminate=True)
def clients_that_drip(scene: Scene) -> None:
    """A byte now and then: of the preface, of settings, of headers, of a message."""
    whole = PREFACE + settings(window=65_535)
    call = headers(request(path("Echo")), 1) + data(message(bytes(1000)), 1)
    cuts = (0, 10, len(PREFACE), len(PREFACE) + 4, len(whole), len(whole) + 20, len(whole + call) - 900)
    clients: list[tuple[socket.socket, bytes]] = []
    for cut in cuts * scene.amount(3, 30):
        connection = scene.dial()
        connection.sendall((whole + call)[:cut])
        clients.append((connection, (whole + call)[cut:]))
    end, at = time.monotonic() + 4 * scene.seconds, 0
    while time.monotonic() < end:
        for connection, rest in clients:
            with contextlib.suppress(OSError):
                connection.send(rest[at : at + 1])
        at += 1
        time.sleep(0.05)


@TABLE.add(terminate=True)
def halves_of_messages_that_are_never_ended(scene: Scene) -> None:
    for number in range(scene.amount(20, 200)):
        client = scene.grpc()
        for stream in ids(3):
            method = ("Length", "Total", "Echo")[number % 3]
            if send(client, headers(request(path(method)), stream)):
                with contextlib.suppress(Gone, OSError):
                    client.push(message(bytes(MIB), length=60 * MIB), stream, 0.05)


@TABLE.add(terminate=True)
def halves_of_headers_that_are_never_ended(scene: Scene) -> None:
    for _ in range(scene.amount(50, 500)):
        client = scene.grpc()
        send(client, frame(HEADERS, request(path("Echo")), stream=1), frame(CONTINUATION, b"\0" * 9000, stream=1))


TIMEOUTS = (
    b"0n",
    b"0H",
    b"99999999H",
    b"1n",
    b"-1S",
    b"123456789S",
    b"1",
    b"S",
    b"1x",
    b"1.5S",
    b"\xff",
    b"1 S",
    b"0x1S",
)
TYPES = (
    b"application/grpc+json",
    b"application/grpc;x=y",
    b"application/grpcx",
    b"text/html",
    b"APPLICATION/GRPC",
    b"\xff",
)
ENCODINGS = (b"gzip", b"identity", b"deflate", b"gzip,zstd", b"x" * 5000, b"\xff", b"zstd")


@TABLE.add()
def headers_that_are_odd(scene: Scene) -> None:
    """Each call ends by itself, and the connection serves the next one."""
    client = scene.grpc()
    body = data(message(b"\x0a\x01x"), 0)
    requests = [request(path("Echo"), (b"grpc-timeout", timeout)) for timeout in TIMEOUTS]
    requests += [request(path("Echo"), (b"grpc-timeout", b"1S"), (b"grpc-timeout", b"0n"))]
    requests += [request(path("Echo"), content_type=one) for one in TYPES]
    requests += [request(path("Echo"), (b"grpc-encoding", one), (b"grpc-accept-encoding", one)) for one in ENCODINGS]
    requests += [request(path("Echo"), (b"x-bin", one)) for one in (b"A", b"%%%", b"AAAA,,AAAA", b"\xff", b"," * 6000)]
    requests += [request(path("Echo"), *[(b"x%d" % number, b"") for number in range(count)]) for count in (500, 1500)]
    requests += [
        request(one) for one in (b"/", b"//", b"*", b"/hostile.Messages/", b"/hostile.Messages/Echo/", b"/%00")
    ]
    requests += [request(path("Echo"), (b"content-length", one)) for one in (b"8", b"9", b"0", b"-1", b"1" * 30)]
    requests += [request(path("Echo"), one) for one in ((b"te", b"gzip"), (b"connection", b"close"), (b"Big", b"x"))]
    requests += [request(path("Echo"), (b"x", one)) for one in (b"\0", b"\r\n", b" x", b"x" * 60_000, b"\xff" * 100)]
    requests += [b"", field(b":method", b"POST"), field(b":path", b"/") * 2, field(b"", b""), b"\x82\x86\x84"]
    # A path in a table that holds nothing, and sizes of tables.
    requests += [request(path("Echo")) + b"\x20" * 1, b"\x20\x3f\xe1\x1f" + request(path("Echo"))]
    for stream, block in zip(ids(len(requests)), requests, strict=True):
        with contextlib.suppress(Gone):
            client.send(headers(block, stream), body[:5] + stream.to_bytes(4, "big") + body[9:])
            client.send(frame(DATA, flags=1, stream=stream))
    stream = 2 * len(requests) + 1
    with contextlib.suppress(Gone):
        assert client.call(path("Echo").decode(), b"\x0a\x01x", stream) == 0
        assert client.goodbye is None
        return
    # Two of them may break a whole connection: header compression that cannot be followed. The server says so,
    # unless it hung up while this side was still sending, and what was on its way is lost with the connection.
    with contextlib.suppress(Gone):
        client.drain()
    assert client.goodbye in (None, 9)


@TABLE.add()
def messages_that_are_too_many_or_too_few(scene: Scene) -> None:
    client = scene.grpc(window=1 << 30)
    client.send(window(1 << 30))
    unary, stream, both = path("Echo"), path("Total"), path("Mirrored")
    one, none = message(b"\x0a\x01x"), b""
    bodies = [
        none,
        one * 2,
        one * 5000,
        one[:3],
        one[:-1],
        message(b"x", flag=2),
        message(b"x", flag=1),
        b"\xff" * 5000,
    ]
    bodies += [one + one[:3], message(b"", length=1 << 31), message(b"") * 10_000]
    numbers = iter(ids(10_000))
    for method in (unary, stream, both, path("Count"), path("Note")):
        for body in bodies:
            number = next(numbers)
            client.send(headers(request(method), number), data(body, number, ends=True))
            client.drain()
        # After the end: what ended the stream may still be under way.
        number = next(numbers)
        client.send(headers(request(method), number), data(one, number, ends=True), data(one, number, ends=True))
        # Trailers, which a client of gRPC has none of, and after them more.
        number = next(numbers)
        trailers = b"".join(field(b"x%d" % count, b"v") for count in range(1000))
        client.send(headers(request(method), number), headers(trailers, number, ends=True), data(one, number))
        client.drain()
    assert client.call(unary.decode(), b"\x0a\x01x", next(numbers)) == 0


@TABLE.add()
def connections_that_break_every_rule(scene: Scene) -> None:
    call = headers(request(path("Blocks")), 1) + data(message(integer(1, 10_000)), 1, ends=True)
    breaks = [
        window(0),
        window((1 << 31) - 1) * 2,
        call + window((1 << 31) - 1, 1) * 2,
        settings(window=1 << 31),
        frame(SETTINGS, b"x" * 5),
        frame(SETTINGS, b"", flags=1) * 100,
        frame(PING, b"x"),
        frame(PUSH_PROMISE, bytes(100), stream=2, flags=END_HEADERS),
        frame(PRIORITY, bytes(5), stream=1) * 20_000,
        frame(GOAWAY, bytes(8)) * 1000,
        frame(99, b"x" * 1000) * 20_000,
        frame(DATA, b"", stream=1),
        data(b"x" * 100_000, 1),
        call + data(b"", 1) * 20_000,
        headers(request(path("Echo")), 2),
        headers(request(path("Echo")), 5) + headers(request(path("Echo")), 3),
        call + headers(request(path("Echo")), 1),
        b"\xff" * 20_000,
        b"\0" * 20_000,
        headers(b"\xff" * 100, 1),
        headers(b"\x3f\xff\xff\xff\xff\xff\xff\xff\x7f", 1),
        headers(kept(b"x", b"v" * 4000) + again() * 60_000, 1),
        frame(HEADERS, b"", stream=1) + frame(CONTINUATION, b"", stream=1) * 50_000,
        reset(1),
        call + reset(1) * 2 + window(5, 1) * 1000,
    ]
    for _ in range(scene.amount(1, 10)):
        for one in breaks:
            client = scene.grpc()
            send(client, one)
            send(client, frame(PING, bytes(8)) * 10)


@TABLE.add(server={"max_concurrency": 8})
def calls_begun_and_reset_at_once(scene: Scene) -> None:
    def both(number: int) -> bytes:
        stream = 1 + 2 * number
        call = data(message(double(1, 0.05)), stream, ends=True)
        return headers(request(path("Nap")), stream) + call + reset(stream)

    for _ in range(scene.amount(2, 10)):
        flood(scene.grpc(), both, scene)


@TABLE.add(terminate=True)
def windows_that_open_and_close(scene: Scene) -> None:
    """While streams are sent: by settings, for all streams at once, and byte by byte."""
    clients = [scene.grpc(window=1) for _ in range(scene.amount(3, 10))]
    for client in clients:
        for stream in ids(20):
            body = data(message(integer(1, 50_000)), stream, ends=True)
            client.send(headers(request(path("Blocks")), stream), body)
    end, number = time.monotonic() + 3 * scene.seconds, 0
    while time.monotonic() < end:
        number += 1
        for client in clients:
            more = b"".join(window(1 + number % 7, stream) for stream in ids(20))
            if send(client, settings(window=(0, 1, 65_535, 300)[number % 4]), window(1000), more):
                with contextlib.suppress(Gone, OSError):
                    client.drain()


@TABLE.add(terminate=True)
def long_replies_to_windows_that_stay_shut(scene: Scene) -> None:
    for _ in range(scene.amount(4, 30)):
        client = scene.grpc(window=0)
        for stream in ids(200):
            body = data(message(integer(1, 300_000)), stream, ends=True)
            if not send(client, headers(request(path("Make")), stream), body):
                break


@TABLE.add(terminate=True)
def clients_that_hang_up_half_way(scene: Scene) -> None:
    for number in range(scene.amount(20, 200)):
        client = scene.grpc()
        body = data(message(integer(1, 100_000)), 1, ends=True)
        send(client, headers(request(path("Blocks")), 1), window(MIB, 1), window(MIB), body)
        send(client, headers(request(path("SlowTotal")), 3), data(message(b"\x0a\x01x"), 3))
        with contextlib.suppress(OSError):
            if number % 3 == 0:
                client.close()
            elif number % 3 == 1 and scene.transport != "grpcs":
                client.socket.shutdown(socket.SHUT_WR)


@every(TABLE)
def test_a_grpc_client_harms_nobody_else(
    attack: Attack, transport: str, attempt: Callable[[Attack, str], None]
) -> None:
    attempt(attack, transport)
