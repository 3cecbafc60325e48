"""Handlers that are to give a stream and return something else: the caller reads which method, what, and what to do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import nearcall


async def _items() -> AsyncIterator[int]:
    yield 1


class Squares:
    """A sequence of the old kind."""

    def __getitem__(self, place: int) -> int:
        if place > 2:
            raise IndexError
        return place * place


class Broken:
    def __iter__(self) -> Iterator[int]:
        raise TypeError("its own mistake")


GIVEN: dict[str, Callable[[], Any]] = {
    "a number": lambda: 5,
    "nothing": lambda: None,
    "for a loop": _items,
    "old": Squares,
    "broken": Broken,
    "a list": lambda: [0, 1, 4],
}


@nearcall.service
class InThreads:
    def find(self, what: str) -> Iterator[int]:
        return GIVEN[what]()  # type: ignore[no-any-return]

    def both(self, numbers: Iterator[int], what: str) -> Iterator[int]:
        return GIVEN[what]()  # type: ignore[no-any-return]


@nearcall.service
class InLoop:
    def find(self, what: str) -> AsyncIterator[int]:
        return GIVEN[what]()  # type: ignore[no-any-return]


def _passes(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    return proceed(call)


async def _awaits(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    return await proceed(call)


async def _yields(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> AsyncIterator[Any]:
    async for item in proceed(call):
        yield item


AROUND: list[tuple[Any, ...]] = [(), (_passes,), (_awaits,), (_yields,)]
STREAM = "the result must be a stream, got "
INSTEAD = "yield the items, or return an iterable"


@pytest.mark.parametrize("interceptors", AROUND)
def test_a_handler_in_a_thread_that_returns_no_stream(key: str, interceptors: Any) -> None:
    with (
        nearcall.Server(InThreads(), f"inproc://{key}", interceptors=interceptors) as server,
        nearcall.connect(server.urls[0], InThreads) as client,
    ):
        for what, said in (
            ("a number", f"InThreads.find(): {STREAM}int: {INSTEAD}"),
            ("nothing", f"InThreads.find(): {STREAM}None: {INSTEAD}"),
            ("for a loop", f"InThreads.find(): {STREAM}async_generator: annotate the method with AsyncIterator"),
        ):
            with pytest.raises(nearcall.Internal, match=f"^{re.escape(said)}$"):
                list(client.find(what))
        with pytest.raises(nearcall.Internal, match=rf"^InThreads\.both\(\): {STREAM}int: {INSTEAD}$"):
            list(client.both(iter([1]), "a number"))
        with pytest.raises(nearcall.Unknown, match="TypeError: its own mistake"):
            list(client.find("broken"))
        assert list(client.find("a list")) == list(client.find("old")) == [0, 1, 4]


@pytest.mark.parametrize("interceptors", AROUND)
def test_a_handler_in_a_loop_that_returns_no_stream(key: str, interceptors: Any) -> None:
    instead = "yield the items, or return an asynchronous iterator"
    with (
        nearcall.Server(InLoop(), f"inproc://{key}", interceptors=interceptors) as server,
        nearcall.connect(server.urls[0]) as client,
    ):
        for what, got in (("a number", "int"), ("nothing", "None"), ("a list", "list")):
            with pytest.raises(nearcall.Internal, match=rf"^InLoop\.find\(\): {STREAM}{got}: {instead}$"):
                list(client.find(what))
        assert list(client.find("for a loop")) == [1]
