"""grpcio's server and client of the test service, a program that knows nothing of nearcall.

It uses what protoc has made of the .proto that `nearcall proto` prints, in a folder that is on its path::

    grpcio_peer.py server PORT [CERTIFICATE KEY]   serves until its input ends
    grpcio_peer.py client CASE PORT [AUTHORITY]    exit status 0 if the case holds

A case's name is that of gRPC's suite, whose document says what it does
(https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md).
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import grpc
import test_service_pb2 as pb
import test_service_pb2_grpc

SENT = (27182, 8, 1828, 45904)
ASKED = (31415, 9, 2653, 58979)
LARGE_REQUEST, LARGE_REPLY = 271828, 314159
PATIENCE = 30.0
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


# The server.


class Service(test_service_pb2_grpc.TestServiceServicer):
    def EmptyCall(self, request: Any, context: Any) -> Any:
        return pb.Empty()

    def UnaryCall(self, request: Any, context: Any) -> Any:
        echo_metadata(context)
        fail_as_asked(request, context)
        if request.HasField("response_compressed") and request.response_compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        return pb.SimpleResponse(payload=pb.Payload(body=bytes(request.response_size)))

    def StreamingOutputCall(self, request: Any, context: Any) -> Iterator[Any]:
        if any(asked.compressed.value for asked in request.response_parameters):
            context.set_compression(grpc.Compression.Gzip)
        yield from answers(request, context)

    def StreamingInputCall(self, requests: Iterator[Any], context: Any) -> Any:
        return pb.StreamingInputCallResponse(aggregated_payload_size=sum(len(one.payload.body) for one in requests))

    def FullDuplexCall(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        echo_metadata(context)
        for request in requests:
            yield from answers(request, context)


def answers(request: Any, context: Any) -> Iterator[Any]:
    fail_as_asked(request, context)
    for asked in request.response_parameters:
        sleep(asked.interval_us / 1e6)
        if asked.HasField("compressed") and not asked.compressed.value:
            context.disable_next_message_compression()
        yield pb.StreamingOutputCallResponse(payload=pb.Payload(body=bytes(asked.size)))


def fail_as_asked(request: Any, context: Any) -> None:
    if request.response_status.code:
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[request.response_status.code], request.response_status.message)


def echo_metadata(context: Any) -> None:
    came = dict(context.invocation_metadata())
    if INITIAL in came:
        context.send_initial_metadata([(INITIAL, came[INITIAL])])
    if TRAILING in came:
        context.set_trailing_metadata([(TRAILING, came[TRAILING])])


def serve(port: str, certificate: str | None = None, key: str | None = None) -> None:
    server = grpc.server(ThreadPoolExecutor(32))
    test_service_pb2_grpc.add_TestServiceServicer_to_server(Service(), server)
    if certificate and key:
        pair = (Path(key).read_bytes(), Path(certificate).read_bytes())
        server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    sys.stdin.read()
    server.stop(0).wait()


# The client.

CASES: dict[str, Callable[[Any, grpc.Channel], None]] = {}


def case(function: Callable[[Any, grpc.Channel], None]) -> Callable[[Any, grpc.Channel], None]:
    CASES[function.__name__] = function
    return function


def zeros(size: int) -> Any:
    return pb.Payload(body=bytes(size))


def asking(*sizes: int, payload: int | None = None) -> Any:
    request = pb.StreamingOutputCallRequest(response_parameters=[pb.ResponseParameters(size=size) for size in sizes])
    if payload is not None:
        request.payload.body = bytes(payload)
    return request


def large(**more: Any) -> Any:
    return pb.SimpleRequest(response_size=LARGE_REPLY, payload=zeros(LARGE_REQUEST), **more)


def is_large(reply: Any) -> None:
    assert reply.payload.body == bytes(LARGE_REPLY)


def fails(code: int, message: str | None, call: Callable[[], object]) -> None:
    try:
        call()
    except grpc.RpcError as error:
        found: Any = error
        assert found.code().value[0] == code, found
        assert message is None or found.details() == message, found
    else:
        raise AssertionError("the call did not fail")


@case
def empty_unary(stub: Any, channel: grpc.Channel) -> None:
    assert stub.EmptyCall(pb.Empty(), timeout=PATIENCE) == pb.Empty()


@case
def large_unary(stub: Any, channel: grpc.Channel) -> None:
    is_large(stub.UnaryCall(large(), timeout=PATIENCE))


@case
def client_streaming(stub: Any, channel: grpc.Channel) -> None:
    requests = (pb.StreamingInputCallRequest(payload=zeros(size)) for size in SENT)
    assert stub.StreamingInputCall(requests, timeout=PATIENCE).aggregated_payload_size == sum(SENT)


@case
def server_streaming(stub: Any, channel: grpc.Channel) -> None:
    replies = stub.StreamingOutputCall(asking(*ASKED), timeout=PATIENCE)
    assert [reply.payload.body for reply in replies] == [bytes(size) for size in ASKED]


@case
def ping_pong(stub: Any, channel: grpc.Channel) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    replies = stub.FullDuplexCall(iter(requests.get, None), timeout=PATIENCE)
    for size, asked in zip(SENT, ASKED, strict=True):
        requests.put(asking(asked, payload=size))
        assert next(replies).payload.body == bytes(asked)
    requests.put(None)
    assert list(replies) == []


@case
def empty_stream(stub: Any, channel: grpc.Channel) -> None:
    assert list(stub.FullDuplexCall(iter(()), timeout=PATIENCE)) == []


@case
def custom_metadata(stub: Any, channel: grpc.Channel) -> None:
    sent = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
    reply, unary = stub.UnaryCall.with_call(large(), metadata=sent, timeout=PATIENCE)
    is_large(reply)
    request = asking(LARGE_REPLY, payload=LARGE_REQUEST)
    stream = stub.FullDuplexCall(iter([request]), metadata=sent, timeout=PATIENCE)
    assert [len(reply.payload.body) for reply in stream] == [LARGE_REPLY]
    for call in (unary, stream):
        assert dict(call.initial_metadata())[INITIAL] == sent[0][1]
        assert dict(call.trailing_metadata())[TRAILING] == sent[1][1]


@case
def status_code_and_message(stub: Any, channel: grpc.Channel) -> None:
    status = pb.EchoStatus(code=2, message="test status message")
    unary = pb.SimpleRequest(response_status=status)
    fails(2, status.message, lambda: stub.UnaryCall(unary, timeout=PATIENCE))
    item = pb.StreamingOutputCallRequest(response_status=status)
    fails(2, status.message, lambda: list(stub.FullDuplexCall(iter([item]), timeout=PATIENCE)))


@case
def special_status_message(stub: Any, channel: grpc.Channel) -> None:
    message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
    request = pb.SimpleRequest(response_status=pb.EchoStatus(code=2, message=message))
    fails(2, message, lambda: stub.UnaryCall(request, timeout=PATIENCE))


def unimplemented(channel: grpc.Channel, service: str) -> None:
    method = channel.unary_unary(f"/grpc.testing.{service}/UnimplementedCall")
    fails(12, None, lambda: method(b"", timeout=PATIENCE))


@case
def unimplemented_method(stub: Any, channel: grpc.Channel) -> None:
    unimplemented(channel, "TestService")


@case
def unimplemented_service(stub: Any, channel: grpc.Channel) -> None:
    unimplemented(channel, "UnimplementedService")


@case
def cancel_after_begin(stub: Any, channel: grpc.Channel) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    call = stub.StreamingInputCall.future(iter(requests.get, None))
    call.cancel()
    assert call.cancelled()
    assert call.code() is grpc.StatusCode.CANCELLED
    requests.put(None)


@case
def cancel_after_first_response(stub: Any, channel: grpc.Channel) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    call = stub.FullDuplexCall(iter(requests.get, None))
    requests.put(asking(ASKED[0], payload=SENT[0]))
    assert next(call).payload.body == bytes(ASKED[0])
    call.cancel()
    fails(1, None, lambda: next(call))
    requests.put(None)


@case
def timeout_on_sleeping_server(stub: Any, channel: grpc.Channel) -> None:
    requests: queue.Queue[Any] = queue.Queue()
    requests.put(asking(payload=SENT[0]))
    fails(4, None, lambda: list(stub.FullDuplexCall(iter(requests.get, None), timeout=0.001)))
    requests.put(None)


@case
def concurrent_large_unary(stub: Any, channel: grpc.Channel) -> None:
    for call in [stub.UnaryCall.future(large(), timeout=PATIENCE) for _ in range(1000)]:
        is_large(call.result())


# grpcio compresses all messages of a call or none, so a stream with both is left to others.


@case
def client_compressed_unary(stub: Any, channel: grpc.Channel) -> None:
    expected = pb.BoolValue(value=True)
    fails(3, None, lambda: stub.UnaryCall(large(expect_compressed=expected), timeout=PATIENCE))
    is_large(stub.UnaryCall(large(expect_compressed=expected), compression=grpc.Compression.Gzip, timeout=PATIENCE))
    is_large(stub.UnaryCall(large(expect_compressed=pb.BoolValue(value=False)), timeout=PATIENCE))


@case
def client_compressed_streaming(stub: Any, channel: grpc.Channel) -> None:
    requests = [
        pb.StreamingInputCallRequest(payload=zeros(size), expect_compressed=pb.BoolValue(value=True))
        for size in (SENT[0], SENT[3])
    ]
    fails(3, None, lambda: stub.StreamingInputCall(iter(requests), timeout=PATIENCE))
    reply = stub.StreamingInputCall(iter(requests), compression=grpc.Compression.Gzip, timeout=PATIENCE)
    assert reply.aggregated_payload_size == SENT[0] + SENT[3]


@case
def server_compressed_unary(stub: Any, channel: grpc.Channel) -> None:
    for compressed in (True, False):
        is_large(stub.UnaryCall(large(response_compressed=pb.BoolValue(value=compressed)), timeout=PATIENCE))


@case
def server_compressed_streaming(stub: Any, channel: grpc.Channel) -> None:
    sizes = (ASKED[0], 92653)
    asked = [
        pb.ResponseParameters(size=size, compressed=pb.BoolValue(value=compressed))
        for size, compressed in zip(sizes, (True, False), strict=True)
    ]
    replies = stub.StreamingOutputCall(pb.StreamingOutputCallRequest(response_parameters=asked), timeout=PATIENCE)
    assert [reply.payload.body for reply in replies] == [bytes(size) for size in sizes]


def run(name: str, port: str, authority: str | None = None) -> None:
    if authority is None:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    else:
        roots = Path(authority).read_bytes()
        channel = grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(roots))
    with channel:
        CASES[name](test_service_pb2_grpc.TestServiceStub(channel), channel)


if __name__ == "__main__":
    {"server": serve, "client": run}[sys.argv[1]](*sys.argv[2:])
