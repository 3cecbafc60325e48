"""Functions as arguments, results and fields, both ways, over every transport, from threads and from an event loop."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .conftest import IN_PROCESS, TRANSPORTS
from .function_services import Frame, Job, Table, Tool, in_loop, in_threads
from .process import ServerProcess

KINDS: dict[str, Callable[[], list[object]]] = {"threads": in_threads, "loop": in_loop}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Where the server's methods run."""
    return str(request.param)


@pytest.fixture(scope="module")
def servers(runtime_dir: Path) -> Iterator[Callable[[str, str], str]]:
    """Where a server is, for each transport and kind: started when the first test needs it."""
    urls: dict[tuple[str, str], str] = {}
    with ExitStack() as stack:

        def start(transport: str, kind: str) -> str:
            if (transport, kind) not in urls:
                group = [name for name in TRANSPORTS if (name in IN_PROCESS) == (transport in IN_PROCESS)]
                asked = [TRANSPORTS[name](f"f{os.getpid()}-{kind}", runtime_dir) for name in group]
                server: ServerProcess | nearcall.Server
                if transport in IN_PROCESS:
                    server = stack.enter_context(nearcall.Server(*KINDS[kind](), *asked))
                else:
                    server = stack.enter_context(
                        ServerProcess(*asked, services=f"tests.e2e.function_services:in_{kind}")
                    )
                urls.update({(name, kind): url for name, url in zip(group, server.urls, strict=True)})
            return urls[transport, kind]

        yield start


@pytest.fixture
def tool(servers: Callable[[str, str], str], transport: str, kind: str) -> Iterator[Tool]:
    with nearcall.connect(servers(transport, kind), Tool) as tool:
        yield tool


def _shout(text: str) -> str:
    return text.upper()


class Loud:
    def up(self, text: str) -> str:
        return text.upper()

    def __call__(self, text: str) -> str:
        return text

    def close(self) -> None:
        pytest.fail("a function that was passed is not closed")


class TestGiven:
    def test_every_kind_of_callable(self, tool: Tool) -> None:
        heard: list[int] = []

        async def later(number: int) -> None:
            await asyncio.sleep(0)
            heard.append(number * 10)

        def keep(_self: str, number: int) -> None:
            heard.append(number)

        for tell in (heard.append, later, lambda number: heard.append(+number), functools.partial(keep, "x")):
            assert tool.each(2, tell) == 2  # type: ignore[arg-type]
        assert heard == [0, 1, 0, 10, 0, 1, 0, 1]

    def test_in_values(self, tool: Tool) -> None:
        heard: list[int] = []
        done = Job("j", lambda frame, number: f"{frame.number} {number}", [heard.append])
        assert (tool.run(done), heard) == ("3 4", [7])
        assert tool.run(Job("j")) == "j"
        table = Table({"a": lambda number: number + 1, "b": lambda number: number * 2}, (1, lambda: 5))
        assert tool.table(table) == [11, 20, 5]
        called: list[None] = []
        assert (tool.perhaps(lambda: called.append(None)), called, tool.perhaps()) == (True, [None], False)

    def test_a_function_is_known_again(self, tool: Tool) -> None:
        loud = Loud()
        assert tool.subscribe(loud.up) == 1
        assert tool.subscribe(_shout) == 2
        assert tool.unsubscribe(loud.up) == 1
        assert tool.unsubscribe(_shout) == 0
        assert tool.back(loud.up) == loud.up
        assert tool.back(loud) is loud
        del loud
        gc.collect()

    def test_generators(self, tool: Tool, kind: str) -> None:
        def numbers(count: int) -> Iterator[int]:
            yield from range(count)

        async def in_time(count: int) -> AsyncIterator[int]:
            for number in range(count):
                yield number

        assert tool.items(numbers) == [0, 1, 2]
        assert tool.items(in_time) == [0, 1, 2]  # type: ignore[arg-type]

    def test_another_client_s_method(self, tool: Tool) -> None:
        with (
            nearcall.Server(KINDS["threads"]()[0], "inproc://function-elsewhere") as server,
            nearcall.connect(server.urls[0], Tool) as other,
        ):
            assert tool.table(Table({"a": other.times(3)}, (0, other.made))) == [30, 1]

    def test_what_it_raises(self, tool: Tool) -> None:
        def refuse(_number: int) -> None:
            raise nearcall.NotFound("no such number")

        with pytest.raises(nearcall.RpcError, match="no such number"):
            tool.each(1, refuse)


