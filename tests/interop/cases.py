"""The cases of gRPC's interoperability suite, by nearcall's client.

Each is a function that makes a connection of its own and fails if the server at the other end answers otherwise than
https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md says. Names and numbers are from there.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import pytest

import nearcall
import nearcall.aio

from . import service
from .service import (
    BoolValue,
    Empty,
    ResponseParameters,
    SimpleRequest,
    StreamingInputCallRequest,
    StreamingOutputCallRequest,
    TestService,
    zeros,
)

SENT = (27182, 8, 1828, 45904)
"""Bytes of the messages that a stream sends."""
ASKED = (31415, 9, 2653, 58979)
"""Bytes of the messages that a stream asks for."""
LARGE = SimpleRequest(response_size=314159, payload=zeros(271828))
PATIENCE = 30.0
"""Seconds after which a call that waits has failed."""

CASES: dict[str, Callable[[str], None]] = {}
"""What is called with the URL of a server of the test service, by the case's name."""


def case(function: Callable[[str], None]) -> Callable[[str], None]:
    CASES[function.__name__] = function
    return function


def connect(url: str) -> AbstractContextManager[TestService]:
    return nearcall.connect(url, TestService, timeout=PATIENCE)


def asking(*sizes: int, payload: int | None = None) -> StreamingOutputCallRequest:
    """A request for messages of so many bytes."""
    body = None if payload is None else zeros(payload)
    return StreamingOutputCallRequest(response_parameters=[ResponseParameters(size) for size in sizes], payload=body)


def sizes(replies: Iterable[service.StreamingOutputCallResponse]) -> list[int]:
    return [len(reply.payload.body) if reply.payload else 0 for reply in replies]


def is_large(reply: service.SimpleResponse) -> None:
    assert reply.payload is not None
    # Java's server sends other bytes than zeros, which the suite leaves open.
    assert len(reply.payload.body) == LARGE.response_size


@case
def empty_unary(url: str) -> None:
    with connect(url) as test:
        assert test.empty_call(Empty()) == Empty()


@case
def large_unary(url: str) -> None:
    with connect(url) as test:
        is_large(test.unary_call(LARGE))


@case
def client_streaming(url: str) -> None:
    with connect(url) as test:
        reply = test.streaming_input_call(StreamingInputCallRequest(zeros(size)) for size in SENT)
        assert reply.aggregated_payload_size == sum(SENT)


@case
def server_streaming(url: str) -> None:
    with connect(url) as test:
        assert sizes(test.streaming_output_call(asking(*ASKED))) == list(ASKED)


@case
def ping_pong(url: str) -> None:
    replied: queue.Queue[None] = queue.Queue()

    def requests() -> Iterator[StreamingOutputCallRequest]:
        for size, asked in zip(SENT, ASKED, strict=True):
            yield asking(asked, payload=size)
            replied.get(timeout=PATIENCE)

    with connect(url) as test:
        got = []
        for reply in test.full_duplex_call(requests()):
            got += sizes([reply])
            replied.put(None)
        assert got == list(ASKED)


@case
def empty_stream(url: str) -> None:
    with connect(url) as test:
        assert list(test.full_duplex_call(iter(()))) == []


@case
def custom_metadata(url: str) -> None:
    sent: dict[str, str | bytes] = {
        service.ECHO_INITIAL: "test_initial_metadata_value",
        service.ECHO_TRAILING: b"\xab\xab\xab",
    }
    with connect(url) as test:
        with nearcall.metadata(sent) as of_unary:
            is_large(test.unary_call(LARGE))
        with nearcall.metadata(sent) as of_stream:
            assert sizes(test.full_duplex_call(iter([asking(314159, payload=271828)]))) == [314159]
    for metadata in (of_unary, of_stream):
        assert metadata.initial[service.ECHO_INITIAL] == sent[service.ECHO_INITIAL]
        assert metadata.trailing[service.ECHO_TRAILING] == sent[service.ECHO_TRAILING]


def fails_with(status: service.EchoStatus, call: Callable[[], object]) -> None:
    with pytest.raises(nearcall.RpcError) as caught:
        call()
    assert (caught.value.code, caught.value.message) == (status.code, status.message)


@case
def status_code_and_message(url: str) -> None:
    status = service.EchoStatus(2, "test status message")
    with connect(url) as test:
        fails_with(status, lambda: test.unary_call(SimpleRequest(response_status=status)))
        request = StreamingOutputCallRequest(response_status=status)
        fails_with(status, lambda: list(test.full_duplex_call(iter([request]))))


