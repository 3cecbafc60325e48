"""``@nearcall.service(instance="session")``: an object for each client, from its first call to its end."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Queue
from typing import Any

import pytest

import nearcall

from .process import ServerProcess, serve_encrypted, start_program

PATIENCE = 30.0
ended: Queue[Any] = Queue()
"""The objects that were closed, by whatever test."""


@nearcall.service(instance="session")
class Basket:
    def __init__(self, shop: str = "corner") -> None:
        self.shop = shop
        self.items: list[str] = []

    def add(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    def all(self) -> Iterator[str]:
        yield from self.items

    @nearcall.oneway
    def drop(self) -> None:
        self.items.clear()

    def where(self) -> str:
        return self.shop

    async def count_in_loop(self) -> int:
        await asyncio.sleep(0)
        return len(self.items)

    async def stream_in_loop(self, n: int) -> AsyncIterator[str]:
        for _ in range(n):
            yield self.items[0]

    def name_only(self, *, suffix: str) -> str:
        return self.shop + suffix

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        ended.put(self)


@nearcall.service
class Shared:
    def __init__(self) -> None:
        self.calls = 0

    def call(self) -> int:
        self.calls += 1
        return self.calls


@nearcall.service(instance="session")
class Looped:
    async def whoami(self) -> int:
        await asyncio.sleep(0)
        return id(self)

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        ended.put((id(self), threading.current_thread().name))


def baskets() -> list[object]:
    serve_encrypted()
    return [Basket]


@pytest.fixture(autouse=True)
def _nothing_has_ended() -> None:
    while not ended.empty():
        ended.get()


@pytest.fixture
def url(new_url: str) -> Iterator[str]:
    with nearcall.Server(Basket, Shared(), new_url) as server:
        yield server.urls[0]


def test_each_client_has_its_own(url: str) -> None:
    with nearcall.connect(url, Basket) as one, nearcall.connect(url, Basket) as other:
        assert [one.add("pen"), one.add("ink"), other.add("cup")] == [1, 2, 1]
        assert (list(one.all()), list(other.all())) == (["pen", "ink"], ["cup"])
        untyped: Any = one
        assert untyped.count_in_loop() == 2
        assert list(untyped.stream_in_loop(2)) == ["pen", "pen"]
        assert one.name_only(suffix="!") == "corner!"
        one.drop()
        while list(one.all()):
            pass
        assert list(other.all()) == ["cup"]


def test_clients_of_a_channel_share_it_and_others_are_shared_by_all(url: str) -> None:
    with nearcall.Channel(url) as channel, nearcall.Channel(url) as other:
        assert [channel.client(Basket).service.add("x") for _ in range(2)] == [1, 2]
        assert other.client(Basket).service.add("x") == 1
        assert [each.client(Shared).service.call() for each in (channel, other)] == [1, 2]


def test_it_is_closed_with_its_connection(url: str) -> None:
    with nearcall.connect(url, Basket) as one:
        one.add("pen")
    assert ended.get(timeout=PATIENCE).items == ["pen"]
    with nearcall.Channel(url) as channel:
        channel.client(Shared).service.call()
    with nearcall.connect(url, Basket) as last:
        last.add("cup")
    assert ended.get(timeout=PATIENCE).items == ["cup"]  # none was made for who did not call


def test_it_is_closed_when_the_server_stops(new_url: str) -> None:
    with nearcall.Server(Basket, new_url) as server:
        client = nearcall.connect(server.urls[0], Basket)
        client.service.add("pen")
    assert ended.get_nowait().items == ["pen"]
    client.close()
    assert ended.empty()


def test_first_calls_at_once_make_one(url: str) -> None:
    for _ in range(5):
        with nearcall.connect(url, Basket) as basket, ThreadPoolExecutor(8) as pool:
            counts = [one.result(PATIENCE) for one in [pool.submit(basket.add, "x") for _ in range(16)]]
            assert sorted(counts) == list(range(1, 17))


def make_basket() -> Basket:
    return Basket("function")


@pytest.mark.parametrize("make", [functools.partial(Basket, "partial"), make_basket, functools.partial(make_basket)])
def test_what_makes_them(new_url: str, make: Any) -> None:
    with nearcall.Server(make, new_url) as server, nearcall.connect(server.urls[0], Basket) as basket:
        assert basket.where() in ("partial", "function")


@pytest.mark.parametrize("stopped", [False, True])
def test_coroutines(new_url: str, stopped: bool) -> None:
    with nearcall.Server(Looped, new_url) as server:
        one, other = (nearcall.connect(server.urls[0], Looped) for _ in range(2))
        ids = [untyped.whoami() for untyped in (one, other, one)]
        assert ids[0] == ids[2] != ids[1]
        if stopped:
            server.stop()
        one.close()
        other.close()
        closed = [ended.get(timeout=PATIENCE) for _ in range(2)]
        assert {each[0] for each in closed} == set(ids)
        assert {each[1] for each in closed} == {"nearcall-loop"}


def test_only_the_end_is_a_coroutine(new_url: str) -> None:
    @nearcall.service(instance="session")
    class Plain:
        def work(self) -> int:
            return 1

        async def aclose(self) -> None:
            ended.put(threading.current_thread().name)

    with nearcall.Server(Plain, new_url) as server:
        with nearcall.connect(server.urls[0], Plain) as client:
            assert client.work() == 1
        assert ended.get(timeout=PATIENCE) == "nearcall-loop"


def test_the_end_is_awaited_after_a_handler_that_was_cut_off(new_url: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @nearcall.service(instance="session")
    class Held:
        def hold(self) -> None:
            begun.set()
            go_on.wait(PATIENCE)

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            ended.put((go_on.is_set(), threading.current_thread().name))

    before = threading.enumerate()
    server = nearcall.Server(Held, new_url).start()
    with nearcall.connect(server.urls[0], Held) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.hold)
        assert begun.wait(PATIENCE)
        assert not server.stop(grace=0)
        with pytest.raises(nearcall.RpcError):
            waiting.result(PATIENCE)
        (loop,) = (each for each in threading.enumerate() if each not in before and each.name == "nearcall-loop")
        go_on.set()
        assert ended.get(timeout=PATIENCE) == (True, "nearcall-loop")
        loop.join(PATIENCE)  # which nobody needs any more
        assert not loop.is_alive()


def test_the_end_comes_before_the_last_hook(new_url: str) -> None:
    def left(connection: nearcall.ServerConnection) -> None:
        ended.put("left")

    with nearcall.Server(Basket, new_url, on_disconnect=left) as server:
        with nearcall.connect(server.urls[0], Basket) as basket:
            basket.add("x")
        assert isinstance(ended.get(timeout=PATIENCE), Basket)
        assert ended.get(timeout=PATIENCE) == "left"


def test_one_that_cannot_be_made_is_made_again(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    def make() -> Basket:
        attempts.append(1)
        if len(attempts) == 1:
            raise LookupError("no room for a basket")
        return Basket()

    with nearcall.Server(make, new_url) as server, nearcall.connect(server.urls[0], Basket) as basket:
        with pytest.raises(nearcall.Unknown, match="LookupError: no room for a basket"):
            basket.add("x")
        assert basket.add("x") == 1


def test_what_an_end_raises_is_logged(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    @nearcall.service(instance="session")
    class Stubborn:
        def work(self) -> int:
            return 1

        def close(self) -> None:
            raise ValueError("not now")

    caplog.set_level(logging.ERROR, "nearcall")
    with nearcall.Server(Stubborn, new_url) as server, nearcall.connect(server.urls[0], Stubborn) as client:
        assert client.work() == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("Stubborn.close raised ValueError, for the client ")


def test_interceptors_are_around_them(new_url: str) -> None:
    seen: list[str] = []

    def note(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        seen.append(call.method)
        return proceed(call)

    with (
        nearcall.Server(Basket, new_url, interceptors=[note]) as server,
        nearcall.connect(server.urls[0], Basket) as basket,
    ):
        untyped: Any = basket
        assert basket.add("x") == 1
        assert list(untyped.stream_in_loop(1)) == ["x"]
        assert basket.name_only(suffix="?") == "corner?"
    assert seen == ["Basket.add", "Basket.stream_in_loop", "Basket.name_only"]


ADD_AND_WAIT = """
import sys, nearcall
from tests.e2e.test_instances import Basket
with nearcall.connect(sys.argv[1], Basket) as basket:
    print(basket.add("pen"), flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.crash
def test_a_client_that_is_killed(outside_url: str) -> None:
    with nearcall.Server(Basket, outside_url) as server, start_program(ADD_AND_WAIT, server.urls[0]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        assert ended.get(timeout=PATIENCE).items == ["pen"]


@pytest.mark.slow
def test_a_server_of_another_process(outside_url: str) -> None:
    with (
        ServerProcess(outside_url, services=f"{__name__}:baskets") as server,
        nearcall.connect(server.url, Basket) as basket,
    ):
        assert basket.pid() == server.pid
        assert [basket.add("x"), basket.add("y")] == [1, 2]


SERVE = """
import sys, nearcall
from tests.e2e.test_instances import Basket
nearcall.serve(Basket, sys.argv[1], workers=2, on_ready=lambda workers: print(workers.urls[0], flush=True))
"""


def test_workers(key: str) -> None:
    with start_program(SERVE, f"shm://w{key}") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with nearcall.connect(url, Basket) as one, nearcall.connect(url, Basket) as other:
            assert [one.add("x"), one.add("y"), other.add("x")] == [1, 2, 1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


class Impostor:
    def __call__(self) -> Basket:
        return Basket()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            Basket(),
            "each client has a Basket of its own, which the server makes: serve the class, Basket, or",
        ),
        (Shared, r"serve an object, not the class: write Shared\(\)"),
        (functools.partial(Shared), r"serve an object, not a function: write Shared\(\)"),
        (
            lambda: Basket("x"),
            "does not say of what class the objects are that it makes: annotate its result",
        ),
        (Impostor(), "Impostor is not a service"),
        (int, "int is not a service"),
        ([Impostor(), Impostor()], r"given one by one, and not in a list: put a \* before it"),
        (("tcp://127.0.0.1:0",), r"given one by one, and not in a tuple"),
    ],
)
def test_what_cannot_be_served(item: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        nearcall.Server(item)


def test_arguments_that_nobody_would_give() -> None:
    @nearcall.service(instance="session")
    class Needy:
        def __init__(self, what: str) -> None: ...

        def work(self) -> None: ...

    with pytest.raises(TypeError, match=r"cannot be made without arguments \(missing a required argument: 'what'\)"):
        nearcall.Server(Needy)


def test_the_decorator() -> None:
    with pytest.raises(ValueError, match="instance must be 'server' or 'session', not 'client'"):
        nearcall.service(instance="client")  # type: ignore[call-overload]
    with nearcall.Server(Basket, "inproc://decorated"), nearcall.Channel("inproc://decorated") as channel:
        names = [method["name"] for method in channel.description["services"][0]["methods"]]
        assert "close" not in names
        assert channel.client().add("x") == 1


@nearcall.service
class Interface:
    def add(self, item: str) -> int: ...


@nearcall.service(instance="session")
class Implementation(Interface):
    def __init__(self) -> None:
        self.n = 0

    def add(self, item: str) -> int:
        self.n += 1
        return self.n


def test_an_implementation_decides(new_url: str) -> None:
    with nearcall.Server(Implementation, new_url) as server, ExitStack() as stack:
        one, other = (stack.enter_context(nearcall.connect(server.urls[0], Interface)) for _ in range(2))
        assert [one.add("x"), one.add("x"), other.add("x")] == [1, 2, 1]


async def _make_later() -> Basket:
    return Basket()


def _forgets() -> Basket:
    Basket()
    return None  # type: ignore[return-value]


def test_what_makes_objects_is_an_ordinary_function() -> None:
    with pytest.raises(TypeError, match="must be an ordinary function, not 'async def'"):
        nearcall.Server(_make_later)


def test_what_makes_objects_returns_them(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        nearcall.Server(_forgets, new_url) as server,
        nearcall.connect(server.urls[0], Basket) as basket,
        pytest.raises(nearcall.Unknown, match="is to make a Basket for each client, and has returned None"),
    ):
        basket.add("pen")
    assert "is to make a Basket for each client" in caplog.text
