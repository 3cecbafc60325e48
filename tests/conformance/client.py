"""The client under test: makes each call that the runner asks for, and says what came of it.

Argument: where the modules are that were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import messages
from messages import client_pb2, config_pb2, types

import nearcall
import nearcall.aio

AT_A_TIME = 32
"""Calls that are under way at once."""

_METHODS = {
    "Unary": "unary",
    "IdempotentUnary": "idempotent_unary",
    "Unimplemented": "unimplemented",
    "ClientStream": "client_stream",
    "ServerStream": "server_stream",
    "BidiStream": "bidi_stream",
}
_COMPRESSIONS: dict[int, Any] = {
    config_pb2.COMPRESSION_GZIP: "gzip",
    config_pb2.COMPRESSION_ZSTD: "zstd",
}


class Call:
    """One call, as the runner describes it."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked
        self._requests = [messages.unpacked(request) for request in asked.request_messages]
        self._sent = 0
        self._replied = asyncio.Event()
        self._payloads: list[Any] = []
        self._timing: str | None = asked.cancel.WhichOneof("cancel_timing") if asked.HasField("cancel") else None
        self._cancels = asked.HasField("cancel")
        self._task: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    def _url_and_options(self) -> tuple[str, dict[str, Any]]:
        asked = self._asked
        options: dict[str, Any] = {}
        if asked.message_receive_limit:
            options["max_message_size"] = asked.message_receive_limit
        is_encrypted = bool(asked.server_tls_cert)
        if is_encrypted:
            own = asked.client_tls_creds
            options["tls"] = nearcall.TLS(ca=asked.server_tls_cert, cert=own.cert or None, key=own.key or None)
        if asked.protocol == config_pb2.PROTOCOL_GRPC:
            scheme = "grpc"
        else:
            scheme = "http"
            options["codec"] = "json" if asked.codec == config_pb2.CODEC_JSON else "protobuf"
            options["use_get"] = asked.use_get_http_method
        return f"{scheme}{'s' if is_encrypted else ''}://{asked.host}:{asked.port}", options

    async def run(self) -> Any:
        """Makes it. What came of it."""
        asked = self._asked
        result = client_pb2.ClientResponseResult()
        url, options = self._url_and_options()
        encoding = _COMPRESSIONS.get(asked.compression)
        with nearcall.metadata(messages.metadata(asked.request_headers)) as metadata, contextlib.ExitStack() as stack:
            if encoding is not None:
                stack.enter_context(nearcall.compression(encoding)).compress = True
            try:
                async with nearcall.aio.connect(url, types.ConformanceService, **options) as service:
                    if asked.HasField("timeout_ms"):
                        stack.enter_context(nearcall.timeout(asked.timeout_ms / 1000))
                    self._task = asyncio.create_task(self._call(service))
                    await self._task
            except nearcall.RpcError as error:
                self._put_error(result, error)
            except asyncio.CancelledError:
                result.error.code = config_pb2.CODE_CANCELED
                result.error.message = "the call was given up"
            finally:
                if self._later is not None:
                    self._later.cancel()
        for payload in self._payloads:
            messages.to_message(payload or types.ConformancePayload(), result.payloads.add())
        result.response_headers.extend(messages.headers(metadata.initial.pairs()))
        result.response_trailers.extend(messages.headers(metadata.trailing.pairs()))
        if asked.stream_type not in {config_pb2.STREAM_TYPE_UNARY, config_pb2.STREAM_TYPE_SERVER_STREAM}:
            result.num_unsent_requests = len(self._requests) - self._sent
        return result

    @staticmethod
    def _put_error(result: Any, error: nearcall.RpcError) -> None:
        result.error.code = int(error.code)
        result.error.message = error.message
        for detail in cast("list[dict[str, Any]]", error.details or []):
            result.error.details.add(type_url=detail["type"], value=detail["value"])

    async def _call(self, service: Any) -> None:
        method = getattr(service, _METHODS[self._asked.method])
        kind = self._asked.stream_type
        is_alternating = kind == config_pb2.STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM
        if kind in {config_pb2.STREAM_TYPE_UNARY, config_pb2.STREAM_TYPE_SERVER_STREAM}:
            argument = self._requests[0]
            self._all_is_sent()
        else:
            argument = self._stream(is_alternating)
        if kind in {config_pb2.STREAM_TYPE_UNARY, config_pb2.STREAM_TYPE_CLIENT_STREAM}:
            reply = await method(argument)
            self._payloads.append(reply.payload)
            return
        async for reply in method(argument):
            self._payloads.append(reply.payload)
            self._replied.set()
            if self._timing == "after_num_responses" and len(self._payloads) == self._asked.cancel.after_num_responses:
                self._give_up()
                await asyncio.sleep(0)

    async def _stream(self, is_alternating: bool) -> AsyncIterator[Any]:
        for request in self._requests:
            await asyncio.sleep(self._asked.request_delay_ms / 1000)
            self._replied.clear()
            yield request
            self._sent += 1
            if is_alternating:
                await self._replied.wait()
        if self._timing == "before_close_send":
            self._give_up()
            await asyncio.sleep(0)
        self._all_is_sent()

    def _all_is_sent(self) -> None:
        """Cancels the call after the time that the runner wants, if it does."""
        if self._cancels and self._timing in {None, "after_close_send_ms"}:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(self._asked.cancel.after_close_send_ms / 1000, self._give_up)

    def _give_up(self) -> None:
        assert self._task is not None
        self._task.cancel()


def _requests() -> Iterator[Any]:
    while (asked := messages.read(sys.stdin.buffer, client_pb2.ClientCompatRequest)) is not None:
        yield asked


async def main() -> None:
    loop = asyncio.get_running_loop()
    room = asyncio.Semaphore(AT_A_TIME)

    async def answer(asked: Any) -> None:
        answered = client_pb2.ClientCompatResponse(test_name=asked.test_name)
        try:
            answered.response.CopyFrom(await Call(asked).run())
        except Exception as error:
            answered.error.message = f"{type(error).__name__}: {error}"
        finally:
            room.release()
        messages.write(sys.stdout.buffer, answered)

    asked = _requests()
    calls = set[asyncio.Task[None]]()
    while (one := await loop.run_in_executor(None, next, asked, None)) is not None:
        await room.acquire()
        call = asyncio.create_task(answer(one))
        calls.add(call)
        call.add_done_callback(calls.discard)
    await asyncio.gather(*calls)


if __name__ == "__main__":
    asyncio.run(main())