@case
def special_status_message(url: str) -> None:
    status = service.EchoStatus(2, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n")
    with connect(url) as test:
        fails_with(status, lambda: test.unary_call(SimpleRequest(response_status=status)))


@case
def unimplemented_method(url: str) -> None:
    with nearcall.connect(url, service.TestServiceLacking) as test, pytest.raises(nearcall.Unimplemented):
        test.unimplemented_call(Empty())


@case
def unimplemented_service(url: str) -> None:
    with nearcall.connect(url, service.UnimplementedService) as test, pytest.raises(nearcall.Unimplemented):
        test.unimplemented_call(Empty())


@case
def cancel_after_begin(url: str) -> None:
    async def nothing() -> AsyncIterator[StreamingInputCallRequest]:
        await asyncio.sleep(PATIENCE)
        yield StreamingInputCallRequest(None)

    async def main() -> None:
        async with nearcall.aio.connect(url, TestService) as test:
            call = asyncio.ensure_future(test.streaming_input_call(nothing()))
            await asyncio.sleep(0)  # the call begins
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            # The connection is as good as before.
            assert await test.empty_call(Empty()) == Empty()

    asyncio.run(main())


@case
def cancel_after_first_response(url: str) -> None:
    over = queue.Queue[None]()

    def requests() -> Iterator[StreamingOutputCallRequest]:
        yield asking(31415, payload=27182)
        over.get(timeout=PATIENCE)

    with connect(url) as test:
        replies = test.full_duplex_call(requests())
        assert sizes([next(replies)]) == [31415]
        replies.close()
        # Who has closed it knows why it ended: like a generator, it has no more items.
        assert list(replies) == []
        over.put(None)
        assert test.empty_call(Empty()) == Empty()


@case
def timeout_on_sleeping_server(url: str) -> None:
    over = queue.Queue[None]()

    def requests() -> Iterator[StreamingOutputCallRequest]:
        yield asking(payload=27182)
        over.get(timeout=PATIENCE)

    with connect(url) as test:
        with nearcall.timeout(0.001), pytest.raises(nearcall.DeadlineExceeded):
            list(test.full_duplex_call(requests()))
        over.put(None)
        assert test.empty_call(Empty()) == Empty()


@case
def concurrent_large_unary(url: str) -> None:
    """A thousand calls on one connection: from threads, and from one event loop."""
    with connect(url) as test, ThreadPoolExecutor(32) as pool:
        for reply in pool.map(test.unary_call, [LARGE] * 1000):
            is_large(reply)

    async def main() -> None:
        async with nearcall.aio.connect(url, TestService, timeout=PATIENCE) as test:
            for reply in await asyncio.gather(*(test.unary_call(LARGE) for _ in range(200))):
                is_large(reply)

    asyncio.run(main())


# The suite's first call of both is one that says that it is compressed, and is not. A server that sees which it was
# refuses it, as ours does (test_cases.py); handlers of grpcio and of Java's do not see it, and answer.


@case
def client_compressed_unary(url: str) -> None:
    with connect(url) as test:
        expected = replace(LARGE, expect_compressed=BoolValue(True))
        with suppress(nearcall.InvalidArgument):
            is_large(test.unary_call(expected))
        with nearcall.compression("gzip"):
            is_large(test.unary_call(expected))
        is_large(test.unary_call(replace(LARGE, expect_compressed=BoolValue(False))))


@case
def client_compressed_streaming(url: str) -> None:
    with connect(url) as test:
        with suppress(nearcall.InvalidArgument):
            test.streaming_input_call(iter([StreamingInputCallRequest(zeros(SENT[0]), BoolValue(True))]))

        def requests() -> Iterator[StreamingInputCallRequest]:
            yield StreamingInputCallRequest(zeros(SENT[0]), BoolValue(True))
            compression.compress = False
            yield StreamingInputCallRequest(zeros(SENT[3]), BoolValue(False))

        with nearcall.compression("gzip") as compression:
            assert test.streaming_input_call(requests()).aggregated_payload_size == SENT[0] + SENT[3]


@case
def server_compressed_unary(url: str) -> None:
    """The reply is read, compressed or not: our client's users cannot see which it was."""
    with connect(url) as test:
        for compressed in (True, False):
            request = replace(LARGE, response_compressed=BoolValue(compressed))
            is_large(test.unary_call(request))


@case
def server_compressed_streaming(url: str) -> None:
    asked = [
        ResponseParameters(31415, compressed=BoolValue(True)),
        ResponseParameters(92653, compressed=BoolValue(False)),
    ]
    with connect(url) as test:
        request = StreamingOutputCallRequest(response_parameters=asked)
        assert sizes(test.streaming_output_call(request)) == [31415, 92653]
