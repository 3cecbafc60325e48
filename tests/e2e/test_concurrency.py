"""Many callers at once: nobody gets another's reply, and nobody waits for another."""

from __future__ import annotations

import gc
import itertools
import os
import random
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nearcall

from .process import run_program
from .services import Basics, Lines, Streams, Waiting


def together(*functions: Callable[[], None]) -> None:
    """Runs the functions in threads that begin at the same moment; raises what one of them raised."""
    gate = threading.Barrier(len(functions))

    def run(function: Callable[[], None]) -> None:
        gate.wait(30)
        function()

    with ThreadPoolExecutor(len(functions)) as pool:
        for future in [pool.submit(run, function) for function in functions]:
            future.result()


@pytest.mark.slow
def test_threads_on_one_client_get_their_own_replies(url: str) -> None:
    with nearcall.connect(url, Basics) as basics:

        def hammer(seed: int) -> None:
            dice = random.Random(seed)
            for number in range(60):
                nonce = f"{seed}.{number}.".encode()
                size = dice.choice([0, 10, 100, 1_000, 40_000, 70_000, 300_000])
                data = nonce + bytes([seed]) * size
                match dice.randrange(4):
                    case 0:
                        assert basics.echo(data) == data
                    case 1:
                        assert basics.echo_view(memoryview(data)) == data
                    case 2:
                        assert basics.echo_in_loop(data) == data  # type: ignore[comparison-overlap]
                    case _:
                        assert basics.echo_text(data.decode("latin-1")).encode("latin-1") == data

        together(*(lambda seed=seed: hammer(seed) for seed in range(8)))  # type: ignore[misc]


@pytest.mark.slow
def test_calls_streams_and_one_way_calls_mixed_on_one_client(url: str, key: str) -> None:
    client = nearcall.connect(url)
    streams, basics, lines = client.service.Streams, client.service.Basics, client.service.Lines

    def unary() -> None:
        for number in range(300):
            assert basics.add(number, 1) == number + 1

    def down() -> None:
        for _ in range(5):
            assert list(streams.count(3000)) == list(range(3000))

    def up() -> None:
        for _ in range(5):
            assert streams.total(range(3000)) == sum(range(3000))

    def both() -> None:
        for _ in range(3):
            assert list(streams.scaled(map(float, range(2000)), 2.0)) == [number * 2.0 for number in range(2000)]

    def big() -> None:
        for number in range(10):
            assert basics.echo(bytes([number]) * 2_000_000) == bytes([number]) * 2_000_000

    def blocks() -> None:
        assert sum(len(block) for block in streams.blocks(200, 20_000)) == 4_000_000

    def log() -> None:
        for number in range(2000):
            lines.log(key, number)

    together(unary, unary, down, up, both, big, blocks, log)
    assert lines.wait_for(key, 2000) == list(range(2000))
    client.close()


def test_a_slow_handler_does_not_keep_others_waiting(url: str, key: str) -> None:
    """Neither on another connection nor on its own."""
    with nearcall.connect(url, Waiting) as waiting, nearcall.connect(url, Basics) as basics:
        keys = [f"{key}.{number}" for number in range(10)]
        with ThreadPoolExecutor(len(keys)) as pool:
            held = [pool.submit(waiting.hold, one) for one in keys]
            for one in keys:
                assert waiting.entered(one)
            for number in range(200):
                assert basics.add(number, 1) == number + 1
            assert not any(future.done() for future in held)
            for one in reversed(keys):
                waiting.release(one)
            assert [future.result() for future in held] == keys


def test_a_computing_handler_does_not_keep_others_waiting(url: str, key: str) -> None:
    with nearcall.connect(url, Waiting) as waiting, ThreadPoolExecutor(1) as pool:
        busy = pool.submit(waiting.spin, key)
        assert waiting.entered(key)
        with nearcall.connect(url, Basics) as basics:
            for number in range(20):
                assert basics.add(number) == number + 5
        assert not busy.done()
        waiting.release(key)
        busy.result()


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_handlers_at_once(url: str, key: str, kind: str) -> None:
    """All of them wait for the last one to arrive."""
    with nearcall.connect(url, Waiting) as waiting:
        hold: Any = waiting.hold if kind == "threads" else waiting.hold_in_loop
        keys = [f"{key}.{number}" for number in range(30)]
        with ThreadPoolExecutor(len(keys)) as pool:
            held = [pool.submit(hold, one) for one in keys]
            for one in keys:
                assert waiting.entered(one)
            for one in keys:
                waiting.release(one)
            assert [future.result() for future in held] == keys


@pytest.mark.slow
def test_a_client_that_does_not_read_does_not_keep_others_waiting(new_url: str) -> None:
    """Its streams are within their credit, and yet more than fits between the two processes."""

    @nearcall.service
    class Blocks:
        async def blocks(self) -> AsyncIterator[bytes]:
            for _ in range(200):
                yield bytes(10_000)

        async def one(self) -> int:
            return 1

    with nearcall.Server(Blocks(), new_url) as server:
        lazy = nearcall.connect(server.urls[0], Blocks)
        streams: list[Any] = [lazy.service.blocks() for _ in range(12)]
        try:
            with nearcall.connect(server.urls[0], Blocks) as other:
                # The handlers need some time to fill what is between the two.
                for _ in range(2000):
                    with nearcall.timeout(2):
                        assert other.one() == 1  # type: ignore[comparison-overlap]
        finally:
            for stream in streams:
                stream.close()
            lazy.close()


