"""The test service of gRPC's interoperability suite, as a class of nearcall.

Its messages have the names, types and numbers that all of gRPC's implementations agree on, as far as the cases need
them (https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md). The rest of a message is skipped by
whoever does not know it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Protocol

import nearcall
from nearcall.errors import error_class

ECHO_INITIAL = "x-grpc-test-echo-initial"
"""Metadata that comes back ahead of the result."""
ECHO_TRAILING = "x-grpc-test-echo-trailing-bin"
"""Metadata that comes back with the end."""

Int32 = Annotated[int, nearcall.field(type="int32")]


class PayloadType(IntEnum):
    COMPRESSABLE = 0


@dataclass
class Empty:
    pass


@dataclass
class BoolValue:
    value: bool


@dataclass
class Payload:
    type: PayloadType
    body: bytes


@dataclass
class EchoStatus:
    code: Int32
    message: str


@dataclass
class SimpleRequest:
    response_type: Annotated[PayloadType, nearcall.field(1)] = PayloadType.COMPRESSABLE
    response_size: Annotated[int, nearcall.field(2, type="int32")] = 0
    payload: Annotated[Payload | None, nearcall.field(3)] = None
    response_compressed: Annotated[BoolValue | None, nearcall.field(6)] = None
    response_status: Annotated[EchoStatus | None, nearcall.field(7)] = None
    expect_compressed: Annotated[BoolValue | None, nearcall.field(8)] = None


@dataclass
class SimpleResponse:
    payload: Payload | None


@dataclass
class StreamingInputCallRequest:
    payload: Payload | None
    expect_compressed: BoolValue | None = None


@dataclass
class StreamingInputCallResponse:
    aggregated_payload_size: Int32


@dataclass
class ResponseParameters:
    size: Int32
    interval_us: Int32 = 0
    compressed: BoolValue | None = None


@dataclass
class StreamingOutputCallRequest:
    response_type: Annotated[PayloadType, nearcall.field(1)] = PayloadType.COMPRESSABLE
    response_parameters: Annotated[list[ResponseParameters], nearcall.field(2)] = field(default_factory=list)
    payload: Annotated[Payload | None, nearcall.field(3)] = None
    response_status: Annotated[EchoStatus | None, nearcall.field(7)] = None


@dataclass
class StreamingOutputCallResponse:
    payload: Payload | None


@nearcall.service(name="grpc.testing.TestService")
class TestService:
    """The methods that the cases call."""

    def empty_call(self, request: Empty) -> Empty:
        return Empty()

    def unary_call(self, request: SimpleRequest) -> SimpleResponse:
        echo_metadata()
        fail_as_asked(request.response_status)
        check_compressed(request.expect_compressed)
        compress_as_asked(request.response_compressed)
        return SimpleResponse(zeros(request.response_size))

    def streaming_output_call(self, request: StreamingOutputCallRequest) -> Iterator[StreamingOutputCallResponse]:
        yield from answers(request)

    def streaming_input_call(self, requests: Iterable[StreamingInputCallRequest]) -> StreamingInputCallResponse:
        size = 0
        for request in requests:
            check_compressed(request.expect_compressed)
            size += len(request.payload.body) if request.payload else 0
        return StreamingInputCallResponse(size)

    def full_duplex_call(self, requests: Iterable[StreamingOutputCallRequest]) -> Iterator[StreamingOutputCallResponse]:
        echo_metadata()
        for request in requests:
            yield from answers(request)


@nearcall.service(name="grpc.testing.TestService")
class TestServiceLacking(Protocol):
    """A method that the service of that name does not have."""

    def unimplemented_call(self, request: Empty) -> Empty: ...


@nearcall.service(name="grpc.testing.UnimplementedService")
class UnimplementedService(Protocol):
    """A service that the server does not have."""

    def unimplemented_call(self, request: Empty) -> Empty: ...


def zeros(size: int) -> Payload:
    """So many bytes of zeros."""
    return Payload(PayloadType.COMPRESSABLE, bytes(size))


def answers(request: StreamingOutputCallRequest) -> Iterator[StreamingOutputCallResponse]:
    """What a request asks for, in its pace."""
    fail_as_asked(request.response_status)
    # What the response's headers say holds for all its messages.
    nearcall.context().compress = any(one.compressed and one.compressed.value for one in request.response_parameters)
    for asked in request.response_parameters:
        time.sleep(asked.interval_us / 1e6)
        compress_as_asked(asked.compressed)
        yield StreamingOutputCallResponse(zeros(asked.size))


def check_compressed(expected: BoolValue | None) -> None:
    """Refuses a message that came otherwise than it says."""
    came = nearcall.context().received_compressed
    if expected is not None and expected.value != came:
        raise nearcall.InvalidArgument(f"the message came {'' if came else 'not '}compressed")


def compress_as_asked(compressed: BoolValue | None) -> None:
    """Whether the client wants to have what is sent next compressed."""
    nearcall.context().compress = compressed is not None and compressed.value


def fail_as_asked(status: EchoStatus | None) -> None:
    """Ends the call with the status that the client wants to see."""
    if status is not None and status.code != 0:
        raise error_class(status.code)(status.message)


def echo_metadata() -> None:
    """Sends the test's metadata back: a text ahead of the result, bytes with the end."""
    context = nearcall.context()
    if ECHO_INITIAL in context.metadata:
        context.send_metadata([(ECHO_INITIAL, value) for value in context.metadata.getall(ECHO_INITIAL)])
    if ECHO_TRAILING in context.metadata:
        context.add_trailing_metadata([(ECHO_TRAILING, value) for value in context.metadata.getall(ECHO_TRAILING)])


def served() -> list[object]:
    """The services of a server under test."""
    return [TestService()]
