"""The study's own method: one burst, once, no warm-up, against a handler that waits 0.1 s and takes no parameters.

The server of `grpc-framework` runs in that framework's own environment (`framework.py`); the client is the same for all
rows in Python. The study's Go, Java and Node programs are not published. Those of the lab stand in for them, each with
the client of its own language, and their request says how long to wait.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from nearcall_lab.engine.launch import LaunchFailed, measure
from nearcall_lab.environments import manage as environments
from nearcall_lab.failure import kind_of
from nearcall_lab.registry import discover, named
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.studies.replica import TRIAL, Cells, Findings, main
from nearcall_lab.studies.serving import foreign_server, server_process

SIZES = (100, 1_000, 10_000)
TRIED = (10, 20, 50)
"""Instead, where the study is only tried out."""
DELAY_S = 0.1
ROOM = 100_000
"""Calls that a server may queue, to show that with its usual limit calls fail."""
ENVIRONMENT = "grpc-framework"
PROGRAMS = {"Go": "grpc-go", "Java, Netty": "grpc-java", "Node.js": "grpc-node"}
_ONCE_S = 0.001
"""Length of a cell that ends after its first burst."""
FRAMEWORK = {
    "grpc-framework, Protobuf": "protobuf",
    "grpc-framework, JSON": "json",
    "grpc-framework, ORJSON": "orjson",
    "grpc-framework, dataclass": "dataclass",
}


class NotInstalled(Exception):
    """A framework's environment, or a program, is not installed; the message states how to install it."""


def message_class() -> Any:
    """``UserResponse {int32 id; string name}``, made at run time."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="burst_study.proto", package="burst_study", syntax="proto3")
    message = file.message_type.add(name="UserResponse")
    message.field.add(name="id", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="name", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("burst_study.UserResponse"))


def serve_grpc(uvloop: bool, room: int, ready: Callable[[Any], None]) -> None:
    """grpcio's asyncio server; `room` is how many calls may be queued; 0 is the server's own limit of 1000 to 3000."""
    import grpc

    class_of = message_class()

    async def user(request: bytes, context: Any) -> Any:
        await asyncio.sleep(DELAY_S)
        return class_of(id=1, name="name")

    async def serve() -> None:
        limits = ("grpc.server.max_pending_requests", "grpc.server.max_pending_requests_hard_limit")
        server = grpc.aio.server(options=[(limit, room) for limit in limits] if room else None)
        method = grpc.unary_unary_rpc_method_handler(user, response_serializer=class_of.SerializeToString)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("burst.User", {"Get": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ready(f"127.0.0.1:{port}")
        await server.wait_for_termination()

    _run(serve(), uvloop)


def serve_bare_sleeps(sizes: Sequence[int]) -> list[float]:
    """The floor: the same sleeps in this process, with no RPC at all."""

    async def burst(calls: int) -> float:
        begin = time.perf_counter()
        await asyncio.gather(*(asyncio.sleep(DELAY_S) for _ in range(calls)))
        return time.perf_counter() - begin

    return [asyncio.run(burst(calls)) for calls in sizes]


def _run(work: Any, uvloop: bool) -> Any:
    if uvloop:
        import uvloop as loops

        return loops.run(work)
    return asyncio.run(work)


async def burst(target: str, calls: int, decode: Callable[[bytes], Any]) -> tuple[float, dict[str, int]]:
    """All calls at once over one channel: seconds until the last has ended, and the status of those that failed."""
    import grpc

    failed: dict[str, int] = {}
    async with grpc.aio.insecure_channel(target) as channel:
        get = channel.unary_unary("/burst.User/Get", response_deserializer=decode)

        async def one() -> None:
            try:
                await get(b"")
            except grpc.aio.AioRpcError as error:
                kind = kind_of(error)
                failed[kind] = failed.get(kind, 0) + 1

        begin = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(calls)))
        return time.perf_counter() - begin, failed


def program(mechanism: str) -> Callable[[int], tuple[float, dict[str, int]]]:
    """The same for a program of the lab in another language. Raises `NotInstalled`."""
    entrant = named(mechanism, discover())
    if entrant is None or entrant.problem:
        raise NotInstalled(entrant.problem if entrant else f"there is no {mechanism}")

    def once(calls: int) -> tuple[float, dict[str, int]]:
        mode = Mode("burst", calls=calls, outstanding=calls, seconds=_ONCE_S, warmup_s=0.0)
        cell = Cell(mechanism, Work("wait", delay_s=DELAY_S), mode, placement="free")
        try:
            launch = measure(cell, entrant, 0, 0)
        except LaunchFailed as failure:
            if failure.logs is not None:
                shutil.rmtree(failure.logs, ignore_errors=True)
            raise
        return launch.wall_s, launch.errors

    return once


def run(findings: Findings, scale: float) -> None:
    """Measure the rows. Every burst has a fresh server, so that none of them profits from an earlier one."""
    sizes = SIZES if scale >= TRIAL else TRIED

    def row(name: str, server: Callable[[], AbstractContextManager[Any]], decode: Callable[[bytes], Any]) -> None:
        def once(calls: int) -> tuple[float, dict[str, int]]:
            with server() as target:
                took, failed = _run(burst(target, calls, decode), True)
                return took, failed

        put(name, once)

    def put(name: str, once: Callable[[int], tuple[float, dict[str, int]]]) -> None:
        seconds: Cells = []
        rates: Cells = []
        for calls in sizes:
            took, failed = once(calls)
            # A burst in which calls were refused has no time: refusing is quick.
            seconds.append(None if failed else took)
            rates.append(None if failed else calls / took)
            title = f"{name}, {calls} calls, failed"
            findings.check("errors", **{title: float(sum(failed.values()))})
            findings.check("error kinds", **{f"{title}: {kind}": float(count) for kind, count in failed.items()})
        findings.put("seconds", name, seconds)
        findings.put("rate", name, rates)

    def framework(name: str, codec: str) -> None:
        python = environments.python_of(ENVIRONMENT)
        if python is None:
            raise NotInstalled(environments.missing(ENVIRONMENT))
        module = "nearcall_lab.studies.grpc_burst.framework"
        decode = message_class().FromString if codec == "protobuf" else json.loads
        row(name, lambda: foreign_server(python, module, codec), decode)

    def with_room() -> None:
        with server_process(serve_grpc, True, ROOM) as target:
            _, failed = _run(burst(target, sizes[-1], message_class().FromString), True)
        title = f"grpcio, asyncio, uvloop, room for {ROOM:,} waiting calls: {sizes[-1]} calls, failed"
        findings.check("room", **{title: float(sum(failed.values()))})

    name = "grpcio, asyncio, uvloop"
    findings.attempt(name, lambda: row(name, lambda: server_process(serve_grpc, True, 0), message_class().FromString))
    findings.attempt(f"{name}, with room", with_room)
    for name, mechanism in PROGRAMS.items():
        findings.attempt(name, lambda name=name, mechanism=mechanism: put(name, program(mechanism)))  # type: ignore[misc]
    for name, codec in FRAMEWORK.items():
        findings.attempt(name, lambda name=name, codec=codec: framework(name, codec))  # type: ignore[misc]
    bare = serve_bare_sleeps(sizes)
    findings.put("seconds", "the sleeps alone, in one process", list(bare))
    for calls, seconds in zip(sizes, bare, strict=True):
        findings.check(
            "sleep", **{f"{calls} sleeps in one process, s": seconds, f"{calls}, at best, calls/s": calls / DELAY_S}
        )


if __name__ == "__main__":
    main(run)
