"""A client of ours and an HTTP/1.1 server that means harm: each call ends in time, with its own answer or an error of
ours, and nothing else of the client's has to wait."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

import nearcall
import nearcall.aio

from .meeting import PATIENCE

DEADLINE = 0.25
"""Seconds that each call has."""
THREADS = 6
LONGEST = 1 << 30
"""Bytes of the longest message: one without end takes longer than any test."""
NUMBER = re.compile(rb'"number": ?"?(\d+)')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
NOT_HTTP2 = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


@nearcall.service
class Echo:
    def echo(self, number: int) -> str:
        raise NotImplementedError


class Gone(Exception):
    """The client hung up, or the test is over."""


class Connection:
    """One of a client's."""

    def __init__(self, connection: socket.socket, closed: threading.Event) -> None:
        self.socket = connection
        self.socket.settimeout(0.1)
        self.closed = closed
        self._buffer = b""

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except TimeoutError:
                if self.closed.is_set():
                    raise Gone from None
            except OSError as error:
                raise Gone from error

    def send_without_end(self, data: bytes) -> None:
        while True:
            self.send(data)

    def _until(self, has: Callable[[bytes], bool]) -> None:
        while not has(self._buffer):
            try:
                more = self.socket.recv(1 << 16)
            except TimeoutError:
                if self.closed.is_set():
                    raise Gone from None
                continue
            except OSError as error:
                raise Gone from error
            if not more:
                raise Gone
            self._buffer += more

    def requests(self) -> Iterator[int]:
        """The numbers of the calls that come."""
        while True:
            self._until(lambda data: b"\r\n\r\n" in data)
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            if head.startswith(b"PRI"):
                self.send(NOT_HTTP2)
                raise Gone
            length = LENGTH.search(head)
            assert length is not None, head
            end = int(length[1])
            self._until(lambda data, end=end: len(data) >= end)  # type: ignore[misc]
            body, self._buffer = self._buffer[:end], self._buffer[end:]
            number = NUMBER.search(body)
            assert number is not None, body
            yield int(number[1])

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone


Harm = Callable[[Connection, int], None]


def answer(text: object, *fields: str) -> bytes:
    body = b'{"value":"%s"}' % str(text).encode()
    head = ("HTTP/1.1 200 OK", "content-type: application/json", f"content-length: {len(body)}", *fields, "", "")
    return "\r\n".join(head).encode() + body


POISON = answer("of nobody")


class Host:
    """Serves each client that comes in a thread of its own, until closed."""

    def __init__(self, harm: Harm) -> None:
        self.failures: list[str] = []
        self._harm = harm
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                client = Connection(connection, self._closed)
                for number in client.requests():
                    self._harm(client, number)
            except Gone:
                pass
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._threads:
            self._threads.pop().join(10)
        assert self.failures == []


CASES: list[Harm] = []


def server(harm: Harm) -> Harm:
    CASES.append(harm)
    return harm


@server
def sends_a_message_without_end_byte_by_byte(client: Connection, number: int) -> None:
    client.send(CHUNKED)
    client.send_without_end(b"1\r\n \r\n" * 10_000)


@server
def sends_a_message_without_end(client: Connection, number: int) -> None:
    client.send(CHUNKED)
    client.send_without_end(b"10000\r\n" + b" " * 65_536 + b"\r\n")


@server
def sends_provisional_responses_without_end(client: Connection, number: int) -> None:
    client.send_without_end(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)


@server
def sends_trailers_without_end(client: Connection, number: int) -> None:
    client.send(CHUNKED + b"0\r\n")
    client.send_without_end(b"a: b\r\n" * 1000)


@server
def answers_twice(client: Connection, number: int) -> None:
    client.send(answer(number) + POISON)


@server
def answers_and_begins_another_answer(client: Connection, number: int) -> None:
    client.send(answer(number) + POISON[:30])


