"""Calls that are sent once more while the first is under way: the first answer counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, cast

import pytest

import nearcall

from .conftest import TRANSPORTS
from .ports import own_port
from .test_introspection import until

PATIENCE = 30.0
"""Seconds after which a test that waits has failed."""
DELAY = 0.02
ALL = [*TRANSPORTS, "grpc", "http"]


@nearcall.service
class Shop:
    """Its first calls fail, or wait until they are given up."""

    def __init__(self, slow: int = 0, failing: int = 0, code: type[nearcall.RpcError] = nearcall.Unavailable) -> None:
        self.slow, self.failing, self.code = slow, failing, code
        self.calls = 0
        self.lock = threading.Lock()
        self.answers = True
        self.waiting: list[threading.Event] = []
        self.given_up = threading.Semaphore(0)

    @nearcall.idempotent
    def price(self, item: str) -> int:
        return self._answer(item)

    def sell(self, item: str) -> int:
        return self._answer(item)

    def _answer(self, item: str) -> int:
        with self.lock:
            self.calls += 1
            number = self.calls
        if number <= self.failing:
            raise self.code(f"failure {number}")
        if number <= self.slow:
            given_up = threading.Event()
            if self.answers:
                nearcall.context().on_cancel(given_up.set)
            nearcall.context().on_cancel(self.given_up.release)
            self.waiting.append(given_up)
            given_up.wait(PATIENCE)
        return len(item)


def price(url: str, kind: str, *items: str, method: str = "price", servers: int = 1, **options: Any) -> list[int]:
    """Calls once for each item, from a thread or a task, when so many servers are connected."""
    end = time.monotonic() + PATIENCE
    if kind == "thread":
        with closing(nearcall.connect(url, Shop, **options)) as client:
            while len(client.peers) < servers:
                assert time.monotonic() < end, "a server is not connected"
                time.sleep(0)
            return [getattr(client.service, method)(item) for item in items]

    async def run() -> list[int]:
        client = await nearcall.aio.connect(url, Shop, **options)
        while len(client.peers) < servers:
            assert time.monotonic() < end, "a server is not connected"
            await asyncio.sleep(0)
        found = [await getattr(client.service, method)(item) for item in items]
        await client.close()
        return found

    return asyncio.run(run())


@pytest.fixture(params=ALL)
def any_url(request: pytest.FixtureRequest, key: str, runtime_dir: Any) -> str:
    if request.param in TRANSPORTS:
        return TRANSPORTS[request.param](f"hedge{key}", runtime_dir)
    return f"{request.param}://127.0.0.1:0"


kinds = pytest.mark.parametrize("kind", ["thread", "task"])


@kinds
def test_the_second_copy_answers_and_the_first_is_given_up(any_url: str, kind: str) -> None:
    shop = Shop(slow=1)
    with nearcall.Server(shop, any_url) as server:
        assert price(server.urls[0], kind, "pen", hedge=nearcall.Hedge(DELAY)) == [3]
        assert shop.given_up.acquire(timeout=PATIENCE), "the slow copy runs on"
    assert shop.calls == 2


@kinds
def test_another_server_is_asked(kind: str) -> None:
    slow, quick = Shop(slow=1000), Shop()
    with (
        nearcall.Server(slow, f"tcp://127.0.0.1:{own_port()}") as first,
        nearcall.Server(quick, f"tcp://127.0.0.1:{own_port()}") as second,
    ):
        url = f"{first.urls[0]},{second.urls[0].removeprefix('tcp://')}"
        options: dict[str, Any] = {"balancing": "round_robin", "hedge": nearcall.Hedge(DELAY)}
        assert price(url, kind, *["book"] * 6, servers=2, **options) == [4] * 6
    assert quick.calls == 6


@kinds
def test_a_copy_goes_to_a_server_that_has_none_though_it_is_not_its_turn(kind: str) -> None:
    asked: list[int] = []
    make_another_call: Callable[[], Any]

    @nearcall.service(name="Shop")
    class Replica:
        def __init__(self, number: int) -> None:
            self.number = number

        @nearcall.idempotent
        def price(self, item: str) -> int:
            asked.append(self.number)
            if len(asked) > 1:
                return len(item)
            make_another_call()  # this takes the other server's turn
            raise nearcall.Unavailable("not this one")

        def sell(self, item: str) -> int:
            return len(item)

    def connected(client: Any) -> bool:
        return len(client.peers) == 2

    options: dict[str, Any] = {"balancing": "round_robin", "hedge": nearcall.Hedge(PATIENCE)}
    with (
        nearcall.Server(Replica(1), f"tcp://127.0.0.1:{own_port()}") as first,
        nearcall.Server(Replica(2), f"tcp://127.0.0.1:{own_port()}") as second,
    ):
        url = f"{first.urls[0]},{second.urls[0].removeprefix('tcp://')}"
        if kind == "thread":
            with closing(nearcall.connect(url, Shop, **options)) as client:
                make_another_call = partial(client.service.sell, "pen")
                until(partial(connected, client))
                assert client.service.price("pen") == 3
        else:

            async def run() -> None:
                client = await nearcall.aio.connect(url, Shop, **options)
                loop = asyncio.get_running_loop()
                nonlocal make_another_call

                def make_another_call() -> int:
                    return int(asyncio.run_coroutine_threadsafe(client.service.sell("pen"), loop).result(PATIENCE))

                while not connected(client):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0)
                assert await client.service.price("pen") == 3
                await client.close()

            asyncio.run(run())
    assert sorted(asked) == [1, 2]


@kinds
def test_a_quick_answer_needs_no_copy(any_url: str, kind: str) -> None:
    shop = Shop()
    with nearcall.Server(shop, any_url) as server:
        assert price(server.urls[0], kind, "a", "bc", hedge=nearcall.Hedge(PATIENCE, attempts=5)) == [1, 2]
    assert shop.calls == 2


@kinds
def test_after_a_failure_the_next_copy_does_not_wait(kind: str) -> None:
    shop = Shop(failing=2)
    with nearcall.Server(shop, "inproc://hedge-failing") as server:
        begun = time.monotonic()
        assert price(server.urls[0], kind, "pen", hedge=nearcall.Hedge(PATIENCE, attempts=3)) == [3]
        assert time.monotonic() - begun < PATIENCE
    assert shop.calls == 3


@kinds
def test_the_last_failure_is_told(kind: str) -> None:
    shop = Shop(failing=9)
    with nearcall.Server(shop, "inproc://hedge-none") as server, pytest.raises(nearcall.Unavailable, match="failure"):
        price(server.urls[0], kind, "pen", hedge=nearcall.Hedge(0.0, attempts=3, max_tokens=0))


@kinds
def test_another_failure_ends_the_call(kind: str) -> None:
    shop = Shop(failing=9, code=nearcall.NotFound)
    with nearcall.Server(shop, "inproc://hedge-fatal") as server, pytest.raises(nearcall.NotFound, match="failure 1"):
        price(server.urls[0], kind, "pen", hedge=nearcall.Hedge(PATIENCE, attempts=3))
    assert shop.calls == 1


@kinds
def test_a_method_that_is_not_idempotent_is_called_once(kind: str) -> None:
    shop = Shop(failing=1)
    with nearcall.Server(shop, "inproc://hedge-once") as server, pytest.raises(nearcall.Unavailable):
        price(server.urls[0], kind, "pen", method="sell", hedge=nearcall.Hedge(0.0))
    assert shop.calls == 1


@kinds
def test_a_budget_bounds_the_copies(kind: str) -> None:
    shop = Shop(failing=1000)
    hedge = nearcall.Hedge(0.0, attempts=5, max_tokens=4)

    with nearcall.Server(shop, "inproc://hedge-budget") as server:

        def run() -> None:
            with nearcall.connect(server.urls[0], Shop, hedge=hedge) as client:
                for _ in range(10):
                    with pytest.raises(nearcall.Unavailable):
                        client.price("pen")

        async def run_in_loop() -> None:
            async with nearcall.aio.connect(server.urls[0], Shop, hedge=hedge) as client:
                for _ in range(10):
                    with pytest.raises(nearcall.Unavailable):
                        await client.price("pen")

        run() if kind == "thread" else asyncio.run(run_in_loop())
    assert 10 <= shop.calls <= 20, "each call is sent once, and the first ones a few times more"


@kinds
def test_a_deadline_ends_all_copies(kind: str) -> None:
    shop = Shop(slow=9)
    shop.answers = False  # else one might answer just before the client notices the end of its time
    with nearcall.Server(shop, "inproc://hedge-late") as server:
        with pytest.raises(nearcall.DeadlineExceeded):
            price(server.urls[0], kind, "pen", timeout=0.2, hedge=nearcall.Hedge(0.01, attempts=3))
        for given_up in shop.waiting:
            given_up.set()


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: nearcall.Hedge(-1), nearcall.InvalidArgument, "delay must be a number of seconds from 0 to 1e9"),
        (lambda: nearcall.Hedge(1, attempts=6), nearcall.InvalidArgument, "attempts must be at most 5, not 6"),
        (lambda: nearcall.Hedge(1, attempts=1), nearcall.InvalidArgument, "attempts must be a whole number from 2"),
        (
            lambda: nearcall.connect("inproc://x", Shop, hedge=cast(Any, 0.1)),
            TypeError,
            "hedge takes a nearcall.Hedge, such as Hedge(delay=0.05), or None, not 0.1",
        ),
        (
            lambda: nearcall.connect("inproc://x", Shop, hedge=nearcall.Hedge(1), retry=nearcall.Retry()),
            ValueError,
            "hedge and retry cannot be used together: both say when to send a call again",
        ),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value).startswith(message)
