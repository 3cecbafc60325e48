"""A service over gRPC from end to end: our client, our server, Protobuf between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import grpc
import msgspec
import pytest

import nearcall
import nearcall.aio
from nearcall.codec.protobuf.descriptor import codec_of

from .process import ServerProcess

SCHEMES = ("grpc", "grpc+unix", "grpcs")


class Full(Exception):
    pass


RETRY = {"type": "type.googleapis.com/google.rpc.RetryInfo", "value": b"\x0a\x02\x08\x03"}


@nearcall.service(errors=[Full])
class Shop:
    def price(self, name: str, count: int = 1) -> float:
        if name == "nothing":
            raise nearcall.NotFound("there is no nothing", details={"asked": name})
        if name == "later":
            raise nearcall.ResourceExhausted("come back", details=[RETRY])
        if name == "much":
            raise Full("no room", 7)
        return 2.5 * count

    async def price_in_loop(self, name: str) -> float:
        return 2.5

    def film(self, frames: list[bytes], name: str) -> tuple[str, list[bytes]]:
        return name, frames[::-1]

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    def scale(self, xs: Iterator[float], by: float) -> Iterator[float]:
        for x in xs:
            yield x * by

    @nearcall.oneway
    def note(self, line: str) -> None: ...


@nearcall.service(name="Shop")
class Watched:
    def watch(self, shop: Shop) -> None: ...


def shop() -> list[object]:
    return [Shop()]


@pytest.fixture(scope="module")
def server(runtime_dir: Path) -> Iterator[ServerProcess]:
    urls = ("grpc://127.0.0.1:0", f"grpc+unix://{runtime_dir}/shop.grpc", "grpcs://127.0.0.1:0")
    with ServerProcess(*urls, services="tests.e2e.test_grpc:shop") as server:
        yield server


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_service_over_grpc(server: ServerProcess, scheme: str, certificates: Path) -> None:
    with nearcall.connect(server.urls[SCHEMES.index(scheme)], Shop) as shop:
        assert shop.price("pen", 2) == 5.0
        assert shop.price("pen", count=4) == 10.0
        assert list(shop.countdown(1000)) == list(range(1000, 0, -1))
        assert shop.total(iter(range(1000))) == sum(range(1000))
        assert list(shop.scale(iter([1.0, 2.0]), 3.0)) == [3.0, 6.0]
        frames = [bytes([at]) * (300_000 * at) for at in range(8)]  # above the windows, in one message
        assert shop.film(frames, "the end") == ("the end", frames[::-1])
        shop.note("one way is answered, too")
        with pytest.raises(nearcall.NotFound, match="no nothing") as caught:
            shop.price("nothing")
        assert caught.value.details == {"asked": "nothing"}


class AnyMessage(msgspec.Struct):
    type_url: str
    value: bytes


class Status(msgspec.Struct):
    """`google.rpc.Status`."""

    code: Annotated[int, nearcall.field(type="int32")]
    message: str
    details: list[AnyMessage]


def test_details_are_readable_in_every_language(server: ServerProcess) -> None:
    def details(name: str) -> list[AnyMessage]:
        with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/Shop/Price")(bytes([0x0A, len(name)]) + name.encode())
            error: Any = caught.value
            trailers = dict(error.trailing_metadata())
            status: Status = codec_of(Status).decode(trailers["grpc-status-details-bin"], 100)
            assert (status.code, status.message) == (error.code().value[0], error.details())
            return status.details

    assert [(each.type_url, each.value) for each in details("later")] == [(RETRY["type"], RETRY["value"])]
    own, info = details("much")
    assert own.type_url == "type.googleapis.com/nearcall.Details"
    assert (info.type_url, info.value) == ("type.googleapis.com/google.rpc.ErrorInfo", b"\x0a\x04Full")
    assert [each.type_url for each in details("nothing")] == [own.type_url]


def test_details_for_others_arrive_at_our_clients_as_they_were(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Shop) as shop:
        with pytest.raises(nearcall.ResourceExhausted, match="come back") as caught:
            shop.price("later")
        assert caught.value.details == [RETRY]
        with pytest.raises(Full) as full:
            shop.price("much")
        assert full.value.args == ("no room", 7)


def test_a_client_without_a_class_is_refused(server: ServerProcess) -> None:
    url = server.urls[0]
    with pytest.raises(nearcall.FailedPrecondition) as caught:
        nearcall.connect(url)
    assert caught.value.message == f"{url}: gRPC's servers do not describe themselves: give the service's class"


def test_a_class_that_cannot_cross_is_refused_in_words(server: ServerProcess) -> None:
    with pytest.raises(
        TypeError, match=r"Shop.watch\(\) cannot be served over gRPC and HTTP: parameter 'shop' is a reference"
    ):
        nearcall.connect(server.urls[0], Watched)

    async def main() -> None:
        with pytest.raises(TypeError, match="is a reference"):
            await nearcall.aio.connect(server.urls[0], Watched)

    asyncio.run(main())


def test_a_service_over_grpc_in_an_event_loop(server: ServerProcess) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(1000):
            yield number

    async def main() -> None:
        async with nearcall.aio.connect(server.urls[0], Shop) as shop:
            assert await shop.price_in_loop("pen") == 2.5
            assert [number async for number in shop.countdown(100)] == list(range(100, 0, -1))
            assert await shop.total(numbers()) == sum(range(1000))
            prices = await asyncio.gather(*(shop.price("pen", count) for count in range(1, 100)))
            assert prices == [2.5 * count for count in range(1, 100)]

    asyncio.run(main())
