"""What a client shows of itself in an interactive session: names for Tab, signatures, docstrings, ``help``."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import pydoc
import rlcompleter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest

import nearcall


@nearcall.service
class Counter:
    """One counter."""

    def count(self, by: int = 1) -> int:
        """Counts on."""
        return by

    def all(self) -> Iterator[int]:
        """All of them."""
        yield 1


@nearcall.service
class Calc:
    """A calculator.

    It adds.
    """

    limit = 3

    def add(self, a: int, b: int = 2, *, exact: bool = True) -> int:
        """Adds two numbers.

        Both are ints.
        """
        return a + b

    def countdown(self, start: int) -> Iterator[int]:
        """Counts down."""
        yield from range(start, 0, -1)

    def total(self, items: Iterator[int]) -> int:
        """Adds many."""
        return sum(items)

    def both(self, items: Iterator[int]) -> Iterator[int]:
        """Both ways."""
        yield from items

    @nearcall.oneway
    def tell(self, text: str) -> None:
        """Tells."""

    def counter(self) -> Counter:
        return Counter()

    def bare(self) -> None: ...

    @property
    def size(self) -> int:
        return 1

    @staticmethod
    def helper() -> int:
        return 1

    def _private(self) -> None: ...


METHODS = ["add", "bare", "both", "countdown", "counter", "tell", "total"]


@pytest.fixture
def url(key: str) -> Iterator[str]:
    with nearcall.Server(Calc(), f"inproc://{key}") as server:
        yield server.urls[0]


def _in_loop(url: str, cls: type | None, look: Callable[[Any], object]) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, cls) as calc:
            look(calc)

    asyncio.run(main())


def _in_thread(url: str, cls: type | None, look: Callable[[Any], object]) -> None:
    with nearcall.connect(url, cls) as calc:
        look(calc)


SIDES = pytest.mark.parametrize("connected", [_in_thread, _in_loop], ids=["thread", "loop"])
CLASSES = pytest.mark.parametrize("cls", [Calc, None], ids=["class", "dynamic"])


@SIDES
@CLASSES
def test_tab_offers_the_methods_that_are_served(url: str, connected: Any, cls: type | None) -> None:
    def look(calc: Any) -> None:
        assert sorted(name for name in dir(calc) if name != "Calc") == METHODS

    connected(url, cls, look)


def tab(what: Any, begun: str = "") -> list[str]:
    """What Python's own Tab offers."""
    found = rlcompleter.Completer({"it": what}).attr_matches(f"it.{begun}")
    return sorted({each.removeprefix("it.").rstrip("()") for each in found})


@SIDES
@CLASSES
def test_pythons_own_tab_offers_the_same(url: str, connected: Any, cls: type | None) -> None:
    """It walks through an object's class as well, and there are properties and private functions."""

    def look(calc: Any) -> None:
        assert [name for name in tab(calc) if name != "Calc"] == METHODS
        assert tab(calc, "co") == ["countdown", "counter"]
        for begun in ("s", "h", "_p", "_n"):
            assert tab(calc, begun) == []
        assert set(tab(calc, "__")) <= set(dir(object))
        if cls is not None:
            assert isinstance(calc, Calc)
            assert calc.__class__ is Calc

    connected(url, cls, look)


def test_pythons_own_tab_at_an_object_and_at_a_client_that_was_kept(url: str) -> None:
    with nearcall.connect(url, Calc) as calc:
        counter = calc.counter()
        assert tab(counter) == sorted(dir(counter)) == ["all", "count"]
        assert isinstance(counter, Counter)
    client = nearcall.connect(url, Calc)
    assert tab(client) == sorted(name for name in dir(client) if not name.startswith("_"))
    client.close()

    async def look() -> None:
        async with nearcall.aio.connect(url, Calc) as calc:
            assert tab(await calc.counter()) == ["all", "count"]

    asyncio.run(look())


def test_tab_at_a_client_that_was_kept(url: str) -> None:
    client = nearcall.connect(url, Calc)
    own = set(dir(client)) - set(METHODS)
    assert own == {"close", "closed", "connected", "description", "dropped", "peer", "peers", "ping", "service", "url"}
    assert set(METHODS) < set(dir(client))
    client.close()


SIGNATURES: dict[type | None, dict[str, str]] = {
    Calc: {
        "add": "(a: int, b: int = 2, *, exact: bool = True) -> int",
        "tell": "(text: str) -> None",
    },
    None: {
        "add": "(a: int, b: int = ..., *, exact: bool = ...) -> int",
        "tell": "(text: str) -> None",
    },
}


