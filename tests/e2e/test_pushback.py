"""Servers that have failed say when the next copy of a call is sent, or that none is: by the trailing metadata of the
failure, which users see, too.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nearcall

from .pushing import PATIENCE, pushing

servers = pytest.mark.parametrize("by", ["nearcall", "grpcio"])


@nearcall.service(name="shop.v1.Shop")
class Shop:
    @nearcall.idempotent
    def find_all(self) -> int:
        raise NotImplementedError


def in_thread(url: str, cls: type[Any] = Shop, method: str = "find_all", **options: Any) -> Any:
    with nearcall.connect(url, cls, **options) as client:
        return getattr(client, method)()


def in_loop(url: str, cls: type[Any] = Shop, method: str = "find_all", **options: Any) -> Any:
    async def main() -> Any:
        async with nearcall.aio.connect(url, cls, **options) as client:
            return await getattr(client, method)()

    return asyncio.run(main())


callers = pytest.mark.parametrize("call", [in_thread, in_loop])
HEDGE = nearcall.Hedge(PATIENCE, attempts=3)
"""Without pushback the next copy is sent as soon as one has failed."""


@callers
@servers
@pytest.mark.parametrize("pushback", ["-1", "soon", ""])
def test_a_server_forbids_further_copies(by: str, call: Callable[..., Any], pushback: str) -> None:
    asked: list[float] = []
    with pushing(by, pushback, asked) as address, pytest.raises(nearcall.Unavailable, match="not yet") as caught:
        call(f"grpc://{address}", hedge=HEDGE)
    assert len(asked) == 1
    # grpcio's server sends this in place of what is no number.
    sent = pushback if by == "nearcall" or pushback == "-1" else str(-(2**63))
    assert caught.value.trailing_metadata["grpc-retry-pushback-ms"] == sent


@callers
@servers
def test_a_server_delays_the_next_copy(by: str, call: Callable[..., Any]) -> None:
    asked: list[float] = []
    with pushing(by, "300", asked) as address:
        assert call(f"grpc://{address}", hedge=HEDGE) == 2
    assert asked[1] - asked[0] >= 0.3


@callers
@servers
def test_a_delay_that_outlasts_the_deadline_is_not_waited_for(by: str, call: Callable[..., Any]) -> None:
    asked: list[float] = []
    with pushing(by, "100000", asked) as address, pytest.raises(nearcall.Unavailable, match="not yet"):
        call(f"grpc://{address}", hedge=HEDGE, timeout=PATIENCE)
    assert len(asked) == 1


@callers
def test_the_deadline_of_a_delayed_copy_is_that_of_the_call(call: Callable[..., Any]) -> None:
    left: list[float] = []

    @nearcall.service(name="shop.v1.Shop")
    class Late:
        def find_all(self) -> int:
            context = nearcall.context()
            left.append(context.time_left or 0.0)
            if len(left) == 1:
                context.add_trailing_metadata({"grpc-retry-pushback-ms": "200"})
                raise nearcall.Unavailable("not yet")
            return 1

    with nearcall.Server(Late(), "grpc://127.0.0.1:0") as server:
        assert call(server.urls[0], hedge=HEDGE, timeout=PATIENCE) == 1
    assert left[1] <= PATIENCE - 0.2


@callers
def test_a_copy_under_way_goes_on_when_further_ones_are_forbidden(call: Callable[..., Any]) -> None:
    asked: list[int] = []
    second, third = threading.Event(), threading.Event()

    @nearcall.service(name="shop.v1.Shop")
    class Slow:
        def find_all(self) -> int:
            asked.append(1)
            number = len(asked)
            if number == 1:
                second.wait(PATIENCE)
                third.wait(0.3)  # it must not come
            elif number == 2:
                second.set()
                nearcall.context().add_trailing_metadata({"grpc-retry-pushback-ms": "-1"})
                raise nearcall.Unavailable("no more")
            else:
                third.set()
            return number

    with nearcall.Server(Slow(), "grpc://127.0.0.1:0") as server:
        assert call(server.urls[0], hedge=nearcall.Hedge(1.0, attempts=3)) == 1
    assert len(asked) == 2


@nearcall.service
class Failing:
    def __init__(self, other: str = "") -> None:
        self._other = other

    def fails(self) -> int:
        nearcall.context().add_trailing_metadata([("cost", "3"), ("cost", "4"), ("raw-bin", b"\x00\xff")])
        raise nearcall.NotFound("nothing", details={"id": 7})

    def fails_plainly(self) -> int:
        raise nearcall.NotFound("nothing")

    def counts(self) -> Iterator[int]:
        yield 1
        nearcall.context().add_trailing_metadata({"cost": "5"})
        raise nearcall.Aborted("over")

    def passes_on(self) -> int:
        with nearcall.connect(self._other, Failing) as other:
            return other.fails()


@callers
def test_an_error_has_the_trailing_metadata_of_its_call(call: Callable[..., Any], new_url: str) -> None:
    with nearcall.Server(Failing(), new_url, "grpc://127.0.0.1:0", "http://127.0.0.1:0") as server:
        for url in server.urls:
            with pytest.raises(nearcall.NotFound) as caught:
                call(url, Failing, "fails")
            for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
                assert error.trailing_metadata.pairs() == [("cost", "3"), ("cost", "4"), ("raw-bin", b"\x00\xff")]
                assert error.details == {"id": 7}
            with pytest.raises(AttributeError):
                setattr(caught.value, "trailing_metadata", None)  # noqa: B010 - a type checker refuses it as well
            with pytest.raises(nearcall.NotFound) as caught:
                call(url, Failing, "fails_plainly")
            assert not caught.value.trailing_metadata
        with (
            nearcall.Server(Failing(server.urls[0]), "inproc://passes-on") as between,
            pytest.raises(nearcall.NotFound) as caught,
        ):
            call(between.urls[0], Failing, "passes_on")
        assert not caught.value.trailing_metadata


def test_a_retry_that_there_is_no_time_for_leaves_the_metadata_of_the_last_failure() -> None:
    asked: list[float] = []
    retry = nearcall.Retry(initial_backoff=1000, max_backoff=1000)
    for call in (in_thread, in_loop):
        asked.clear()
        with pushing("grpcio", "100000", asked) as address, pytest.raises(nearcall.Unavailable) as caught:
            call(f"grpc://{address}", retry=retry, timeout=PATIENCE)
        assert caught.value.trailing_metadata["grpc-retry-pushback-ms"] == "100000"


def test_the_error_of_a_stream_has_it_too(new_url: str) -> None:
    async def in_a_loop(url: str) -> None:
        async with nearcall.aio.connect(url, Failing) as client:
            with pytest.raises(nearcall.Aborted) as caught:
                [item async for item in client.counts()]
            assert caught.value.trailing_metadata["cost"] == "5"

    with nearcall.Server(Failing(), new_url, "grpc://127.0.0.1:0") as server:
        for url in server.urls:
            with nearcall.connect(url, Failing) as client:
                with pytest.raises(nearcall.Aborted) as caught:
                    list(client.counts())
                assert caught.value.trailing_metadata["cost"] == "5"
                started = nearcall.start(client.fails).exception()
                assert isinstance(started, nearcall.NotFound)
                assert started.trailing_metadata["cost"] == "3"
            asyncio.run(in_a_loop(url))
