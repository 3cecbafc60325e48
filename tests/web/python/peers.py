"""connectrpc for Python, as a client and as a server of the test service: a program that knows nothing of nearcall.

It uses what protoc has made of the ``.proto`` that ``nearcall proto`` prints, in a folder that is on its path::

    peers.py client URL connect|grpc|grpc-web 1.1|2 proto|json
                         prints what came as JSON, a line for each case
    peers.py server      prints its port of HTTP/1.1, serves until its input ends
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import web_pb2 as pb
from connectrpc.client import ConnectClientSync, ResponseMetadata
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_codecs, google_protobuf_json_codec
from connectrpc.compression.gzip import GzipCompression
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType
from connectrpc.request import Headers
from connectrpc.server import ConnectASGIApplication, Endpoint
from protobuf.wkt import StringValue
from pyqwest import HTTPVersion, SyncClient, SyncHTTPTransport

SERVICE = "test.v1.Web"


def method(name: str, kind: StreamType = StreamType.UNARY, *, safe: bool = False) -> MethodInfo[Any, Any]:
    level = IdempotencyLevel.NO_SIDE_EFFECTS if safe else IdempotencyLevel.UNKNOWN
    takes, gives = getattr(pb, f"Web{name}Request"), getattr(pb, f"Web{name}Response")
    return MethodInfo(
        name=name, service_name=SERVICE, input=takes, output=gives, idempotency_level=level, stream_type=kind
    )


ADD, GREET, FAIL, METADATA, HOLD = method("Add", safe=True), *map(method, ("Greet", "Fail", "Metadata", "Hold"))
COUNTDOWN, BREAKS = (method(name, StreamType.SERVER_STREAM) for name in ("Countdown", "Breaks"))
TOTAL, BOTH = method("Total", StreamType.CLIENT_STREAM), method("Both", StreamType.BIDI_STREAM)
GIVEN_UP, METHOD = method("GivenUp"), method("Method", safe=True)


# The client.


def tell(name: str, value: object) -> None:
    print(json.dumps([name, value]))


def failure(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except ConnectError as error:
        return [error.code.name.title().replace("_", ""), error.message]
    return ["no failure"]


def call(url: str, protocol: str, version: str, codec: str) -> None:
    http = SyncClient(
        SyncHTTPTransport(http_version=HTTPVersion.HTTP2 if version == "2" else HTTPVersion.HTTP1, enable_otel=False)
    )
    options: dict[str, Any] = {
        "protocol": ProtocolType[protocol.upper().replace("-", "_")],
        "codec": google_protobuf_binary_codec() if codec == "proto" else google_protobuf_json_codec(),
        "http_client": http,
    }
    client = ConnectClientSync(url, send_compression=None, **options)

    def unary(info: MethodInfo[Any, Any], by: ConnectClientSync = client, **more: Any) -> Any:
        options = {key: more.pop(key) for key in ("headers", "timeout_ms", "use_get") if key in more}
        return by.execute_unary(request=info.input(**more), method=info, **options)

    def collected(info: MethodInfo[Any, Any], **more: Any) -> list[int]:
        return [reply.value for reply in client.execute_server_stream(request=info.input(**more), method=info)]

    def numbers(info: MethodInfo[Any, Any]) -> Iterator[Any]:
        return (info.input(xs=x) for x in range(1, 101))

    tell("unary", unary(ADD, a=1, b=2).value)
    tell("zeros", unary(ADD).value)
    tell("text", unary(GREET, name="Käse 🦀").value)
    tell("failure", failure(lambda: unary(FAIL, why='not "here"')))
    with ResponseMetadata() as seen:
        unary(METADATA, headers=Headers({"x-word": "hello", "x-bytes-bin": "AP8"}))
    tail = seen.trailers
    tell("metadata", [seen.headers["x-word-back"], tail["x-word-tail"], tail["x-bytes-tail-bin"]])
    tell("countdown", collected(COUNTDOWN, n=3))
    tell("broken stream", failure(lambda: collected(BREAKS)))
    tell("deadline", failure(lambda: unary(HOLD, timeout_ms=100))[0])
    tell("total", client.execute_client_stream(request=numbers(TOTAL), method=TOTAL).value)
    if version == "2":
        tell("both", [reply.value for reply in client.execute_bidi_stream(request=numbers(BOTH), method=BOTH)])
    if protocol == "connect":
        tell("get", unary(ADD, a=3, b=4, use_get=True).value)
        packed = ConnectClientSync(url, send_compression=GzipCompression(), **options)
        tell("compressed", len(unary(GREET, by=packed, name="x" * 10_000).value))
        tell("compressed get", unary(ADD, by=packed, a=5, b=6, use_get=True).value)


# The server.


class Web:
    def __init__(self) -> None:
        self.given_up = 0

    async def add(self, request: Any, _: Any) -> Any:
        return ADD.output(value=request.a + request.b)

    async def greet(self, request: Any, _: Any) -> Any:
        return GREET.output(value=request.name)

    async def fail(self, request: Any, context: Any) -> Any:
        context.response_trailers["x-tail"] = "of the error"
        raise ConnectError(Code.FAILED_PRECONDITION, request.why, details=[StringValue(value="more")])

    async def metadata(self, _: Any, context: Any) -> Any:
        word, data = context.request_headers["x-word"], context.request_headers["x-bytes-bin"]
        context.response_headers["x-word-back"] = word
        context.response_trailers["x-word-tail"] = word
        context.response_trailers["x-bytes-tail-bin"] = data
        return METADATA.output()

    async def countdown(self, request: Any, _: Any) -> AsyncIterator[Any]:
        for value in range(request.n, 0, -1):
            if value % 100 == 0:
                # A long one lets the loop notice who has gone.
                await asyncio.sleep(0)
            yield COUNTDOWN.output(value=value)

    async def breaks(self, _: Any, __: Any) -> AsyncIterator[Any]:
        yield BREAKS.output(value=1)
        raise ConnectError(Code.ABORTED, "enough")

    async def hold(self, _: Any, __: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            self.given_up += 1

    async def total(self, requests: AsyncIterator[Any], _: Any) -> Any:
        return TOTAL.output(value=sum([request.xs async for request in requests]))

    async def both(self, requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield BOTH.output(value=-request.xs)

    async def gave_up(self, _: Any, __: Any) -> Any:
        return GIVEN_UP.output(value=self.given_up)

    async def method(self, _: Any, context: Any) -> Any:
        return METHOD.output(value=context.http_method)


class Application(ConnectASGIApplication[Web]):
    @property
    def path(self) -> str:
        return f"/{SERVICE}"


def endpoints(web: Web) -> dict[str, Endpoint[Any, Any]]:
    found = [
        *(Endpoint.unary(*pair) for pair in ((ADD, web.add), (GREET, web.greet), (FAIL, web.fail), (HOLD, web.hold))),
        *(Endpoint.unary(*pair) for pair in ((METADATA, web.metadata), (GIVEN_UP, web.gave_up), (METHOD, web.method))),
        Endpoint.server_stream(COUNTDOWN, web.countdown),
        Endpoint.server_stream(BREAKS, web.breaks),
        Endpoint.client_stream(TOTAL, web.total),
        Endpoint.bidi_stream(BOTH, web.both),
    ]
    return {f"/{SERVICE}/{endpoint.method.name}": endpoint for endpoint in found}


def serve() -> None:
    import uvicorn

    application = Application(service=Web(), endpoints=endpoints, codecs=google_protobuf_codecs())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning", lifespan="off"))

    async def main() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        print(json.dumps([listener.getsockname()[1]]), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving

    asyncio.run(main())


if __name__ == "__main__":
    {"client": call, "server": serve}[sys.argv[1]](*sys.argv[2:])