@SIDES
@CLASSES
def test_signatures_names_and_docstrings(url: str, connected: Any, cls: type | None) -> None:
    def look(calc: Any) -> None:
        for name, text in SIGNATURES[cls].items():
            assert str(inspect.signature(getattr(calc, name))) == text
        assert calc.add.__doc__ == "Adds two numbers.\n\nBoth are ints."
        assert calc.bare.__doc__ is None
        for name in METHODS:
            method = getattr(calc, name)
            assert (method.__name__, method.__qualname__) == (name, f"Calc.{name}")
            assert inspect.isroutine(method)
        for name, text in (("countdown", "Counts down."), ("total", "Adds many."), ("both", "Both ways.")):
            assert getattr(calc, name).__doc__ == text

    connected(url, cls, look)


def test_streams_are_annotated_as_they_are_used(url: str) -> None:
    def in_thread(calc: Any) -> None:
        both = inspect.signature(calc.both)
        assert both.return_annotation == Iterator[int]
        assert both.parameters["items"].annotation == Iterable[int]

    def in_loop(calc: Any) -> None:
        both = inspect.signature(calc.both)
        assert both.return_annotation == AsyncIterator[int]
        assert both.parameters["items"].annotation == Iterable[int] | AsyncIterable[int]

    _in_thread(url, Calc, in_thread)
    _in_loop(url, Calc, in_loop)


@SIDES
@CLASSES
def test_help(url: str, connected: Any, cls: type | None) -> None:
    def look(calc: Any) -> None:
        text = pydoc.plain(pydoc.render_doc(calc))
        assert "A calculator.\n    \n    It adds." in text
        assert "add(a: int, b: int = ..., *, exact: bool = ...) -> int\n            Adds two numbers.\n" in text
        assert "Both are ints" not in text, "only the first paragraph"
        assert "_nearcall" not in text
        lines = pydoc.plain(pydoc.render_doc(calc.add)).splitlines()
        assert lines[2].startswith("add(a: int, b: int = ")
        assert lines[3] == "    Adds two numbers."
        assert pydoc.plain(pydoc.render_doc(calc.bare)).splitlines()[2] == "bare() -> None"
        assert "countdown(start: int) -> " in pydoc.plain(pydoc.render_doc(calc.countdown))

    connected(url, cls, look)


def test_help_of_a_client_that_was_kept(url: str) -> None:
    client = nearcall.connect(url, Calc)
    assert client.__doc__ == client.service.__doc__
    assert str(client.__doc__).startswith("A calculator.")
    assert str(nearcall.Client.__doc__).startswith("A service at the other end")
    assert inspect.signature(client.add).parameters["b"].default == 2
    client.close()

    async def main() -> None:
        client = nearcall.aio.connect(url, Calc)
        assert str(client.__doc__).startswith("A service at the other end")
        assert "add" not in dir(client), "nothing is known yet"
        await client
        assert str(client.__doc__).startswith("A calculator.")
        assert "add" in dir(client)
        await client.close()

    asyncio.run(main())


def test_references(url: str) -> None:
    def in_thread(calc: Any) -> None:
        _look_at_reference(calc.counter())

    _in_thread(url, Calc, in_thread)
    _in_thread(url, None, in_thread)

    async def main() -> None:
        async with nearcall.aio.connect(url, Calc) as calc:
            _look_at_reference(await calc.counter())

    asyncio.run(main())


def _look_at_reference(counter: Any) -> None:
    assert sorted(dir(counter)) == ["all", "count"]
    assert inspect.signature(counter.count).return_annotation in (int, "int")
    assert counter.count.__doc__ == "Counts on."
    assert counter.all.__doc__ == "All of them."
    assert counter.__doc__.startswith("One counter.\n\nMethods")
    assert "count(by: int = ...) -> int" in pydoc.plain(pydoc.render_doc(counter))
    with pytest.raises(AttributeError, match=r"^Counter at .* has no method 'x', and attributes are not sent"):
        counter.x = 1
    refused = pytest.raises(TypeError, match=r"is not used in 'with': it ends when nothing refers to it, or with near")
    with refused, counter:
        pass
    for lost in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match=r"^a reference cannot be pickled or copied: .* pass it as an argument of"):
            lost(counter)
        with pytest.raises(TypeError, match=r"^<Counter.count at .*> cannot be .*; pass the object on as an argument"):
            lost(counter.count)


