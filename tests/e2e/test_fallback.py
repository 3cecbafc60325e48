"""Calls of gRPC's methods that a server does not know: its fallback answers them, as a proxy does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import nearcall
import nearcall.aio


@nearcall.service
class Shop:
    def find(self, name: str) -> str:
        return name.upper()

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    def scaled(self, numbers: Iterator[int], by: int) -> Iterator[int]:
        for number in numbers:
            yield number * by

    def fail(self, text: str) -> None:
        raise nearcall.NotFound(text)

    def told(self) -> dict[str, str]:
        left = nearcall.context().time_left
        return {"word": str(nearcall.context().metadata.get("word")), "in_time": str(left is not None and left < 60)}


@nearcall.service
class Own:
    def here(self) -> str:
        return "here"


@pytest.fixture(scope="module")
def behind() -> Iterator[str]:
    with nearcall.Server(Shop(), "grpc://127.0.0.1:0") as server:
        yield server.urls[0]


def of_threads(behind: str) -> Any:
    channel = nearcall.Channel(behind)

    def forward(path: str, messages: Iterator[bytes]) -> Iterator[bytes]:
        with nearcall.metadata(nearcall.context().metadata.pairs()):
            yield from channel.method(path)(messages)

    return forward


def of_loops(behind: str) -> Any:
    channel = nearcall.aio.Channel(behind)

    async def forward(path: str, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        await channel
        with nearcall.metadata(nearcall.context().metadata.pairs()):
            async for message in channel.method(path)(messages):
                yield message

    return forward


@pytest.fixture(scope="module", params=[of_threads, of_loops])
def between(request: pytest.FixtureRequest, behind: str) -> Iterator[str]:
    make: Callable[[str], Any] = request.param
    with nearcall.Server(Own(), "grpc://127.0.0.1:0", fallback=make(behind)) as server:
        yield server.urls[0]


def test_every_kind_of_call_passes(between: str) -> None:
    with nearcall.Channel(between, timeout=50.0) as channel:
        shop = channel.client(Shop).service
        assert shop.find("pen") == "PEN"
        assert list(shop.count(3)) == [0, 1, 2]
        assert shop.total(iter([1, 2, 3])) == 6
        assert list(shop.scaled(iter([1, 2]), 3)) == [3, 6]
        with pytest.raises(nearcall.NotFound, match="no pen"):
            shop.fail("no pen")
        with nearcall.metadata({"word": "w"}):
            assert shop.told() == {"word": "w", "in_time": "True"}
        assert channel.client(Own).service.here() == "here"


@nearcall.service(name="Shop")
class Later:
    def gone(self) -> None: ...


def test_what_nobody_knows_fails(between: str) -> None:
    with nearcall.connect(between, Later) as shop, pytest.raises(nearcall.Unimplemented, match="/Shop/Gone"):
        shop.gone()
    with nearcall.Channel(between) as channel:
        # What is no path of a method is refused by the proxy itself.
        with pytest.raises(nearcall.InvalidArgument, match="x y"):
            channel.method("/x y/z")
        with pytest.raises(nearcall.InvalidArgument):
            channel.method("no path")


def test_a_stream_is_given_up(between: str) -> None:
    with nearcall.connect(between, Shop) as shop:
        many = shop.count(10**9)
        assert next(iter(many)) == 0
        many.close()  # type: ignore[attr-defined]
        assert shop.find("a") == "A"


def test_other_callers_get_their_own_words(behind: str) -> None:
    from .connect_peer import Peer

    with (
        nearcall.Server(Own(), "http://127.0.0.1:0", fallback=of_threads(behind)) as server,
        Peer(server.urls[0], "connect", codec="json") as peer,
    ):
        assert "no method /Shop/Find" in peer.call("/Shop/Find", b"{}").message


def test_mistakes(key: str) -> None:
    with pytest.raises(TypeError, match="fallback must be a function"):
        nearcall.Server(Own(), "grpc://127.0.0.1:0", fallback=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fallback is for grpc://"):
        nearcall.Server(Own(), f"inproc://{key}", fallback=lambda path, messages: messages)
    with (
        nearcall.Server(Own(), f"inproc://{key}") as server,
        nearcall.Channel(server.urls[0]) as channel,
        pytest.raises(ValueError, match="called by their paths at grpc:// URLs"),
    ):
        channel.method("/Own/Here")


@pytest.mark.parametrize("path", ["", "x", "/", "/x", "//find", "/Shop/", "Shop/Find"])
def test_what_is_no_path(path: str, behind: str) -> None:
    with (
        nearcall.Channel(behind) as channel,
        pytest.raises(
            nearcall.InvalidArgument, match=r"is no path of a method: write one such as /shop\.v1\.Shop/Find"
        ),
    ):
        channel.method(path)


def test_the_log_names_the_path(caplog: pytest.LogCaptureFixture) -> None:
    def fails(path: str, messages: Iterator[bytes]) -> Iterator[bytes]:
        raise RuntimeError("that")

    with (
        nearcall.Server("grpc://127.0.0.1:0", fallback=fails) as server,
        nearcall.Channel(server.urls[0]) as channel,
        pytest.raises(nearcall.Unknown, match="RuntimeError: that"),
    ):
        list(channel.method("/shop.v1.Shop/Find")([b""]))
    assert "the fallback for /shop.v1.Shop/Find raised RuntimeError" in caplog.text


def test_a_fallback_alone(behind: str) -> None:
    async def main(url: str) -> str:
        async with nearcall.aio.Channel(url) as channel:
            return str(await channel.client(Shop).service.find("x"))  # type: ignore[misc]

    with nearcall.Server("grpc://127.0.0.1:0", fallback=of_threads(behind)) as server:
        assert asyncio.run(main(server.urls[0])) == "X"
