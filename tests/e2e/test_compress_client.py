"""A client chooses for each call and message whether what it sends is compressed: its server says which were."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import pytest

import nearcall
import nearcall.aio

from .http1_only import Http1Only

LONG = b"the same again, " * 10_000
SHORT = b"again " * 20


@nearcall.service
class Seen:
    """Says of each message that has come whether it was compressed: ``"+"`` or ``"-"``."""

    def one(self, data: bytes) -> str:
        return _mark(data)

    async def one_in_loop(self, data: bytes) -> str:
        return _mark(data)

    @nearcall.oneway
    def forget(self, data: bytes) -> None:
        self.forgotten = _mark(data)

    def total(self, items: Iterator[bytes]) -> str:
        return "".join(map(_mark, items))

    async def total_in_loop(self, items: AsyncIterator[bytes]) -> str:
        return "".join([_mark(item) async for item in items])

    def both(self, items: Iterator[bytes], first: bytes) -> Iterator[str]:
        yield _mark(first)
        yield from map(_mark, items)


def _mark(data: bytes) -> str:
    assert data in (LONG, SHORT, b"x")
    return "+" if nearcall.context().received_compressed else "-"


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with (
        nearcall.Server(Seen(), "grpc://127.0.0.1:0", "http://127.0.0.1:0", "inproc://seen", "shm://seen") as server,
        Http1Only(server.urls[1]) as old,
    ):
        grpc, http, inproc, shm = server.urls
        yield {"grpc": grpc, "http": http, "http1": old.url, "inproc": inproc, "shm": shm}


COMPRESSES = ["grpc", "http", "http1"]


@pytest.fixture(params=COMPRESSES)
def seen(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[Seen]:
    with nearcall.connect(urls[request.param], Seen) as seen:
        yield seen


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_call_is_compressed_in_its_block(seen: Seen, encoding: Literal["gzip", "zstd"]) -> None:
    with nearcall.compression(encoding):
        assert seen.one(LONG) == seen.one_in_loop(LONG) == "+"
        assert seen.one(SHORT) == "-", "short ones are not worth it"
        assert seen.total(iter([LONG, SHORT, LONG])) == "+-+"
        started = nearcall.start(seen.one, LONG)
    assert started.result() == "+"
    assert seen.one(LONG) == "-"
    assert seen.total(iter([LONG, LONG])) == "--"


@pytest.mark.parametrize("kind", COMPRESSES)
def test_a_block_counts_more_than_the_channel_and_the_nearest_one_most(urls: dict[str, str], kind: str) -> None:
    with nearcall.connect(urls[kind], Seen, compression="zstd") as seen:
        assert seen.one(LONG) == "+"
        with nearcall.compression(None):
            assert seen.one(LONG) == "-"
            assert seen.total(iter([LONG, LONG])) == "--"
            with nearcall.compression("gzip"):
                assert seen.one(LONG) == "+"
            assert seen.one(LONG) == "-"
        assert seen.one(LONG) == "+"


def test_single_messages_are_chosen(seen: Seen) -> None:
    with nearcall.compression("gzip") as compression:
        compression.compress = True
        assert seen.one(SHORT) == seen.one(b"x") == "+", "also if it becomes longer"
        compression.compress = False
        assert seen.one(LONG) == "-"

        def items() -> Iterator[bytes]:
            for choice, item in ((None, SHORT), (True, SHORT), (False, LONG), (None, LONG), (False, SHORT)):
                compression.compress = choice
                yield item

        # None: from 1 KiB.
        assert seen.total(items()) == seen.total_in_loop(items()) == "-+-+-"


def test_single_messages_of_a_stream_both_ways(urls: dict[str, str]) -> None:
    with nearcall.connect(urls["grpc"], Seen) as seen, nearcall.compression("gzip") as compression:
        asked: list[bool] = []

        def items() -> Iterator[bytes]:
            for choice in (True, False, True):
                compression.compress = choice
                asked.append(choice)
                yield LONG

        assert "".join(seen.both(items(), LONG)) == "++-+"
        assert asked == [True, False, True]


@pytest.mark.parametrize("kind", COMPRESSES)
def test_from_an_event_loop(urls: dict[str, str], kind: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(urls[kind], Seen) as seen:
            # The first call connects, and goes on in the block that it was made in.
            with nearcall.compression("gzip") as compression:
                assert await seen.one(LONG) == "+"

                async def items() -> AsyncIterator[bytes]:
                    for choice in (True, False, True):
                        compression.compress = choice
                        yield LONG

                assert await seen.total(items()) == "+-+"
                compression.compress = None
                tasks = [asyncio.ensure_future(seen.one(LONG)) for _ in range(3)]
            tasks.append(asyncio.ensure_future(seen.one(LONG)))
            assert "".join(await asyncio.gather(*tasks)) == "+++-"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["inproc", "shm"])
def test_elsewhere_the_block_says_nothing(urls: dict[str, str], kind: str) -> None:
    with nearcall.connect(urls[kind], Seen) as seen, nearcall.compression("gzip") as compression:
        assert seen.one(LONG) == "-"
        assert seen.total(iter([LONG, SHORT])) == "--"
        compression.compress = True
        assert "".join(seen.both(iter([LONG]), LONG)) == "--"
        seen.forget(LONG)


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_a_stub_of_grpcios_says_so_for_each_call(urls: dict[str, str], kind: str) -> None:
    grpc = pytest.importorskip("grpc")
    import nearcall.grpcio

    def written(data: bytes) -> bytes:
        return b"\x0a" + _varint(len(data)) + data

    with nearcall.grpcio.channel(urls[kind]) as channel:
        one = channel.unary_unary("/Seen/One", written)
        total = channel.stream_unary("/Seen/Total", written)
        for compression, mark in ((grpc.Compression.Gzip, b"+"), (grpc.Compression.NoCompression, b"-"), (None, b"-")):
            assert one(LONG, compression=compression).endswith(mark)
            assert one.future(LONG, compression=compression).result().endswith(mark)
            assert total(iter([LONG] * 3), compression=compression).endswith(mark * 3)
        with pytest.raises(ValueError, match="Gzip"):
            one(LONG, compression=grpc.Compression.Deflate)


def test_a_stub_of_grpc_aio_says_so_for_each_call(urls: dict[str, str]) -> None:
    grpc = pytest.importorskip("grpc")
    import nearcall.grpcio.aio

    async def main() -> None:
        async with nearcall.grpcio.aio.channel(urls["grpc"]) as channel:
            one = channel.unary_unary("/Seen/One", lambda data: b"\x0a" + _varint(len(data)) + data)
            assert (await one(LONG, compression=grpc.Compression.Gzip)).endswith(b"+")
            assert (await one(LONG)).endswith(b"-")

    asyncio.run(main())


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_wrong_words_are_refused() -> None:
    wrong: Any = "br"
    with pytest.raises(nearcall.InvalidArgument, match='must be None, "gzip" or "zstd", not \'br\''):
        nearcall.compression(wrong)
    for encoding, value, error in (("gzip", "yes", TypeError), (None, True, ValueError)):
        block: Any = nearcall.compression(encoding)  # type: ignore[arg-type]
        set_it: Callable[[], None] = functools.partial(setattr, block, "compress", value)
        with pytest.raises(error):
            set_it()
