"""What programs do wrong with clients, references and buffers: each error names what, where and what to do."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from unittest import mock

import pytest

import nearcall


@nearcall.service
class File(Protocol):
    def read(self) -> str: ...


@nearcall.service
class Files(Protocol):
    def open(self, name: str) -> File: ...
    def size(self, data: memoryview) -> int: ...
    def write(self, name: str, data: memoryview, more: bytes = b"") -> int: ...
    def part(self) -> memoryview: ...


class TheFile(File):
    def read(self) -> str:
        return "text"


class TheFiles(Files):
    def open(self, name: str) -> File:
        return TheFile()

    def size(self, data: memoryview) -> int:
        return len(data)

    def write(self, name: str, data: memoryview, more: bytes = b"") -> int:
        return len(data) + len(more)

    def part(self) -> memoryview:
        return memoryview(b"abcdef")[::2]


@pytest.fixture
def url(key: str) -> Iterator[str]:
    with nearcall.Server(TheFiles(), f"inproc://{key}") as server:
        yield server.urls[0]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_has_a_connection_is_not_copied(url: str, how: Callable[[Any], Any]) -> None:
    with nearcall.Channel(url) as channel:
        client = channel.client(Files)
        for what in (channel, client, client.service, client.service.open("a")):
            with pytest.raises(TypeError, match=rf"^(a reference|<.* {url}>+) cannot be pickled or copied: it "):
                how(what)

    async def main() -> None:
        async with nearcall.aio.Channel(url) as channel:
            client = channel.client(Files)
            for what in (channel, client, client.service, await client.service.open("a")):
                with pytest.raises(TypeError, match=rf"^(a reference|<.* {url}>+) cannot be pickled or copied: it "):
                    how(what)

    asyncio.run(main())


def test_a_reference_is_let_go_of_and_not_closed(url: str) -> None:
    with nearcall.connect(url, Files) as files:
        wrong: Any = files.open("a")
        with pytest.raises(AttributeError, match=r"^File has no method 'close': nearcall\.release\(\) lets go of"):
            contextlib.closing(wrong).__exit__(None, None, None)
        with contextlib.ExitStack() as stack:
            file = files.open("a")
            stack.callback(nearcall.release, file)
            assert file.read() == "text"
        with pytest.raises(nearcall.FailedPrecondition, match="the reference was released"):
            file.read()


def test_attributes_are_not_sent(url: str) -> None:
    with nearcall.connect(url, Files) as files:
        wrong: Any
        for wrong, name in ((files, "Files"), (files.open("a"), "File")):
            with pytest.raises(
                AttributeError, match=f"^{name} at {url} has no method 'mode', and attributes are not sent"
            ):
                wrong.mode = "r"
            assert not hasattr(wrong, "mode")
        with mock.patch.object(wrong, "read", return_value="made up"):
            assert wrong.read() == "made up"
        assert wrong.read() == "text"


def test_a_reference_says_what_became_of_it(url: str) -> None:
    client = nearcall.connect(url, Files)
    first, second = client.service.open("a"), client.service.open("b")
    assert repr(first) == f"<reference to a File at {url}>"
    nearcall.release(first)
    client.close()
    assert (repr(first), repr(second)) == (
        f"<released reference to a File at {url}>",
        f"<lost reference to a File at {url}>",
    )


def test_a_view_that_cannot_be_sent_is_named(url: str) -> None:
    """With the method and the argument, however the arguments travel."""
    gaps, closed = memoryview(b"abcdef")[::2], memoryview(b"abc")
    closed.release()
    with nearcall.connect(url, Files) as files:
        for view, why in ((gaps, "not C-contiguous: copy it first"), (closed, "released memoryview")):
            with pytest.raises(nearcall.InvalidArgument, match=rf"^Files.size\(\): argument 'data' .*{why}"):
                files.size(view)
            with pytest.raises(nearcall.InvalidArgument, match=rf"^Files.write\(\): argument 'data' .*{why}"):
                files.write("a", view)
            with pytest.raises(nearcall.InvalidArgument, match=rf"^Files.write\(\): argument 'data' .*{why}"):
                files.write("a", view, more=b"x")
        with pytest.raises(nearcall.Internal, match=r"^Files.part\(\): the result .*not C-contiguous: copy it first"):
            files.part()
        assert files.size(memoryview(b"abc")) == 3