@pytest.mark.parametrize("interceptors", [[], [lambda call, proceed: proceed(call)]])
@SIDES
def test_interceptors_hide_nothing(url: str, connected: Any, interceptors: list[Any]) -> None:
    def look(calc: Any) -> None:
        assert inspect.signature(calc.add).parameters["b"].default == 2
        assert calc.countdown.__doc__ == "Counts down."

    if connected is _in_thread:
        with nearcall.connect(url, Calc, interceptors=interceptors) as calc:
            look(calc)
    else:

        async def main() -> None:
            async with nearcall.aio.connect(url, Calc, interceptors=interceptors) as calc:
                look(calc)

        asyncio.run(main())


def test_several_services(key: str) -> None:
    with (
        nearcall.Server(Calc(), Counter(), f"inproc://{key}") as server,
        nearcall.connect(server.urls[0]) as both,
    ):
        assert sorted(dir(both)) == sorted([*METHODS, "all", "count", "Calc", "Counter"])
        assert "The service Counter:\n\n    One counter." in both.__doc__
        assert both.Counter.__doc__.startswith("One counter.")
        assert sorted(dir(both.Counter)) == ["all", "count"]


def test_what_a_server_says_is_escaped(key: str) -> None:
    @nearcall.service
    class Odd:
        def blink(self) -> None:
            """Bli\x1b[5mnk."""

    Odd.__doc__ = "Odd."
    with nearcall.Server(Odd(), f"inproc://{key}") as server, nearcall.connect(server.urls[0]) as odd:
        assert odd.blink.__doc__ == "Bli\\x1b[5mnk."
        assert "\x1b" not in odd.__doc__


def test_an_attribute_that_was_set_by_mistake(url: str) -> None:
    client: Any = nearcall.connect(url, Calc)
    for where in (client, client.service):
        for name in ("x", "limit", "size"):
            with pytest.raises(AttributeError, match=rf"^Calc at {url} has no method '{name}', and attributes are not"):
                setattr(where, name, 1)
    client.add = lambda a: a  # as tests do
    assert client.add(3) == 3
    client.close()

    async def main() -> None:
        client: Any = nearcall.aio.connect(url, Calc)
        with pytest.raises(AttributeError, match="attributes are not sent"):
            client.x = 1
        async with client as calc:
            for where in (client, calc):
                with pytest.raises(AttributeError, match=rf"^Calc at {url} has no method 'x', and attributes are not"):
                    where.x = 1

    asyncio.run(main())


@SIDES
def test_what_belongs_to_its_connection(url: str, connected: Any) -> None:
    def look(calc: Any) -> None:
        for what in (calc, calc.add):
            for lost in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError) as caught:
                    lost(what)
                assert str(caught.value) == (
                    f"{what!r} cannot be pickled or copied: it belongs to its connection; "
                    "pass the URL, and connect where it is needed"
                )

    connected(url, Calc, look)


def test_a_client_belongs_to_its_connection(url: str) -> None:
    with nearcall.Channel(url) as channel:
        for what in (channel, channel.client(Calc)):
            with pytest.raises(TypeError, match=r"cannot be pickled .* pass the URL, and connect where it is needed$"):
                pickle.dumps(what)


def test_a_stream_has_no_index(url: str) -> None:
    with nearcall.connect(url, Calc) as calc:
        for name, stream in (("countdown", calc.countdown(3)), ("both", calc.both(iter([1])))):
            wrong: Any = stream
            with pytest.raises(TypeError) as caught:
                wrong[0]
            assert str(caught.value) == (
                f"Calc.{name} gives a stream, which has no index: take its items in order, with 'for item in stream' "
                "or next(stream), or write list(stream)[...]"
            )
        assert list(calc.countdown(2)) == [2, 1]

    async def main() -> None:
        async with nearcall.aio.connect(url, Calc) as calc:
            with pytest.raises(TypeError, match=r"^a stream has no index: take its items in order, with 'async for"):
                calc.countdown(3)[0]

    asyncio.run(main())


def test_the_service_is_not_used_in_with(url: str) -> None:
    with nearcall.connect(url, Calc) as calc:
        wrong: Any = calc
        refused = pytest.raises(TypeError, match=rf"^<Calc at {url}> is not used in 'with': write 'with nearcall\.con")
        with refused, wrong:
            pass