class TestReceived:
    def test_called_like_any_other(self, tool: Tool) -> None:
        triple = tool.times(3)
        assert [triple(number) for number in range(3)] == [0, 3, 6]
        assert list(map(triple, [4, 5])) == [12, 15]
        assert callable(triple)
        assert len(inspect.signature(triple).parameters) == 1
        assert repr(triple).startswith("<reference to Callable[[int], int] at ")

    def test_it_goes_when_nobody_has_it(self, tool: Tool) -> None:
        gc.collect()
        before = tool.made()
        triple = tool.times(3)
        assert tool.made() == before + 1
        nearcall.release(triple)
        end = time.monotonic() + 30
        while tool.made() > before:
            assert time.monotonic() < end
        with pytest.raises(nearcall.FailedPrecondition, match="released"):
            triple(1)

    def test_without_the_class(self, servers: Callable[[str, str], str], transport: str, kind: str) -> None:
        with nearcall.connect(servers(transport, kind)) as tool:
            heard: list[Any] = []
            assert (tool.each(2, heard.append), heard) == (2, [0, 1])
            assert tool.times(4)(5) == 20
            assert tool.run({"name": "j", "done": lambda frame, number: f"{frame} {number}"}) == "{'number': 3} 4"

    def test_in_an_event_loop(self, servers: Callable[[str, str], str], transport: str, kind: str) -> None:
        async def main() -> None:
            heard: list[int] = []

            async def tell(number: int) -> None:
                heard.append(number)

            async with nearcall.aio.connect(servers(transport, kind), Tool) as tool:
                assert await tool.each(2, tell) == 2
                assert await tool.each(1, heard.append) == 1
                times = await tool.times(6)
                assert await asyncio.gather(times(1), times(2)) == [6, 12]
            assert heard == [0, 1, 0]

        asyncio.run(main())


class TestMistakes:
    @pytest.mark.parametrize("wrong", [3, "print", None, Frame(1)], ids=repr)
    def test_no_function(self, tool: Tool, wrong: Any) -> None:
        with pytest.raises(nearcall.InvalidArgument, match=r"argument 'tell' must be Callable\[\[int\], None\], got"):
            tool.each(1, wrong)
        with pytest.raises(
            nearcall.InvalidArgument, match=r"at \.others\[0\]: expected a function, Callable\[\[int\], None\]"
        ):
            tool.run(Job("j", others=[wrong]))

    def test_other_arguments(self, tool: Tool) -> None:
        triple: Any = tool.times(3)
        with pytest.raises(nearcall.InvalidArgument, match=r"Callable\[\[int\], int\]\(\): .* must be int, got str"):
            triple("x")
        with pytest.raises(nearcall.InvalidArgument, match="takes 1 positional argument, got 2"):
            triple(1, 2)
        with pytest.raises(nearcall.RpcError, match="takes 0 positional arguments but 1 was given"):
            tool.each(1, lambda: None)  # type: ignore[arg-type, misc]
        with pytest.raises(
            nearcall.RpcError, match="returned an awaitable: give a function that is 'async def' itself"
        ):
            tool.each(1, lambda number: asyncio.sleep(0))  # type: ignore[arg-type, return-value]

    def test_a_function_of_other_types(self, tool: Tool) -> None:
        with pytest.raises(
            nearcall.InvalidArgument, match=r"expected a function, Callable\[\[Frame, int\], str\], got <ref"
        ):
            tool.run(Job("j", done=tool.times(2)))  # type: ignore[arg-type]


def test_declarations() -> None:
    with pytest.raises(TypeError, match=r"a function needs the types .*: write Callable\[\[int\], str\]"):

        @nearcall.service
        class _Bare:
            def each(self, tell: Callable) -> None: ...  # type: ignore[type-arg]

    with pytest.raises(TypeError, match="a function needs the types"):

        @nearcall.service
        class _Any:
            def each(self, tell: Callable[..., None]) -> None: ...

    with pytest.raises(TypeError, match="object cannot be encoded"):

        @nearcall.service
        class _Of:
            def each(self, tell: Callable[[object], None]) -> None: ...

    with pytest.raises(ValueError, match="cannot be the name of a service"):

        @nearcall.service(name="callable.int.to.None")
        class _Named:
            def call(self, number: int) -> None: ...
