"""The server under test: reads one request of the runner's, and serves as it says until it is ended.

Argument: where the modules are that were made.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import messages
from messages import types

import nearcall
from nearcall.errors import error_class

Request = Any


@nearcall.service(name="connectrpc.conformance.v1.ConformanceService")
class Conformance(types.ConformanceService):  # type: ignore[misc]
    """Does what each request says, which is described in the suite's service.proto."""

    def unary(self, request: types.UnaryRequest) -> types.UnaryResponse:
        return types.UnaryResponse(payload=_only_reply([request]))

    @nearcall.no_side_effects
    def idempotent_unary(self, request: types.IdempotentUnaryRequest) -> types.IdempotentUnaryResponse:
        return types.IdempotentUnaryResponse(payload=_only_reply([request]))

    def client_stream(self, requests: Iterator[types.ClientStreamRequest]) -> types.ClientStreamResponse:
        return types.ClientStreamResponse(payload=_only_reply(list(requests)))

    def server_stream(self, request: types.ServerStreamRequest) -> Iterator[types.ServerStreamResponse]:
        for payload in _replies(request.response_definition, [request]):
            yield types.ServerStreamResponse(payload=payload)

    def bidi_stream(self, requests: Iterator[types.BidiStreamRequest]) -> Iterator[types.BidiStreamResponse]:
        first = next(requests, None)
        if first is None:
            return
        if first.full_duplex:
            payloads = _alternating(first, requests)
        else:
            payloads = _replies(first.response_definition, [first, *requests])
        for payload in payloads:
            yield types.BidiStreamResponse(payload=payload)

    def unimplemented(self, request: types.UnimplementedRequest) -> types.UnimplementedResponse:
        raise nearcall.Unimplemented("the suite wants this method not to be there")


def _info(requests: Iterable[Request]) -> Any:
    """What the call is known by, and its requests."""
    context = nearcall.context()
    info = messages.service_pb2.ConformancePayload.RequestInfo()
    info.request_headers.extend(messages.headers(context.metadata.pairs()))
    left = context.time_left
    if left is not None:
        info.timeout_ms = round(left * 1000)
    info.requests.extend(messages.packed(request) for request in requests)
    return info


def _payload(data: bytes, info: Any = None) -> Any:
    return types.ConformancePayload(data=data, request_info=None if info is None else messages.to_typed(info))


def _begin(definition: Any) -> None:
    context = nearcall.context()
    context.compress = True
    if definition is not None:
        context.add_trailing_metadata(messages.metadata(definition.response_trailers))
        context.send_metadata(messages.metadata(definition.response_headers))


def _failure(error: Any, info: Any = None) -> nearcall.RpcError:
    """The error to raise; with what the call is known by, if that has not been sent."""
    message = messages.to_message(error, messages.service_pb2.Error())
    if info is not None:
        message.details.add().Pack(info)
    details = [{"type": detail.type_url, "value": detail.value} for detail in message.details]
    return error_class(message.code)(message.message, details=details or None)


def _only_reply(requests: list[Request]) -> Any:
    definition = requests[0].response_definition if requests else None
    info = _info(requests)
    _begin(definition)
    if definition is None:
        return _payload(b"", info)
    time.sleep(definition.response_delay_ms / 1000)
    if definition.error is not None:
        raise _failure(definition.error, info)
    return _payload(definition.response_data or b"", info)


def _replies(definition: Any, requests: list[Request]) -> Iterator[Any]:
    """What is sent when all requests have come."""
    info = _info(requests)
    _begin(definition)
    if definition is None:
        return
    for at, data in enumerate(definition.response_data):
        time.sleep(definition.response_delay_ms / 1000)
        yield _payload(data, info if at == 0 else None)
    if definition.error is not None:
        raise _failure(definition.error, None if definition.response_data else info)


def _alternating(first: Request, rest: Iterator[Request]) -> Iterator[Any]:
    """A reply to each request, and then the replies that are left."""
    definition = first.response_definition
    _begin(definition)
    data = list(definition.response_data) if definition is not None else []
    sent = 0
    request: Request | None = first
    while request is not None and sent < len(data):
        info = _info([request])
        if sent > 0:
            requests = list(info.requests)
            info = messages.service_pb2.ConformancePayload.RequestInfo(requests=requests)
        time.sleep(definition.response_delay_ms / 1000)
        yield _payload(data[sent], info)
        sent += 1
        request = next(rest, None)
    for left in data[sent:]:
        time.sleep(definition.response_delay_ms / 1000)
        yield _payload(left)
    if definition is not None and definition.error is not None:
        raise _failure(definition.error, None if sent else _info([first]))


def main() -> None:
    # The suite wants to see many errors, and their tracebacks say nothing more.
    logging.getLogger("nearcall").setLevel(logging.CRITICAL)
    asked = messages.read(sys.stdin.buffer, messages.server_pb2.ServerCompatRequest)
    options: dict[str, Any] = {"max_concurrency": 64}
    if asked.message_receive_limit:
        options["max_message_size"] = asked.message_receive_limit
    if asked.use_tls:
        creds = asked.server_creds
        options["tls"] = nearcall.TLS(cert=creds.cert, key=creds.key, client_ca=asked.client_tls_cert or None)
    scheme = "https" if asked.use_tls else "http"

    def tell(server: Any) -> None:
        port = int(server.urls[0].rpartition(":")[2])
        answer = messages.server_pb2.ServerCompatResponse(host="127.0.0.1", port=port)
        if asked.use_tls:
            answer.pem_cert = asked.server_creds.cert
        messages.write(sys.stdout.buffer, answer)

    # The runner ends it by SIGTERM, and may leave calls under way.
    nearcall.serve(Conformance(), f"{scheme}://127.0.0.1:0", on_ready=tell, grace=0.0, **options)


if __name__ == "__main__":
    main()
