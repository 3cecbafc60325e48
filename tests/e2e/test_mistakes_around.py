"""What a newcomer gets wrong around a call, and what is said then: interfaces, interceptors, blocks, event loops."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import pytest

import nearcall
from nearcall import route
from nearcall.testing import serving


@nearcall.service
class Listener(Protocol):
    def said(self, text: str) -> None: ...


@nearcall.service
class Room(Protocol):
    def join(self, listener: Listener) -> None: ...
    def name(self) -> str: ...
    def seats(self) -> Iterator[int]:
        """With a text."""
        ...

    async def later(self) -> int: ...
    def items(self) -> AsyncIterator[int]: ...
    def found(self) -> str | None: ...
    def nothing(self) -> None: ...
    def yes(self) -> bool:
        return True

    def text(self) -> str:
        """With a text."""
        return "With a text."


class Hall(Room):
    def join(self, listener: Listener) -> None:
        listener.said("hello")


@nearcall.service(instance="session")
class Own:
    def name(self) -> str: ...


AROUND: list[list[Any]] = [[], [lambda call, proceed: proceed(call)]]


@pytest.mark.parametrize("interceptors", AROUND)
def test_what_an_interface_s_class_does_not_implement(key: str, interceptors: list[Any]) -> None:
    """As with gRPC: such a method is unimplemented, where it seemed to return ``None``."""
    with (
        nearcall.Server(Hall(), f"inproc://{key}", interceptors=interceptors) as server,
        nearcall.connect(server.urls[0]) as hall,
    ):
        for name, call in (
            ("name", hall.name),
            ("seats", lambda: list(hall.seats())),
            ("later", hall.later),
            ("items", lambda: list(hall.items())),
        ):
            problem = f"Room.{name} is not implemented: Hall.{name} does nothing, as in an interface, and is to return"
            with pytest.raises(nearcall.Unimplemented, match=f"^{re.escape(problem)} something$"):
                call()
        assert hall.found() is None
        assert (hall.yes(), hall.text()) == (True, "With a text.")
        hall.nothing()
    with serving(Own) as own, pytest.raises(nearcall.Unimplemented, match=r"^Own\.name is not implemented: Own\.name"):
        own.name()


def test_an_object_that_only_has_the_methods(key: str) -> None:
    class Ear:
        def said(self, text: str) -> None: ...

    with nearcall.Server(Hall(), f"inproc://{key}") as server, nearcall.connect(server.urls[0], Room) as hall:
        wrong: Any = Ear()
        with pytest.raises(nearcall.InvalidArgument, match=r"got .*Ear: derive its class from Listener$"):
            hall.join(wrong)


def test_class_methods_alone_are_no_service() -> None:
    class Made:
        @classmethod
        def make(cls) -> int:
            return 1

    class Read:
        @property
        def size(self) -> int:
            return 1

    with pytest.raises(TypeError, match=r"serve; 'make' is a class or static method, which is not served: make it an"):
        nearcall.service(Made)
    with pytest.raises(TypeError, match=r"to serve; 'size' is a property, which is not served: make it an ordinary"):
        nearcall.service(Read)


@nearcall.service
class Numbers:
    def one(self) -> int:
        return 1

    def all(self) -> Iterator[int]:
        yield 1


@nearcall.service
class NumbersInLoop:
    async def one(self) -> int:
        return 1

    async def all(self) -> AsyncIterator[int]:
        yield 1


def _nothing(call: Any, proceed: Any) -> Any:
    return proceed()


def _arguments(call: Any, proceed: Any) -> Any:
    return proceed(call.args)


async def _nothing_awaited(call: Any, proceed: Any) -> Any:
    return await proceed()


def _passes(call: Any, proceed: Any) -> Any:
    return proceed(call)


WITHOUT = r"proceed takes the call that the interceptor got: write proceed\(call\)$"
WITH = r"proceed takes the call that the interceptor got, and not tuple: write proceed\(call\)$"


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [(_nothing, WITHOUT), (_arguments, WITH), (_nothing_awaited, WITHOUT)],
    ids=["nothing", "arguments", "awaited"],
)
@pytest.mark.parametrize("inner", [[], [_passes]])
def test_an_interceptor_that_passes_something_else_on(key: str, wrong: Any, advice: str, inner: list[Any]) -> None:
    for number, served in enumerate((Numbers(), NumbersInLoop())):
        with (
            nearcall.Server(
                served, f"inproc://{key}-{number}", interceptors=[wrong, *inner], introspection=False
            ) as server,
            nearcall.connect(server.urls[0]) as numbers,
        ):
            for call in (numbers.one, lambda numbers=numbers: list(numbers.all())):
                with pytest.raises(nearcall.Unknown, match=f"^TypeError: {advice}"):
                    call()
    with nearcall.Server(Numbers(), f"inproc://{key}") as server:
        if wrong is not _nothing_awaited:
            with nearcall.connect(server.urls[0], Numbers, interceptors=[wrong, *inner]) as numbers:
                for call in (numbers.one, lambda numbers=numbers: list(numbers.all())):
                    with pytest.raises(TypeError, match=f"^{advice}"):
                        call()

        async def main() -> None:
            async with nearcall.aio.connect(server.urls[0], Numbers, interceptors=[wrong, *inner]) as numbers:
                with pytest.raises(TypeError, match=f"^{advice}"):
                    await numbers.one()

        asyncio.run(main())


def test_blocks_in_async_with() -> None:
    async def main() -> None:
        for name, block in (
            ("timeout", nearcall.timeout(1)),
            ("metadata", nearcall.metadata({"a": "b"})),
            ("compression", nearcall.compression("gzip")),
        ):
            wrong: Any = block
            with pytest.raises(
                TypeError, match=rf"^nearcall\.{name} is used with an ordinary 'with', in an event loop"
            ):
                async with wrong:
                    pass

    asyncio.run(main())


@pytest.mark.parametrize("options", [{}, {"workers": 2}])
def test_serve_in_an_event_loop(key: str, options: dict[str, Any]) -> None:
    served: Any = Numbers if options else Numbers()

    async def main() -> None:
        with pytest.raises(
            RuntimeError, match=r"^nearcall\.serve\(\) would hold up the event loop that runs here: write"
        ):
            nearcall.serve(served, f"inproc://{key}", **options)

    asyncio.run(main())


def test_a_service_in_memory_without_with() -> None:
    served: Any = serving(Numbers())
    with pytest.raises(
        AttributeError, match=r"is no client, and has no 'one': write 'with serving\(\.\.\.\) as service'"
    ):
        served.one()


def test_a_client_that_was_closed_says_what_to_do(key: str) -> None:
    with nearcall.Server(Numbers(), f"inproc://{key}") as server:
        with nearcall.connect(server.urls[0], Numbers) as numbers:
            pass
        for call in (numbers.one, lambda: list(numbers.all())):
            with pytest.raises(nearcall.Cancelled, match=r"was closed on this side: connect again$"):
                call()


@nearcall.service
class Echoing:
    def echo(self, items: Iterator[int]) -> Iterator[int]:
        return items

    def count(self, to: int) -> Iterator[int]:
        return iter(range(to))


@pytest.mark.parametrize("interceptors", [[], [lambda call, proceed: proceed(call)]])
def test_the_other_kind_of_with(key: str, interceptors: list[Any]) -> None:
    """What is for threads is used with ``with``, what is for event loops with ``async with``; the error says so."""

    async def in_loop(url: str) -> None:
        async with nearcall.aio.connect(url, Echoing, interceptors=interceptors) as client:
            for replies in (client.count(3), client.echo(iter([1]))):
                stream: Any = replies
                with pytest.raises(TypeError, match=r"is for an event loop: write 'async with', and 'asy"), stream:
                    pass
                with pytest.raises(TypeError, match=r"is for an event loop: write 'async with', and 'asy"):
                    iter(stream)
                await stream.aclose()
        node: Any = route.aio.Node(f"inproc://{key}-node")
        with pytest.raises(TypeError, match=r"^this node is for an event loop: write 'async with near"), node:
            pass
        node = route.Node(f"inproc://{key}-node")
        with pytest.raises(TypeError, match=r"^this node is for threads: write 'with nearcall.route.Node"):
            async with node:
                pass
        with nearcall.connect(url, Echoing) as in_thread:
            for stream in (in_thread.count(3), in_thread.echo(iter([1]))):
                with pytest.raises(TypeError, match=r"^this stream is for threads: write 'with' and 'for', or take"):
                    async with stream:
                        pass
                stream.close()

    with nearcall.Server(Echoing(), f"inproc://{key}") as server:
        asyncio.run(in_loop(server.urls[0]))


@nearcall.service(errors=[KeyError])
class Failing:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        raise nearcall.Aborted("the exit fails")

    def fail(self, how: str) -> list[int]:
        if how == "declared":
            raise KeyError(how)
        if how == "text":
            return [how]  # type: ignore[list-item]
        raise nearcall.NotFound(how)


def test_what_was_handled_is_the_context_of_a_call_s_error(new_url: str) -> None:
    """As with any ``raise`` in Python: an error of a call at the end of a block hides no error of the block."""

    async def in_loop(url: str) -> None:
        async with nearcall.aio.connect(url, Failing) as failing:
            for how, kind in kinds.items():
                try:
                    raise original
                except ValueError:
                    with pytest.raises(kind) as caught:
                        await failing.fail(how)
                assert caught.value.__context__ is original
            with pytest.raises(nearcall.Aborted, match="the exit fails") as ended:
                async with failing:
                    raise original
            assert ended.value.__context__ is original

    original = ValueError("the first of the two")
    kinds: dict[str, type[Exception]] = {
        "other": nearcall.NotFound,
        "declared": KeyError,
        "text": nearcall.Internal,
    }
    with nearcall.Server(Failing(), new_url) as server:
        with nearcall.connect(server.urls[0], Failing) as failing:
            for how, kind in kinds.items():
                with pytest.raises(kind) as caught:
                    failing.fail(how)
                assert caught.value.__context__ is None
                try:
                    raise original
                except ValueError:
                    with pytest.raises(kind) as caught:
                        failing.fail(how)
                assert caught.value.__context__ is original
            with pytest.raises(nearcall.Aborted, match="the exit fails") as ended, failing:
                raise original
        assert ended.value.__context__ is original
        asyncio.run(in_loop(server.urls[0]))
