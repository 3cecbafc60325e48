"""A server of grpcio's with the methods of :class:`tests.e2e.grpc_services.Raw`, for our client."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

_gate = threading.Event()
_log: list[str] = []


def echo(data: bytes, context: Any) -> bytes:
    return data


def fail(data: bytes, context: Any) -> bytes:
    context.abort(grpc.StatusCode.NOT_FOUND, data.decode())
    raise AssertionError


def many(data: bytes, context: Any) -> bytes:
    return bytes(int(data))


def metadata(data: bytes, context: Any) -> bytes:
    came = [tuple(pair) for pair in context.invocation_metadata() if pair[0].startswith("x-")]
    context.send_initial_metadata(came)
    context.set_trailing_metadata(came)
    return repr(came).encode()


def left(data: bytes, context: Any) -> bytes:
    seconds = context.time_remaining()
    # Without a deadline that is very long.
    return repr(None if seconds is None or seconds > 1e6 else seconds).encode()


def hold(data: bytes, context: Any) -> bytes:
    _log.append("held")
    while not _gate.wait(0.01):
        if not context.is_active():
            _log.append("cancelled")
            break
    return data


def open_gate(data: bytes, context: Any) -> bytes:
    _gate.set()
    return b""


def shut_gate(data: bytes, context: Any) -> bytes:
    _gate.clear()
    return b""


def log(data: bytes, context: Any) -> bytes:
    return ",".join(_log).encode()


def count(data: bytes, context: Any) -> Iterator[bytes]:
    for number in range(int(data)):
        yield str(number).encode()


def blocks(data: bytes, context: Any) -> Iterator[bytes]:
    for number in range(int(data)):
        yield bytes([number % 256]) * (64 << 10)


def fail_after(data: bytes, context: Any) -> Iterator[bytes]:
    yield data
    context.abort(grpc.StatusCode.ABORTED, "enough")


def total(blocks: Iterator[bytes], context: Any) -> bytes:
    return str(sum(len(block) for block in blocks)).encode()


def slow_total(blocks: Iterator[bytes], context: Any) -> bytes:
    _gate.wait(20)
    return total(blocks, context)


def both(blocks: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for block in blocks:
        yield block[::-1]


class Raw(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.removeprefix("/test.Raw/")
        if name in ("total", "slow_total"):
            return grpc.stream_unary_rpc_method_handler(globals()[name])
        if name == "both":
            return grpc.stream_stream_rpc_method_handler(both)
        if name in ("count", "blocks", "fail_after"):
            return grpc.unary_stream_rpc_method_handler(globals()[name])
        known = {"echo": echo, "fail": fail, "many": many, "metadata": metadata, "left": left, "hold": hold}
        handler = (known | {"open": open_gate, "shut": shut_gate, "log": log}).get(name)
        return grpc.unary_unary_rpc_method_handler(handler) if handler else None


def main() -> None:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    options += [(name, int(value)) for name, value in (argument.split("=") for argument in sys.argv[1:])]
    server = grpc.server(ThreadPoolExecutor(32), handlers=[Raw()], options=options)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(0)
    time.sleep(0)
