"""One servicer, written for grpcio, served by grpcio itself and by nearcall: a program for threads, one for loops.

Messages are texts, whose writers and readers are here, so that no generated module is needed. The program prints the
addresses, as JSON, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

import nearcall.grpcio

SERVICE = "test.v1.Texts"
DETAILS = b"\x08\x05\x12\x04lost\x1a\x11\n\x0btype/a.Name\x12\x02\x08\x01"
"""A google.rpc.Status with the code NOT_FOUND, the message ``lost`` and one detail."""
SHAPES = {"unary": (False, False), "many": (False, True), "total": (True, False), "chat": (True, True)}
"""Whether client and server stream."""


def write(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()  # grpc.aio encodes a text before it asks
    if data == b"unfit":
        raise ValueError("this text is not written")
    return data


def read(data: bytes) -> str:
    if data == b"unread":
        raise ValueError("this text is not read")
    return data.decode()


class Status(grpc.Status):
    code = grpc.StatusCode.NOT_FOUND
    details = "lost"
    trailing_metadata = (("grpc-status-details-bin", DETAILS), ("x-more", "1"))


class Threads:
    """The servicer for threads."""

    def __init__(self) -> None:
        self._log: list[str] = []

    def unary(self, request: str, context: grpc.ServicerContext) -> str:
        word, _, rest = request.partition(" ")
        if word == "abort":
            context.abort(grpc.StatusCode.ALREADY_EXISTS, rest)
        if word == "swallow":
            try:
                context.abort(grpc.StatusCode.ABORTED, rest)
            except Exception:
                return "swallowed"
        if word == "status":
            context.abort_with_status(Status())
        if word == "code":
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            context.set_details(rest)
            return None  # type: ignore[return-value]
        if word == "raise":
            raise KeyError(rest)
        if word == "coded":
            context.set_code(grpc.StatusCode.DATA_LOSS)
            context.set_details(rest)
            raise KeyError
        if word == "metadata":
            came = [(key, value) for key, value in context.invocation_metadata() if key.startswith("x-")]
            context.send_initial_metadata((("x-initial", "i"),))
            context.set_trailing_metadata((("x-gone", "0"),))
            context.set_trailing_metadata((("x-trailing", "t"), ("x-bytes-bin", b"\0\1")))
            return repr(sorted(came))
        if word == "left":
            left = context.time_remaining()
            return "none" if left is None or left > 1e9 else str(round(left))
        if word == "who":
            return context.peer().partition(":")[0]
        if word == "hold":
            gate = threading.Event()
            context.add_callback(gate.set)
            self._log.append(f"active {context.is_active()}")
            gate.wait(20)
            self._log.append(f"active {context.is_active()}")
            return "held"
        if word == "after":
            context.add_callback(lambda: self._log.append(f"callback {rest}"))
        if word == "log":
            log, self._log = self._log, []
            return ",".join(log)
        return request

    def many(self, request: str, context: grpc.ServicerContext) -> Iterator[str]:
        word, _, rest = request.partition(" ")
        for number in range(int(rest)):
            yield str(number)
        if word == "abort":
            context.abort(grpc.StatusCode.ABORTED, "enough")
        if word == "code":
            context.set_code(grpc.StatusCode.DATA_LOSS)
            context.set_details("some")
        if word == "raise":
            raise KeyError
        if word == "endless":
            try:
                while context.is_active():
                    yield "more"
                    time.sleep(0.001)
            finally:
                self._log.append("ended")

    def total(self, requests: Iterator[str], context: grpc.ServicerContext) -> str:
        found: list[str] = []
        for request in requests:
            found.append(request)
            if request == "stop":
                break
        return "+".join(found)

    def chat(self, requests: Iterator[str], context: grpc.ServicerContext) -> Iterator[str]:
        for request in requests:
            if request == "abort":
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no chat")
            yield request[::-1]


class Loops:
    """The servicer for event loops."""

    def __init__(self) -> None:
        self._home = asyncio.get_running_loop()
        self._log: list[str] = []

    async def unary(self, request: str, context: Any) -> str:
        assert asyncio.get_running_loop() is self._home
        word, _, rest = request.partition(" ")
        if word == "abort":
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, rest)
        if word == "swallow":
            try:
                await context.abort(grpc.StatusCode.ABORTED, rest)
            except grpc.aio.AbortError:
                return "swallowed"
        if word == "status":
            await context.abort_with_status(Status())
        if word == "code":
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            context.set_details(rest)
            return ""
        if word == "raise":
            raise KeyError(rest)
        if word == "metadata":
            came = [(key, value) for key, value in context.invocation_metadata() if key.startswith("x-")]
            await context.send_initial_metadata((("x-initial", "i"),))
            context.set_trailing_metadata((("x-trailing", "t"), ("x-bytes-bin", b"\0\1")))
            return repr(sorted(came))
        if word == "left":
            left = context.time_remaining()
            return "none" if left is None or left > 1e9 else str(round(left))
        if word == "hold":
            self._log.append("held")
            context.add_done_callback(lambda _: self._log.append("done"))
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                self._log.append("cancelled")
                raise
        if word == "log":
            log, self._log = self._log, []
            return ",".join(log)
        return request

    async def many(self, request: str, context: Any) -> AsyncIterator[str]:
        word, _, rest = request.partition(" ")
        for number in range(int(rest)):
            yield str(number)
        if word == "abort":
            await context.abort(grpc.StatusCode.ABORTED, "enough")
        if word == "raise":
            raise KeyError

    async def total(self, requests: Any, context: Any) -> str:
        found: list[str] = []
        while (request := await context.read()) is not grpc.aio.EOF:
            found.append(request)
        return "+".join(found)

    async def chat(self, requests: AsyncIterator[str], context: Any) -> None:
        async for request in requests:
            if request == "abort":
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no chat")
            await context.write(request[::-1])


def add(servicer: object, server: Any) -> None:
    """As generated code adds a servicer."""
    make = {(False, False): grpc.unary_unary_rpc_method_handler, (False, True): grpc.unary_stream_rpc_method_handler}
    make |= {(True, False): grpc.stream_unary_rpc_method_handler, (True, True): grpc.stream_stream_rpc_method_handler}
    handlers = {name: make[shape](getattr(servicer, name), read, write) for name, shape in SHAPES.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_registered_method_handlers(SERVICE, handlers)


def threads(shm: str) -> None:
    theirs = grpc.server(ThreadPoolExecutor(8))
    ours = nearcall.grpcio.server(ThreadPoolExecutor(8))
    found: dict[str, object] = {}
    for name, server in (("grpcio", theirs), ("nearcall", ours)):
        add(Threads(), server)
        found[name] = server.add_insecure_port("127.0.0.1:0")
    found["shm"] = ours.add_url(shm)
    theirs.start()
    ours.start()
    print(json.dumps(found), flush=True)
    sys.stdin.read()
    theirs.stop(0)
    ours.stop(0).wait()


async def loops(shm: str) -> None:
    theirs, ours = grpc.aio.server(), nearcall.grpcio.aio.server()
    found: dict[str, object] = {}
    for name, server in (("grpcio", theirs), ("nearcall", ours)):
        add(Loops(), server)
        found[name] = server.add_insecure_port("127.0.0.1:0")
    found["shm"] = ours.add_url(shm)
    await theirs.start()
    await ours.start()
    print(json.dumps(found), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await theirs.stop(0)
    await ours.stop(0)


def main() -> None:
    kind, shm = sys.argv[1:]
    if kind == "threads":
        threads(shm)
    else:
        asyncio.run(loops(shm))