@server
def answers_half_and_hangs_up(client: Connection, number: int) -> None:
    whole = answer(number)
    client.send(whole[: number * 7 % len(whole)])
    raise Gone


@server
def answers_half_and_hangs(client: Connection, number: int) -> None:
    whole = answer(number)
    client.send(whole[: number * 7 % len(whole)])
    client.closed.wait(DEADLINE * 2)
    raise Gone


@server
def answers_and_resets(client: Connection, number: int) -> None:
    client.send(answer(number))
    client.reset()


@server
def says_that_it_closes_and_goes_on(client: Connection, number: int) -> None:
    client.send(answer(number, "connection: close"))
    client.closed.wait(0.01)
    client.send(POISON)


@server
def never_answers(client: Connection, number: int) -> None:
    client.closed.wait(DEADLINE * 2)


def call(echo: Echo, number: int) -> tuple[str, float]:
    """What became of it, empty if that is as it should be, and the seconds it took."""
    begun, wrong = time.monotonic(), ""
    try:
        with nearcall.timeout(DEADLINE):
            got = echo.echo(number)
        wrong = "" if got == str(number) else f"{got!r} for {number}"
    except nearcall.RpcError:
        pass
    return wrong, time.monotonic() - begun


def parameters(cases: list[Harm]) -> list[object]:
    return [pytest.param(case, id=case.__name__) for case in cases]


@pytest.mark.parametrize("harm", parameters(CASES))
def test_whatever_a_server_of_http1_does_calls_end_in_time(harm: Harm) -> None:
    numbers = count()
    with Host(harm) as host, nearcall.connect(host.url, Echo, codec="json", max_message_size=LONGEST) as echo:

        def calls(_: int) -> list[tuple[str, float]]:
            return [call(echo, next(numbers)) for _ in range(3)]

        with ThreadPoolExecutor(THREADS) as pool:
            ended = [one for some in pool.map(calls, range(THREADS)) for one in some]
    assert [wrong for wrong, _ in ended if wrong] == []
    assert max(took for _, took in ended) < DEADLINE + PATIENCE


@pytest.mark.parametrize("harm", parameters(CASES))
def test_whatever_a_server_of_http1_does_an_event_loop_goes_on(harm: Harm) -> None:
    async def main(url: str) -> tuple[list[str], float, float]:
        wrong: list[str] = []
        longest = pause = 0.0

        async def calls(echo: object, first: int) -> None:
            nonlocal longest
            for number in range(first, first + 3):
                begun = time.monotonic()
                try:
                    with nearcall.timeout(DEADLINE):
                        got = await echo.echo(number)  # type: ignore[attr-defined]
                    if got != str(number):
                        wrong.append(f"{got!r} for {number}")
                except nearcall.RpcError:
                    pass
                longest = max(longest, time.monotonic() - begun)

        async def tick() -> None:
            nonlocal pause
            while True:
                begun = time.monotonic()
                await asyncio.sleep(0.001)
                pause = max(pause, time.monotonic() - begun)

        async with nearcall.aio.connect(url, Echo, codec="json", max_message_size=LONGEST) as echo:
            ticking = asyncio.create_task(tick())
            await asyncio.gather(*(calls(echo, 10 * task) for task in range(THREADS)))
            ticking.cancel()
        return wrong, longest, pause

    with Host(harm) as host:
        wrong, longest, pause = asyncio.run(main(host.url))
    assert wrong == []
    assert longest < DEADLINE + PATIENCE
    assert pause < PATIENCE


def test_what_comes_while_nobody_calls_answers_no_call() -> None:
    sent = threading.Event()

    def answers_again_later(client: Connection, number: int) -> None:
        client.send(answer(number))
        client.send(POISON)
        sent.set()

    with Host(answers_again_later) as host, nearcall.connect(host.url, Echo, codec="json") as echo:
        for number in range(20):
            sent.clear()
            assert echo.echo(number) == str(number)
            assert sent.wait(PATIENCE)