def test_more_calls_than_the_server_runs_at_once(new_url: str, key: str) -> None:
    with (
        nearcall.Server(Waiting(), new_url, max_concurrency=2) as server,
        nearcall.connect(server.urls[0], Waiting) as waiting,
    ):
        keys = [f"{key}.{number}" for number in range(6)]
        for one in keys:
            waiting.release(one)
        with ThreadPoolExecutor(len(keys)) as pool:
            assert sorted(pool.map(waiting.hold, keys)) == keys


@pytest.mark.slow
def test_a_hundred_and_twenty_clients(url: str) -> None:
    clients = [nearcall.connect(url, Basics) for _ in range(120)]
    for round_ in range(3):
        for number, client in enumerate(clients):
            assert client.service.add(number, round_) == number + round_
    for client in clients[::2]:
        client.close()
    for number, client in enumerate(clients[1::2]):
        assert client.service.echo(bytes([number])) == bytes([number])
        client.close()


@pytest.mark.slow
def test_clients_come_and_go(url: str) -> None:
    def visit() -> None:
        for number in range(25):
            with nearcall.connect(url, Basics) as basics:
                assert basics.add(number) == number + 5

    together(visit, visit, visit, visit)


def test_a_dropped_client_lets_go_of_everything(url: str) -> None:
    with nearcall.connect(url, Basics) as basics:
        basics.nothing()  # what a process makes once for all its clients is there now
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        client = nearcall.connect(url, Basics)
        assert client.service.echo(bytes(300_000)) == bytes(300_000)
        del client
    gc.collect()
    # A server in this very process closes its ends when it notices.
    with nearcall.connect(url, Basics) as basics:
        for _ in range(1000):
            basics.nothing()
            if len(os.listdir("/proc/self/fd")) <= before + 4:
                break
        else:
            pytest.fail(f"{before} descriptors before, {len(os.listdir('/proc/self/fd'))} after")


@pytest.mark.parametrize("way", ["call", "stream", "send"])
def test_closing_a_client_ends_calls_of_other_threads(url: str, key: str, way: str) -> None:
    client = nearcall.connect(url)
    outcome: list[BaseException | object] = []

    def call() -> None:
        try:
            match way:
                case "call":
                    outcome.append(client.service.Waiting.hold(key))
                case "stream":
                    outcome.append(list(client.service.Streams.silent_in_loop(key)))
                case _:
                    # Nobody takes the items, so that the sender ends up waiting for room.
                    outcome.append(client.service.Streams.first(itertools.repeat(1), 10**9))
        except BaseException as error:
            outcome.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    with nearcall.connect(url, Waiting) as waiting:
        if way == "call":
            assert waiting.entered(key)
        client.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        waiting.release(key)
    assert [type(error) for error in outcome] == [nearcall.Cancelled] * 3


def test_closing_a_stream_from_another_thread(url: str, key: str) -> None:
    with nearcall.connect(url, Streams) as streams:
        items: Any = streams.silent_in_loop(key)
        assert next(items) == 1
        rest: list[Any] = []
        thread = threading.Thread(target=lambda: rest.append(list(items)))
        thread.start()
        items.close()
        thread.join(20)
        assert not thread.is_alive()
        assert rest == [[]]
        assert streams.how_it_closed(key) == "closed"


def test_handlers_call_their_own_server(new_url: str) -> None:
    """In one process: the client's thread and the handlers share the interpreter."""

    @nearcall.service
    class Nested:
        def __init__(self) -> None:
            self.me: Any = None

        def down(self, depth: int) -> int:
            return 0 if depth == 0 else 1 + self.me.down(depth - 1)

        async def down_in_loop(self, depth: int) -> int:
            return depth

    nested = Nested()
    with nearcall.Server(nested, new_url) as server, nearcall.connect(server.urls[0], Nested) as client:
        nested.me = client
        assert client.down(10) == 10
        together(*[lambda: client.down(5)] * 4)  # type: ignore[list-item]


@pytest.mark.slow
def test_ctrl_c_interrupts_a_waiting_call(outside_url: str, key: str) -> None:
    code = """
import os, signal, sys, threading, nearcall
from tests.e2e.services import Waiting
url, key = sys.argv[1:]
with nearcall.Server(Waiting(), url) as server, nearcall.connect(server.urls[0], Waiting) as waiting:
    def interrupt():
        with nearcall.connect(server.urls[0], Waiting) as other:
            other.entered(key)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        waiting.hold(key)
    except KeyboardInterrupt:
        print("interrupted")
    waiting.release(key)
"""
    assert run_program(code, outside_url, key) == ("interrupted\n", "", 0)


def test_one_client_shared_by_threads_that_come_and_go(url: str) -> None:
    with nearcall.connect(url, Lines) as lines, nearcall.connect(url, Basics) as basics:
        del lines
        for _ in range(20):
            threads = [threading.Thread(target=basics.add, args=(number,)) for number in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert basics.add(1) == 6
