"""The study's own method: one client, sequential echoes of a string, a fixed order, the mean, replies unchecked."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nearcall_lab.failure import explain
from nearcall_lab.studies.replica import Findings, main, say
from nearcall_lab.studies.serving import server_process

SIZES = (15, 1_000, 10_000, 60_000)
CALLS = 100_000
WARM_UP = 100
SLOW_S = 0.4
AFTERWARDS = 20
"""Calls in each demonstration of the library's behaviour after a failure."""


def slow(message: str) -> str:
    """Takes longer than a client of `after_a_timeout` waits."""
    time.sleep(SLOW_S)
    return message


def serve_shm(channel: str, ready: Callable[[Any], None]) -> None:
    """shm-rpc-bridge with the method the study registered."""
    from shm_rpc_bridge import RPCServer

    logging.disable(logging.CRITICAL)
    server = RPCServer(channel, buffer_size=200_000, timeout=10.0)
    server.register("echo", lambda message: message)
    server.register("slow", slow)
    ready(os.getpid())
    server.start()


def serve_grpc(address: str, threads: int, ready: Callable[[Any], None]) -> None:
    """grpcio's synchronous server; the study gave it one thread."""
    import grpc

    class_of = message_class()

    def echo(request: Any, context: Any) -> Any:
        return class_of(message=request.message)

    server = grpc.server(ThreadPoolExecutor(max_workers=threads))
    method = grpc.unary_unary_rpc_method_handler(
        echo, request_deserializer=class_of.FromString, response_serializer=class_of.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shm.Echo", {"Echo": method}),))
    port = server.add_insecure_port(address)
    server.start()
    ready(address if address.startswith("unix:") else f"127.0.0.1:{port}")
    server.wait_for_termination()


def message_class() -> Any:
    """A Protobuf message with one string, made at run time."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shm_study.proto", package="shm_study", syntax="proto3")
    file.message_type.add(name="Text").field.add(
        name="message", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shm_study.Text"))


def mean_us(call: Callable[[str], object], message: str, calls: int) -> float:
    """Total time divided by calls; replies are not checked."""
    for _ in range(WARM_UP):
        call(message)
    begin = time.perf_counter()
    for _ in range(calls):
        call(message)
    return (time.perf_counter() - begin) / calls * 1e6


def shm_rpc(message: str, calls: int) -> float:
    """One fresh server, one client."""
    from shm_rpc_bridge import RPCClient

    channel = f"nclab{os.getpid()}n{len(message)}"
    with server_process(serve_shm, channel):
        client = RPCClient(channel, buffer_size=200_000, timeout=10.0, wait_for_server=5.0)
        try:
            return mean_us(lambda text: client.call("echo", message=text), message, calls)
        finally:
            client.close()


def grpc_call(message: str, calls: int, unix: bool, threads: int = 1, clients: int = 1) -> float:
    """One fresh server, and a channel for each of the clients, which call at once from threads of this process."""
    import grpc

    def one(target: str) -> float:
        class_of = message_class()
        options = (("grpc.use_local_subchannel_pool", 1),)  # or the channels would share a connection
        with grpc.insecure_channel(target, options=options) as channel:
            echo = channel.unary_unary(
                "/shm.Echo/Echo",
                request_serializer=class_of.SerializeToString,
                response_deserializer=class_of.FromString,
            )
            return mean_us(lambda text: echo(class_of(message=text)), message, calls)

    with tempfile.TemporaryDirectory() as directory:
        address = f"unix:{directory}/grpc.sock" if unix else "127.0.0.1:0"
        with server_process(serve_grpc, address, threads) as target, ThreadPoolExecutor(clients) as pool:
            return sum(pool.map(one, [target] * clients)) / clients


def run(findings: Findings, scale: float) -> None:
    """Every size, every transport, always in this order."""
    calls = max(200, round(CALLS * scale))
    rows: dict[str, Callable[[str], float]] = {
        "shm-rpc-bridge": lambda message: shm_rpc(message, calls),
        "gRPC, UDS": lambda message: grpc_call(message, calls, unix=True),
        "gRPC, TCP": lambda message: grpc_call(message, calls, unix=False),
    }
    means: dict[str, list[float | None]] = {name: [] for name in rows}
    for size in SIZES:
        message = "A" * size
        for name, measure in rows.items():
            say(f"{name}, {size} bytes")
            try:
                means[name].append(measure(message))
            except Exception as error:  # any error of a peer goes into the table
                findings.problems[name] = explain(error)
                means[name].append(None)
    for name, values in means.items():
        findings.put("latency", name, values)
        findings.put("throughput", name, [None if value is None else 1e3 / value for value in values])
    codecs(findings)
    findings.attempt("one thread or ten", lambda: server_threads(findings, max(200, calls // 10)))
    findings.attempt("two clients on one channel", lambda: two_clients(findings))
    findings.attempt("calls after one that took too long", lambda: after_a_timeout(findings))
    findings.attempt("a server that was killed", lambda: killed_server(findings))


def codecs(findings: Findings) -> None:
    """The cost of encoding and decoding one request and one reply of 60 KB: with the study's JSON, with today's, and
    with Protobuf.
    """
    import orjson

    text = "A" * 60_000
    request = {"method": "echo", "params": {"message": text}}
    class_of = message_class()

    def mean(work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        for _ in range(200):
            work()
        return (time.perf_counter() - begin) / 200 * 1e6

    findings.check(
        "codec",
        json_us=2 * mean(lambda: json.loads(json.dumps(request).encode())),
        orjson_us=2 * mean(lambda: orjson.loads(orjson.dumps(request))),
        protobuf_us=2 * mean(lambda: class_of.FromString(class_of(message=text).SerializeToString())),
    )


def server_threads(findings: Findings, calls: int) -> None:
    """The study's one server thread, compared with ten."""
    text = "A" * 15
    findings.check(
        "one thread",
        one_thread_us=grpc_call(text, calls, unix=True),
        ten_threads_us=grpc_call(text, calls, unix=True, threads=10),
        two_clients_one_thread_us=grpc_call(text, calls, unix=True, clients=2),
        two_clients_ten_threads_us=grpc_call(text, calls, unix=True, threads=10, clients=2),
    )


def two_clients(findings: Findings) -> None:
    """Two clients of one server at once, in two threads; every reply is compared with what was sent."""
    from shm_rpc_bridge import RPCClient

    channel = f"nclab{os.getpid()}two"
    right = [0, 0]
    errors: list[str] = []

    def one(number: int) -> None:
        client = RPCClient(channel, buffer_size=200_000, timeout=1.0, wait_for_server=5.0)
        try:
            for call in range(AFTERWARDS):
                text = f"{number}-{call}"
                try:
                    right[number] += client.call("echo", message=text) == text
                except Exception as error:
                    errors.append(str(error))
        finally:
            client.close()

    with server_process(serve_shm, channel):
        threads = [threading.Thread(target=one, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    findings.check(
        "two clients",
        calls=2 * AFTERWARDS,
        right=sum(right),
        mismatch=sum("mismatch" in error for error in errors),
        failed=len(errors),
    )


def after_a_timeout(findings: Findings) -> None:
    """One call that takes longer than the client waits, followed by quick ones."""
    from shm_rpc_bridge import RPCClient

    channel = f"nclab{os.getpid()}late"
    right = 0
    with server_process(serve_shm, channel):
        client = RPCClient(channel, buffer_size=200_000, timeout=SLOW_S / 2, wait_for_server=5.0)
        try:
            with contextlib.suppress(Exception):
                client.call("slow", message="late")
            time.sleep(SLOW_S)  # by now the server has finished it
            for call in range(AFTERWARDS):
                with contextlib.suppress(Exception):
                    right += client.call("echo", message=str(call)) == str(call)
        finally:
            client.close()
    findings.check("after a time-out", calls=AFTERWARDS, right=right)


def killed_server(findings: Findings) -> None:
    """Names that a killed server leaves in /dev/shm, and whether a server can be started again while they exist."""
    channel = f"nclab{os.getpid()}dead"
    with server_process(serve_shm, channel) as pid:
        os.kill(pid, signal.SIGKILL)
    left = [path for path in Path("/dev/shm").iterdir() if channel in path.name]
    again = 0
    try:
        with contextlib.suppress(RuntimeError), server_process(serve_shm, channel):
            again = 1
    finally:
        for path in Path("/dev/shm").iterdir():
            if channel in path.name:
                path.unlink(missing_ok=True)
    findings.check("killed server", names=len(left), again=again)


if __name__ == "__main__":
    main(run)
