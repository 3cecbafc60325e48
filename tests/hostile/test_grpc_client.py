"""A client of ours and a gRPC server that means harm: each call ends in time with its answer or an error of ours."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from ..e2e.h2_raw import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PUSH_PROMISE,
    SETTINGS,
    data,
    field,
    frame,
    headers,
    message,
    reset,
    settings,
    window,
)
from .grpc_host import STATUS_200, Connection, GrpcHost
from .machine import Machine
from .meeting import AT_ONCE, encounter
from .test_messages import within
from .victim import Victims

MIB = 1 << 20
OVER = ("grpc", "grpc+unix")
USERS = ("uses", "uses_in_threads", "uses_in_a_loop")

Harm = Callable[[Connection], None]


@dataclass(frozen=True)
class Case:
    """What a server does."""

    name: str
    harm: Harm
    scripts: tuple[str, ...]


CASES: list[Case] = []


def server(*scripts: str) -> Callable[[Harm], Harm]:
    """Adds what a server does, and what clients do meanwhile."""

    def register(harm: Harm) -> Harm:
        CASES.append(Case(harm.__name__, harm, scripts))
        return harm

    return register


def answering(connection: Connection, *answers: Callable[[int], bytes]) -> None:
    """Answers each call, with one after the other, on whichever connection it comes."""
    connection.greet()
    for stream in connection.calls():
        connection.send(answers[next(connection.turns) % len(answers)](stream))


def concurrent(most: int) -> bytes:
    return frame(SETTINGS, struct.pack(">HI", 3, most))


def goaway(last: int, code: int = 0, words: bytes = b"") -> bytes:
    return frame(GOAWAY, struct.pack(">II", last, code) + words)


# Before any call.


@server("connects", "connects_in_a_loop", *USERS)
def accepts_and_says_nothing(connection: Connection) -> None:
    connection.closed.wait(20)


@server("connects", "uses")
def speaks_another_language_of_http(connection: Connection) -> None:
    connection.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n" + b"x" * 100_000)
    connection.closed.wait(20)


@server("connects", "uses")
def drips_its_settings(connection: Connection) -> None:
    for byte in settings(window=65_535, table=4096) * 100:
        connection.send(bytes([byte]))
        if connection.closed.wait(0.02):
            break


@server(*USERS)
def takes_no_calls(connection: Connection) -> None:
    connection.greet(concurrent(0))
    for _ in connection.calls():
        pass


@server("uses", "uses_in_threads")
def takes_calls_and_then_none(connection: Connection) -> None:
    connection.greet()
    for stream in connection.calls():
        connection.send(concurrent(stream % 2), connection.reply(stream), concurrent(0))


@server("connects", *USERS)
def says_goodbye_at_once(connection: Connection) -> None:
    connection.greet()
    connection.send(goaway(0))
    for _ in connection.frames():
        pass


@server("uses", "uses_in_threads")
def says_goodbye_again_and_again(connection: Connection) -> None:
    connection.greet()
    for stream in connection.calls():
        connection.send(goaway((1 << 31) - 1, 0, b"\x1b[2J" * 1000), goaway(stream), goaway(stream - 1) * 1000)


@server("connects", "uses")
def sends_settings_without_end(connection: Connection) -> None:
    connection.greet()
    while not connection.closed.is_set():
        connection.send(frame(SETTINGS, struct.pack(">HI", 4, 65_535) * 2000) * 50)


@server("uses", "uses_in_a_loop")
def pings_without_end(connection: Connection) -> None:
    connection.greet()
    while not connection.closed.is_set():
        connection.send(frame(PING, bytes(8)) * 5000)


@server("uses", "sends_much")
def breaks_a_rule_of_settings(connection: Connection) -> None:
    wrong = [(4, 1 << 31), (5, 100), (5, 1 << 24), (2, 1), (3, 0), (1, (1 << 32) - 1), (6, 0), (99, 5)]
    connection.greet()
    for stream in connection.calls():
        connection.send(frame(SETTINGS, struct.pack(">HI", *wrong[stream // 2 % len(wrong)])))
        connection.send(connection.reply(stream))


# Answers.


@server(*USERS)
def never_answers(connection: Connection) -> None:
    connection.greet()
    for _ in connection.calls():
        pass


@server(*USERS)
def resets_every_call(connection: Connection) -> None:
    answering(connection, *[lambda stream, code=code: reset(stream, code) for code in (*range(14), 99, 1 << 31)])


STATUSES = (b"999", b"-1", b"", b"17", b"0", b"00", b"1e3", b"\xff", b"99999999999999999999", b"2 ", b"0x1")


@server(*USERS)
def ends_with_odd_statuses(connection: Connection) -> None:
    def answer(stream: int, status: bytes) -> bytes:
        return headers(STATUS_200 + field(b"grpc-status", status), stream, ends=True)

    def twice(stream: int) -> bytes:
        return connection.head(stream) + connection.trailers(stream, (b"grpc-status", b"0"), (b"grpc-status", b"5"))

    answers = [lambda stream, status=status: answer(stream, status) for status in STATUSES]
    answering(connection, *answers, twice)


@server("uses", "uses_in_a_loop")
def ends_without_what_is_due(connection: Connection) -> None:
    zero = (b"grpc-status", b"0")
    answering(
        connection,
        lambda stream: connection.trailers(stream, zero),
        lambda stream: connection.head(stream) + data(b"", stream, ends=True),
        lambda stream: connection.head(stream) + data(message(b""), stream, ends=True),
        lambda stream: connection.head(stream) + connection.trailers(stream),
        lambda stream: connection.reply(stream) * 2,
        lambda stream: connection.reply(stream) + connection.trailers(stream, zero),
        lambda stream: connection.head(stream) * 2 + connection.trailers(stream, zero),
        lambda stream: connection.head(stream) + headers(field(b"grpc-status", b"0"), stream),
        lambda stream: data(message(b""), stream, ends=True),
        lambda stream: connection.head(stream) + data(message(b"") * 3, stream) + connection.trailers(stream, zero),
        lambda stream: connection.head(stream) + data(message(b"x")[:-1], stream) + connection.trailers(stream, zero),
        lambda stream: headers(field(b":status", b"100"), stream) * 1000 + connection.reply(stream),
        lambda stream: headers(field(b":status", b"503") + field(b"content-type", b"text/html"), stream, ends=True),
        lambda stream: headers(field(b":status", b"200"), stream) + data(b"<html>" * 10_000, stream, ends=True),
    )


@server("uses", "uses_in_a_loop")
def says_much_with_a_status(connection: Connection) -> None:
    def answer(stream: int, *more: tuple[bytes, bytes]) -> bytes:
        return connection.trailers(stream, (b":status", b"200"), (b"content-type", b"application/grpc"), *more)

    failed = (b"grpc-status", b"5")
    answering(
        connection,
        lambda stream: answer(stream, failed, (b"grpc-message", b"%1B%5B2J" * 7000)),
        lambda stream: answer(stream, failed, (b"grpc-message", b"%ff%00%0a%zz%" * 4000)),
        lambda stream: answer(stream, failed, (b"grpc-status-details-bin", b"AAAA" * 15_000)),
        lambda stream: answer(stream, failed, (b"grpc-status-details-bin", b"!!!")),
        lambda stream: answer(stream, failed, *[(b"x%d" % number, b"v") for number in range(1000)]),
        lambda stream: answer(stream, failed, (b"grpc-message", b"x" * (10 * MIB))),
    )


@server("uses", "uses_in_a_loop")
def repeats_headers_by_single_bytes(connection: Connection) -> None:
    def repeated(stream: int) -> bytes:
        kept = b"\x40\x01x" + b"\x7f" + b"\xa0\x1e" + b"v" * (127 + 32 + 30 * 128)
        return frame(HEADERS, kept[:16_000], stream=stream) + frame(CONTINUATION, b"\xbe" * 16_000, stream=stream) * 50

    answering(connection, repeated)


@server("uses")
def continues_headers_without_end(connection: Connection) -> None:
    connection.greet()
    for stream in connection.calls():
        connection.send(frame(HEADERS, b"", stream=stream))
        while not connection.closed.is_set():
            connection.send(frame(CONTINUATION, b"\0\1x\1y" * 3000, stream=stream))


@cache
def bomb() -> bytes:
    """Becomes 60 MB."""
    return gzip.compress(bytes(60 * MIB))


@server("uses", "uses_in_a_loop")
def sends_messages_that_lie(connection: Connection) -> None:
    def answer(stream: int, body: bytes, encoding: bytes = b"identity") -> bytes:
        head = connection.head(stream, (b"grpc-encoding", encoding))
        return head + data(body, stream) + connection.trailers(stream, (b"grpc-status", b"0"))

    answering(
        connection,
        lambda stream: answer(stream, message(b"x", length=(1 << 32) - 1)),
        lambda stream: answer(stream, message(b"x", flag=255)),
        lambda stream: answer(stream, message(b"x", flag=1)),
        lambda stream: answer(stream, message(b"x", flag=1), b"gzip"),
        lambda stream: answer(stream, message(bomb(), flag=1), b"gzip"),
        lambda stream: answer(stream, message(b"x", flag=1), b"nonsense"),
        lambda stream: answer(stream, message(b"\xff" * 100)),
        lambda stream: answer(stream, message(within(3, b"", 10_000))),
        lambda stream: answer(stream, message(b"\x0a\x00" * 20_000)),
        lambda stream: answer(stream, message(b"\x0b" * 50_000)),
    )


@server("uses", "uses_in_threads")
def sends_frames_that_may_not_be(connection: Connection) -> None:
    wrong: list[Callable[[int], bytes]] = [
        lambda stream: frame(PUSH_PROMISE, struct.pack(">I", 2) + STATUS_200, flags=END_HEADERS, stream=stream),
        lambda stream: headers(STATUS_200, stream + 1000),
        lambda stream: headers(STATUS_200, 2),
        lambda stream: data(message(b""), stream + 1000),
        lambda stream: frame(DATA, bytes(16_385), stream=stream),
        lambda stream: window(0, stream) + window(0),
        lambda stream: window((1 << 31) - 1, stream) * 2,
        lambda stream: window((1 << 31) - 1) * 2,
        lambda stream: connection.head(stream) + data(bytes(100_000), stream) * 100,
        lambda stream: headers(b"\xff" * 50, stream),
        lambda stream: frame(SETTINGS, flags=1) * 1000,
        lambda stream: frame(99, bytes(1000), stream=stream) * 1000 + connection.reply(stream),
        lambda stream: frame(200, b"", flags=255),
    ]
    answering(connection, *wrong)


@server("sends_much", "uploads_much")
def opens_no_window(connection: Connection) -> None:
    connection.greet(settings(window=0))
    for _ in connection.frames():
        pass


@server("sends_much", "uploads_much")
def opens_windows_byte_by_byte(connection: Connection) -> None:
    connection.greet(settings(window=1))
    streams: set[int] = set()
    for number, one in enumerate(connection.frames()):
        if one.stream:
            streams.add(one.stream)
        more = b"".join(window(1, stream) for stream in streams)
        connection.send(more, window(1), settings(window=(0, 1, 65_535)[number % 3]))


@server("sends_much", "uploads_much")
def never_reads(connection: Connection) -> None:
    connection.greet(settings(window=(1 << 31) - 1))
    connection.send(window((1 << 31) - 1 - 65_535))
    connection.closed.wait(20)


@server("reads_slowly", "reads_all", "reads_all_in_a_loop", "reads_in_a_loop_beside_others")
def sends_items_without_end(connection: Connection) -> None:
    connection.greet()
    for stream in connection.calls():
        connection.send(connection.head(stream))
        while not connection.closed.is_set():
            connection.send(data(message(within(1, b"x")) * 5000, stream))


@server("reads_slowly")
def sends_empty_frames_without_end(connection: Connection) -> None:
    connection.greet()
    for stream in connection.calls():
        connection.send(connection.head(stream))
        while not connection.closed.is_set():
            connection.send(data(b"", stream) * 5000)


@server("uses", "uses_in_threads", "uses_in_a_loop")
def hangs_up_on_every_call(connection: Connection) -> None:
    connection.greet()
    for _ in connection.calls():
        return


@server("uses", "uses_in_a_loop")
def stops_in_the_middle_of_an_answer(connection: Connection) -> None:
    connection.greet()
    for stream in connection.calls():
        connection.send(connection.reply(stream, bytes(1000))[: 20 + stream * 7 % 1000])
        connection.closed.wait(1)
        return


_numbers = iter(range(1 << 30))


def meet(case: Case, script: str, transport: str, victims: Queue[Victims], stalls: Machine, directory: Path) -> str:
    """What was wrong when a client met a server; empty if nothing was."""
    host = GrpcHost(transport, directory, f"g{os.getpid()}-{next(_numbers)}", case.harm)
    return encounter(host, script, transport, victims, stalls)


def _parameters() -> list[Any]:
    return [pytest.param(case, id=case.name) for case in CASES]


@pytest.mark.parametrize("case", _parameters())
def test_whatever_a_grpc_server_does_calls_end_in_time(
    case: Case, victims: Queue[Victims], stalls: Machine, runtime_dir: Path
) -> None:
    stalls.begin()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        meetings = [
            pool.submit(meet, case, script, OVER[number % 2], victims, stalls, runtime_dir)
            for number, script in enumerate(case.scripts)
        ]
    wrong = [meeting.result() for meeting in meetings if meeting.result()]
    assert not wrong, f"{case.name}: {len(wrong)} of {len(meetings)}:\n" + "\n".join(wrong)
