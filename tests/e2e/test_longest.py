"""One call fits, whose messages are the longest both in and out.

Over every transport, and in a server that keeps no more than that for all clients together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import nearcall

from .conftest import TRANSPORTS
from .ports import own_port
from .process import ServerProcess

MIB = 1 << 20
LONGEST = 6 * MIB
LEAST = 2 * (LONGEST + MIB)
"""The least ``max_memory`` that a server takes with messages of that size."""
HEADS = 64
"""More than stands in a message beside its one value."""

WEB: dict[str, Callable[[str, Path], str]] = {
    "grpc": lambda name, directory: f"grpc://127.0.0.1:{own_port()}",
    "http": lambda name, directory: f"http://127.0.0.1:{own_port()}",
}
ALL = TRANSPORTS | WEB


@nearcall.service
class Long:
    def back(self, data: bytes) -> bytes:
        return data

    async def back_in_loop(self, data: bytes) -> bytes:
        return data

    def view(self, data: memoryview) -> memoryview:
        return data

    def text(self, text: str) -> str:
        return text

    def items(self, data: Iterator[bytes]) -> Iterator[bytes]:
        yield from data

    async def items_in_loop(self, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for item in data:
            yield item


@nearcall.service
class Loop:
    async def back(self, data: bytes) -> bytes:
        return data


@nearcall.service
class Asks:
    """Calls its client, with what it was called with."""

    def there_and_back(self, other: Long, data: bytes) -> bytes:
        return other.back(data)

    async def there_and_back_in_loop(self, other: Loop, data: bytes) -> bytes:
        return await other.back(data)


def long() -> list[object]:
    return [Long()]


def both() -> list[object]:
    return [Long(), Asks()]


def serving(url: str, **options: int) -> AbstractContextManager[ServerProcess | nearcall.Server]:
    is_web = url.startswith(("grpc", "http"))
    services = long if is_web else both  # references do not cross there
    if url.startswith("inproc"):
        return nearcall.Server(*services(), url, **options)
    return ServerProcess(url, services=f"{__name__}:{services.__name__}", **options)


@pytest.fixture(params=ALL)
def any_url(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> str:
    return ALL[request.param](f"l{key}", runtime_dir)


def filled(length: int) -> bytes:
    return bytes(range(256)) * (length // 256) + bytes(length % 256)


def test_it_fits(any_url: str) -> None:
    data = filled(LONGEST - HEADS)
    with (
        serving(any_url, max_message_size=LONGEST, max_memory=LEAST),
        nearcall.connect(any_url, Long, max_message_size=LONGEST) as client,
    ):
        # Each follows at once on the one before it.
        for _ in range(2):
            assert client.back(data) == data
            assert client.view(memoryview(data)) == data
            assert client.back_in_loop(data) == data
            assert len(client.text("x" * (LONGEST - HEADS))) == LONGEST - HEADS
        assert [item == data for item in client.items(iter([data] * 3))] == [True] * 3
        assert [item == data for item in client.items_in_loop(iter([data] * 3))] == [True] * 3


def test_it_fits_in_a_loop(any_url: str) -> None:
    data = filled(LONGEST - HEADS)

    async def call() -> None:
        async with nearcall.aio.connect(any_url, Long, max_message_size=LONGEST) as client:
            for _ in range(2):
                assert await client.back(data) == data
                assert await client.back_in_loop(data) == data
            assert [item == data async for item in client.items([data] * 3)] == [True] * 3
            assert [item == data async for item in client.items_in_loop([data] * 3)] == [True] * 3

    with serving(any_url, max_message_size=LONGEST, max_memory=LEAST):
        asyncio.run(call())


def test_it_fits_the_other_way(new_url: str) -> None:
    """While a call with the longest arguments waits, the server calls the client as long, and is answered as long."""
    data = filled(LONGEST - 2 * HEADS)
    with (
        serving(new_url, max_message_size=LONGEST, max_memory=LEAST),
        nearcall.connect(new_url, Asks, max_message_size=LONGEST) as client,
    ):
        for _ in range(2):
            assert client.there_and_back(Long(), data) == data
            assert client.there_and_back_in_loop(Loop(), data) == data


@pytest.mark.slow
def test_messages_of_100_mib_fit_without_another_option(any_url: str) -> None:
    longest = 100 * MIB
    data = bytes(longest - HEADS)
    with (
        serving(any_url, max_message_size=longest),
        nearcall.connect(any_url, Long, max_message_size=longest) as client,
    ):
        assert client.back(data) == data


def test_the_largest_rings_leave_room(key: str) -> None:
    """A client chooses the size of its rings, and they count towards what the server keeps."""
    url, data = f"shm://l{key}", filled(LONGEST - HEADS)
    rings = 2 * 16 * MIB
    largest = {"ring_size": 16 * MIB, "max_message_size": LONGEST}
    with (
        serving(url, max_message_size=LONGEST, max_memory=LEAST + rings),
        nearcall.connect(url, Long, **largest) as client,  # type: ignore[arg-type]
    ):
        for _ in range(2):
            assert client.back(data) == data
    with (
        serving(url, max_message_size=LONGEST, max_memory=LEAST),
        pytest.raises(
            nearcall.RpcError,
            match=r"two rings of 16777216 bytes; connect with a smaller ring_size, or raise max_memory",
        ),
    ):
        nearcall.connect(url, Long, **largest)  # type: ignore[arg-type]


def test_less_memory_is_refused() -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        nearcall.Server(Long(), "inproc://nobody", max_memory=100_000_000)
    assert str(caught.value) == (
        "max_memory=100000000 has no room for the longest message in and the longest out: with "
        "max_message_size=67108864 they take 136314880 bytes; raise max_memory, or lower max_message_size"
    )
    assert caught.value.option == "max_memory"
    nearcall.Server(Long(), "inproc://nobody", max_memory=136_314_880)
    nearcall.Server(Long(), "inproc://nobody", max_message_size=2**63 - 1)
