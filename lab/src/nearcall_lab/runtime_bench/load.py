"""Measurements of many calls at once, of asyncio, and of much data. Each runs in the client process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

from nearcall_lab.adapters import grpc_aio
from nearcall_lab.contract import Spec
from nearcall_lab.runtime_bench.service import service, slowly

SMALL = b"fifteen bytes.."
MOST_PROCESSES = 4
"""Client processes among which the clients of `clients` are divided; each is a thread with a connection of its own."""


async def _ping_pong(call: Callable[[bytes], Awaitable[bytes]], seconds: float) -> float:
    """Median nanoseconds of an awaited echo of 15 bytes, one after the other."""
    clock = time.perf_counter_ns
    samples = array("q")
    end = clock() + int(seconds * 1e9)
    for number in itertools.count():
        started = clock()
        reply = await call(SMALL)
        finished = clock()
        if reply != SMALL:
            raise ValueError(f"wrong reply: {reply!r}")
        if number >= 50:  # the warm-up
            samples.append(finished - started)
            if finished >= end:
                return statistics.median(samples)
    raise AssertionError("unreachable")


def awaited_echo(spec: Spec, seconds: float, method: str) -> float:
    """`method` of the service called from asyncio: median nanoseconds."""
    import nearcall

    async def main() -> float:
        async with nearcall.aio.connect(spec.address, service()) as client:
            return await _ping_pong(getattr(client, method), seconds)

    return asyncio.run(main())


def grpc_echo(spec: Spec, seconds: float) -> float:
    """The same over grpc.aio, which the server must then use, too."""

    async def main() -> float:
        session = grpc_aio.connect(spec)
        await session.open()
        try:
            return await _ping_pong(session.call("echo"), seconds)
        finally:
            await session.close()

    return asyncio.run(main())


def pipelined_tasks(spec: Spec, tasks: int, seconds: float, method: str) -> float:
    """Typed calls of `method` per second of `tasks` tasks on one connection."""
    import nearcall

    async def main() -> float:
        async with nearcall.aio.connect(spec.address, service()) as client:
            add, clock = getattr(client, method), time.perf_counter
            begin = clock()
            end = begin + seconds

            async def call(number: int) -> int:
                done = 0
                while clock() < end:
                    if await add(number, done) != number + done:
                        raise ValueError("wrong reply")
                    done += 1
                return done

            done = await asyncio.gather(*(call(number) for number in range(tasks)))
            return sum(done) / (clock() - begin)

    return asyncio.run(main())


def pipelined_threads(spec: Spec, threads: int, seconds: float) -> float:
    """Typed calls per second of `threads` threads on one connection."""
    import nearcall

    with nearcall.connect(spec.address, service()) as client:
        done, elapsed = _threads_calling([client] * threads, seconds)
    return done / elapsed


def _threads_calling(clients: list[Any], seconds: float) -> tuple[int, float]:
    """One thread for each client, which calls for `seconds`: calls made, and the time it took."""
    counts, problems = [0] * len(clients), list[BaseException]()
    gate = threading.Barrier(len(clients) + 1)
    clock = time.perf_counter

    def call(number: int) -> None:
        add, done = clients[number].add, 0
        gate.wait()
        end = clock() + seconds
        try:
            while clock() < end:
                if add(number, done) != number + done:
                    raise ValueError("wrong reply")
                done += 1
        except BaseException as error:
            problems.append(error)
        counts[number] = done

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    gate.wait()
    begin = clock()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return sum(counts), clock() - begin


def clients(spec: Spec, count: int, seconds: float) -> float:
    """Calls per second of `count` clients together, each a thread with its own connection, in up to four processes."""
    processes = min(count, MOST_PROCESSES)
    shares = [count // processes + (number < count % processes) for number in range(processes)]
    with contextlib.ExitStack() as stack:
        started = []
        for share in shares:
            command = [sys.executable, "-m", __name__, spec.address, str(share), str(seconds)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(_end, process)
            started.append(process)
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "connected\n":
                raise ValueError("a client process did not connect")
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        rates = []
        for process in started:
            assert process.stdout is not None
            done, elapsed = process.stdout.readline().split()
            rates.append(int(done) / float(elapsed))
    return sum(rates)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _client_process(address: str, count: int, seconds: float) -> None:
    import nearcall

    with contextlib.ExitStack() as stack:
        connected = [stack.enter_context(nearcall.connect(address, service())) for _ in range(count)]
        for client in connected:
            client.add(0, 0)
        print("connected", flush=True)
        sys.stdin.readline()
        done, elapsed = _threads_calling(connected, seconds)
        print(done, elapsed, flush=True)


def naps(spec: Spec, calls: int, seconds: float) -> dict[str, float]:
    """`calls` calls at once of a coroutine handler that sleeps, on one connection; and the same sleeps without
    calls.
    """
    import nearcall

    async def main() -> dict[str, float]:
        async def alone(pause: float) -> float:
            await asyncio.sleep(pause)
            return pause

        async with nearcall.aio.connect(spec.address, service()) as client:
            return {
                "called": await _all_at_once(client.nap, calls, seconds),
                "alone": await _all_at_once(alone, calls, seconds),
            }

    return asyncio.run(main())


def grpc_naps(spec: Spec, calls: int, seconds: float) -> float:
    """The same calls over grpc.aio, which the server must then use, too: seconds."""

    async def main() -> float:
        session = grpc_aio.connect(spec)
        await session.open()
        try:
            return await _all_at_once(session.call("wait"), calls, seconds)
        finally:
            await session.close()

    return asyncio.run(main())


async def _all_at_once(call: Callable[[float], Awaitable[Any]], calls: int, seconds: float) -> float:
    begin = time.perf_counter()
    await asyncio.gather(*(call(seconds) for _ in range(calls)))
    return time.perf_counter() - begin


def streamed(spec: Spec, direction: str, items: int, size: int, pause_s: float, every: int) -> float:
    """`items` items through a stream whose consumer pauses: GB per second. Every octet is counted."""
    import nearcall

    item = bytes(size)
    source = (item for _ in range(items))
    begin = time.perf_counter()
    with nearcall.connect(spec.address, service()) as client:
        if direction == "to the server":
            octets = client.swallow(source, pause_s, every)
        elif direction == "to the client":
            octets = sum(len(reply) for reply in slowly(client.flow(items, size), pause_s, every))
        else:
            octets = sum(len(reply) for reply in slowly(client.through(source), pause_s, every))
    if octets != items * size:
        raise ValueError(f"{octets} octets arrived instead of {items * size}")
    return float(octets / (time.perf_counter() - begin) / 1e9)


def beside_blocked(spec: Spec, seconds: float) -> list[int]:
    """Nanoseconds of quick calls made while a handler of another client blocks for `seconds`."""
    import nearcall

    samples = []
    with nearcall.connect(spec.address, service()) as client, nearcall.connect(spec.address, service()) as other:
        client.add(1, 2)
        blocked = threading.Thread(target=other.block, args=(seconds,))
        blocked.start()
        clock = time.perf_counter_ns
        while blocked.is_alive():
            started = clock()
            if client.add(1, 2) != 3:
                raise ValueError("wrong reply")
            samples.append(clock() - started)
            time.sleep(0.0001)
        blocked.join()
    return samples


if __name__ == "__main__":
    _client_process(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
