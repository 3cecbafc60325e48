"""What travels beside a call, and what its handler can ask."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import nearcall

from .deadlines import longer_and_longer
from .services import PATIENCE


@nearcall.service
class Curious:
    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.started = threading.Event()

    def facts(self) -> dict[str, str]:
        context = nearcall.context()
        context.send_metadata({"early": "1", "bytes-bin": b"\x00\xff"})
        context.add_trailing_metadata({"cost": "9"})
        context.add_trailing_metadata([("cost", "10")])
        left = context.time_left
        return {"method": context.method, "left": "none" if left is None else str(0 < left <= 5)}

    def left(self) -> float | None:
        return nearcall.context().time_left

    async def left_in_loop(self) -> float | None:
        return nearcall.context().time_left

    async def facts_in_loop(self) -> dict[str, str]:
        return Curious.facts(self)

    def sent(self) -> list[tuple[str, str]]:
        return [(key, repr(value)) for key, value in nearcall.context().metadata.pairs()]

    def fails(self) -> None:
        nearcall.context().add_trailing_metadata({"cost": "3"})
        raise nearcall.NotFound("nothing")

    def numbers(self, n: int) -> Iterator[int]:
        nearcall.context().send_metadata({"count": str(n)})
        yield from range(n)
        nearcall.context().add_trailing_metadata({"done": "yes"})

    async def numbers_in_loop(self, n: int) -> AsyncIterator[int]:
        nearcall.context().send_metadata({"count": str(n)})
        for number in range(n):
            yield number
        nearcall.context().add_trailing_metadata({"done": "yes"})

    def until_cancelled(self) -> None:
        self.started.set()
        context = nearcall.context()
        while not context.cancelled:
            threading.Event().wait(0.002)
        self.cancelled.set()

    def is_cancelled(self) -> bool:
        return nearcall.context().cancelled

    def nested(self, url: str) -> bool:
        with nearcall.connect(url, Curious) as other:
            return other.facts()["left"] == "True"

    async def nested_in_loop(self, url: str) -> bool:
        async with nearcall.aio.connect(url, Curious) as other:
            return bool((await other.facts())["left"] == "True")


@pytest.fixture
def curious(new_url: str) -> Iterator[tuple[Curious, str]]:
    served = Curious()
    with nearcall.Server(served, new_url) as server:
        yield served, server.urls[0]


@pytest.mark.parametrize("method", ["facts", "facts_in_loop"])
def test_metadata_both_ways(curious: tuple[Curious, str], method: str) -> None:
    with nearcall.connect(curious[1], Curious) as client:
        with nearcall.timeout(5), nearcall.metadata({"trace": "x"}) as meta:
            assert getattr(client, method)() == {"method": f"Curious.{method}", "left": "True"}
        assert meta.initial.pairs() == [("early", "1"), ("bytes-bin", b"\x00\xff")]
        assert meta.trailing.getall("cost") == ["9", "10"]
        assert getattr(client, method)()["left"] == "none"


def test_a_handler_has_as_long_as_its_caller(curious: tuple[Curious, str]) -> None:
    """So long that no machine is too busy to tell a part of it from all."""
    with nearcall.connect(curious[1], Curious) as client, nearcall.timeout(100_000):
        for left in (client.left(), client.left_in_loop(), nearcall.start(client.left).result()):
            assert left is not None
            assert 90_000 < left <= 100_000


def test_blocks_nest_and_end(curious: tuple[Curious, str]) -> None:
    with nearcall.connect(curious[1], Curious) as client:
        with nearcall.metadata({"a": "1"}), nearcall.metadata([("b", "2"), ("a", "3")]):
            assert client.sent() == [("a", "'1'"), ("b", "'2'"), ("a", "'3'")]
        assert client.sent() == []


def test_metadata_comes_with_errors_and_streams(curious: tuple[Curious, str]) -> None:
    with nearcall.connect(curious[1], Curious) as client:
        with nearcall.metadata() as meta, pytest.raises(nearcall.NotFound):
            client.fails()
        assert meta.trailing["cost"] == "3"
        for method in (client.numbers, client.numbers_in_loop):
            with nearcall.metadata() as meta:
                assert list(method(3)) == [0, 1, 2]
            assert (meta.initial["count"], meta.trailing["done"]) == ("3", "yes")


def test_metadata_from_a_loop(curious: tuple[Curious, str]) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(curious[1], Curious) as client:
            for method in (client.facts, client.facts_in_loop):
                with nearcall.metadata({"trace": "x"}) as meta:
                    await method()
                assert (meta.initial["early"], meta.trailing["cost"]) == ("1", "9")
            with nearcall.metadata() as meta:
                assert [number async for number in client.numbers_in_loop(3)] == [0, 1, 2]
            assert (meta.initial["count"], meta.trailing["done"]) == ("3", "yes")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"Upper": "x"}, "is no metadata key"),
        ({"text": b"x"}, "must be str"),
        ({"raw-bin": "x"}, "must be bytes"),
    ],
)
def test_malformed_metadata(items: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearcall.metadata(items)


def late(served: Curious, client: Curious) -> None:
    for seconds in longer_and_longer():
        with nearcall.timeout(seconds), pytest.raises(nearcall.DeadlineExceeded):
            client.until_cancelled()
        if served.started.is_set():
            break
    assert served.cancelled.wait(PATIENCE)


def test_a_handler_sees_that_its_caller_gave_up(curious: tuple[Curious, str]) -> None:
    served, url = curious
    with nearcall.connect(url, Curious) as client:
        late(served, client)


def test_a_call_that_was_cancelled_is_not_taken_for_a_later_one_of_the_same_number(
    curious: tuple[Curious, str],
) -> None:
    """A client uses the number of a call again after 4,096 others."""
    served, url = curious
    with nearcall.connect(url, Curious) as client:
        late(served, client)
        assert [number for number in range(4200) if client.is_cancelled()] == []


def test_a_handler_sees_that_its_caller_is_gone(curious: tuple[Curious, str]) -> None:
    served, url = curious
    client = nearcall.connect(url, Curious)

    def call() -> None:
        with contextlib.suppress(nearcall.Cancelled):
            client.service.until_cancelled()

    caller = threading.Thread(target=call)
    caller.start()
    assert served.started.wait(10)
    client.close()
    caller.join(10)
    assert served.cancelled.wait(10)


@pytest.mark.parametrize("method", ["nested", "nested_in_loop"])
def test_a_handlers_own_calls_inherit_its_deadline(curious: tuple[Curious, str], method: str) -> None:
    url = curious[1]
    with nearcall.connect(url, Curious) as client, nearcall.timeout(5):
        assert getattr(client, method)(url) is True


def test_the_peer_is_this_process(curious: tuple[Curious, str], transport: str) -> None:
    with nearcall.connect(curious[1], Curious) as client:
        assert client.facts()
        peer = nearcall.connect(curious[1], Curious).peer
    if transport in ("shm", "unix", "inproc"):
        assert (peer["pid"], peer["uid"]) == (os.getpid(), os.getuid())
    elif transport == "nats":
        assert peer["broker"].startswith("nats://127.0.0.1:")
    else:
        assert peer["address"].startswith("127.0.0.1:")


def test_outside_a_handler_there_is_no_context() -> None:
    with pytest.raises(RuntimeError, match="no call is being served"):
        nearcall.context()


def test_a_task_is_in_the_blocks_that_it_was_made_in(curious: tuple[Curious, str]) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(curious[1], Curious) as client:
            with nearcall.metadata({"user": "ada"}) as metadata, nearcall.timeout(5):
                sent, facts = asyncio.ensure_future(client.sent()), asyncio.ensure_future(client.facts())
            # No block is open any more when they begin.
            assert [tuple(pair) for pair in await sent] == [("user", "'ada'")]
            assert (await facts)["left"] == "True"
            assert metadata.trailing["cost"] == "9"

    asyncio.run(main())
