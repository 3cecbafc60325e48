"""Methods that Python itself calls: of a client's service and of references, for threads and in event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from typing_extensions import Self

import nearcall
from nearcall.cli.interfaces import interfaces_text

if TYPE_CHECKING:
    from types import TracebackType


@nearcall.service(errors=[KeyError])
class Shelf:
    def __init__(self, ended: list[str] | None = None) -> None:
        self._pages = {"Emma": 474, "Ulysses": 732}
        self._ended = [] if ended is None else ended

    def __len__(self) -> int:
        return len(self._pages)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, title: str) -> bool:
        return title in self._pages

    def __getitem__(self, title: str) -> int:
        return self._pages[title]

    def __setitem__(self, title: str, pages: int) -> None:
        self._pages[title] = pages

    def __delitem__(self, title: str) -> None:
        del self._pages[title]

    def __iter__(self) -> Iterator[str]:
        yield from self._pages

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(self._pages)

    def __call__(self, by: int, *, plus: int = 0) -> int:
        return len(self._pages) * by + plus

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._ended.append(f"{kind and kind.__name__}: {error}")
        return kind is not None and "forgive" in str(error)


@nearcall.service(name="Shelf", errors=[KeyError])
class ShelfInLoop:
    """The same service, with handlers for an event loop."""

    async def __len__(self) -> int:
        return 2

    async def __bool__(self) -> bool:
        return True

    async def __contains__(self, title: str) -> bool:
        return title == "Emma"

    async def __getitem__(self, title: str) -> int:
        return {"Emma": 474}[title]

    async def __setitem__(self, title: str, pages: int) -> None: ...

    async def __delitem__(self, title: str) -> None: ...

    async def __aiter__(self) -> AsyncIterator[str]:
        yield "Emma"
        yield "Ulysses"

    async def __reversed__(self) -> AsyncIterator[str]:
        yield "Ulysses"
        yield "Emma"

    async def __call__(self, by: int, *, plus: int = 0) -> int:
        return 2 * by + plus

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> bool:
        return "forgive" in str(error[1])


@nearcall.service
class Library:
    def shelf(self) -> Shelf:
        return Shelf()

    def size_of(self, shelf: Shelf) -> int:
        with shelf as same:
            return len(same) + len(list(same))


def use(shelf: Any, *, stays: bool) -> None:
    assert len(shelf) == 2
    assert bool(shelf) is True
    assert "Emma" in shelf
    assert "Persuasion" not in shelf
    assert shelf["Emma"] == 474
    shelf["Persuasion"] = 249
    assert len(shelf) == 2 + stays
    del shelf["Persuasion"]
    assert list(shelf) == ["Emma", "Ulysses"]
    assert list(reversed(shelf)) == ["Ulysses", "Emma"]
    assert shelf(3, plus=1) == 7
    with shelf as same:
        assert same is shelf
    with shelf:
        raise ValueError("forgive me")
    with pytest.raises(ValueError, match="no"), shelf:
        raise ValueError("no")


async def use_in_loop(shelf: Any) -> None:
    assert [await shelf.__len__(), await shelf.__contains__("Emma"), await shelf["Emma"]] == [2, True, 474]
    await shelf.__setitem__("Persuasion", 249)
    await shelf.__delitem__("Persuasion")
    assert [title async for title in shelf] == ["Emma", "Ulysses"]
    assert [title async for title in shelf.__reversed__()] == ["Ulysses", "Emma"]
    assert await shelf(3, plus=1) == 7
    async with shelf as same:
        assert same is shelf
    async with shelf:
        raise ValueError("forgive me")
    for refused in (len, bool, lambda shelf: "Emma" in shelf):
        with pytest.raises(TypeError, match="cannot wait in an event loop: write 'await"):
            refused(shelf)
    with pytest.raises(TypeError, match="a loop over it cannot wait in an event loop: write 'async for'"):
        list(shelf)


@pytest.mark.parametrize("made", [Shelf, ShelfInLoop])
@pytest.mark.parametrize("described", [False, True])
def test_of_a_service(made: Callable[[], object], described: bool) -> None:
    url = f"inproc://special-{made.__name__}-{described}"
    cls = None if described else Shelf

    async def in_loop() -> None:
        async with nearcall.aio.connect(url, cls) as shelf:
            await use_in_loop(shelf)

    with nearcall.Server(made(), url):
        with nearcall.connect(url, cls) as shelf:
            use(shelf, stays=made is Shelf)
            assert [name for name in dir(shelf) if name.startswith("__")] == []
        asyncio.run(in_loop())


def test_of_references_both_ways() -> None:
    url, ended = "inproc://special-references", list[str]()

    async def in_loop() -> None:
        async with nearcall.aio.connect(url, Library) as library:
            shelf = await library.shelf()
            await use_in_loop(shelf)
            assert await library.size_of(shelf) == 4
            nearcall.release(shelf)
            with pytest.raises(nearcall.FailedPrecondition, match="released"):
                await shelf.__len__()

    with nearcall.Server(Library(), url):
        with nearcall.connect(url, Library) as library:
            shelf = library.shelf()
            use(shelf, stays=True)
            assert library.size_of(Shelf(ended)) == 4
            assert ended == ["None: None"]
            nearcall.release(shelf)
            with pytest.raises(nearcall.FailedPrecondition, match="released"):
                len(shelf)
        asyncio.run(in_loop())


def test_passed_on_to_a_third_process() -> None:
    """What forwards a call must not take it for what Python itself would do."""

    @nearcall.service
    class Middle:
        def __init__(self, library: Library) -> None:
            self._library = library

        def shelf(self) -> Shelf:
            return self._library.shelf()

    first, second = "inproc://special-first", "inproc://special-middle"
    with (
        nearcall.Server(Library(), first),
        nearcall.connect(first, Library) as library,
        nearcall.Server(Middle(library), second),
        nearcall.connect(second, Middle) as middle,
    ):
        use(middle.shelf(), stays=True)


def test_over_grpc() -> None:
    with nearcall.Server(Shelf(), "grpc://127.0.0.1:0") as server, nearcall.connect(server.urls[0], Shelf) as shelf:
        use(shelf, stays=True)


def test_what_python_asks_of_others_is_not_answered() -> None:
    @nearcall.service
    class Plain:
        def get(self) -> int:
            return 1

    with nearcall.Server(Plain(), "inproc://plain"), nearcall.connect("inproc://plain", Plain) as plain:
        with pytest.raises(TypeError, match=r"has no len\(\)"):
            len(plain)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not used in 'with'"), plain:  # type: ignore[attr-defined]
            pass


def test_interfaces_have_them_in_the_colour_of_their_clients() -> None:
    exit_takes = (
        "self, kind: type[BaseException] | None, error: BaseException | None, traceback: types.TracebackType | None"
    )
    for made in (Shelf, ShelfInLoop):
        text = interfaces_text(made, "shelves:Shelf", for_loop=False)
        for line in (
            "def __len__(self) -> int: ...",
            "def __iter__(self) -> nearcall.Stream[str]: ...",
            "def __call__(self, by: int, *, plus: int = 0) -> int: ...",
            f"def __enter__(self) -> {made.__name__}: ...",
            f"def __exit__({exit_takes}) -> bool: ...",
        ):
            assert f"    {line}\n" in text
        text = interfaces_text(made, "shelves:Shelf", for_loop=True)
        for line in (
            "async def __len__(self) -> int: ...",
            "def __aiter__(self) -> nearcall.aio.AsyncStream[str]: ...",
            f"async def __aenter__(self) -> Async{made.__name__}: ...",
            f"async def __aexit__({exit_takes}) -> bool: ...",
        ):
            assert f"    {line}\n" in text
        namespace: dict[str, Any] = {"__name__": f"written_{made.__name__}"}
        exec(compile(text, "written.py", "exec", dont_inherit=True), namespace)  # the decorator accepts it


def _refused(name: str) -> Any:
    def method(self: Any) -> int:
        return 1

    return type("Odd", (), {name: method, "get": method, "__module__": __name__})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("__del__", r"calls close\(\), or aclose\(\)"),
        ("__getattr__", "attributes are not served"),
        ("__next__", "which is a stream"),
        ("__add__", "the other side of an operator"),
        ("__lt__", "the other side of an operator"),
        ("__int__", "Python asks this of what is in its own"),
        ("__await__", "the calls of methods are awaited"),
    ],
)
def test_what_cannot_be_served_is_refused(name: str, why: str) -> None:
    odd = _refused(name)
    with pytest.raises(TypeError, match=rf"Odd\.{name}\(\) cannot be served: .*{why}.*class that derives from Odd"):
        nearcall.service(odd)


def test_what_python_could_not_use_is_refused() -> None:
    with pytest.raises(TypeError, match=r"__len__\(\): returns int in Python, and not str"):

        @nearcall.service
        class Long:
            def __len__(self) -> str:
                return ""  # noqa: PLE0303

    with pytest.raises(TypeError, match=r"__iter__\(\): is to return an iterator"):

        @nearcall.service
        class Listed:
            def __iter__(self) -> list[int]:
                return []

    with pytest.raises(TypeError, match=r"__contains__\(\): Python gives it one argument, and it takes 2"):

        @nearcall.service
        class Double:
            def __contains__(self, one: int, other: int) -> bool:  # noqa: PLE0302
                return True

    with pytest.raises(TypeError, match=r"has __enter__\(\) without __exit__\(\)"):

        @nearcall.service
        class Open:
            def __enter__(self) -> None: ...

    with pytest.raises(TypeError, match=r"has both __iter__\(\) and __aiter__\(\)"):

        @nearcall.service
        class Both:
            def __iter__(self) -> Iterator[int]:
                yield 1

            async def __aiter__(self) -> AsyncIterator[int]:
                yield 1

    with pytest.raises(TypeError, match=r"no return annotation.*class that derives from Unsaid"):

        @nearcall.service
        class Unsaid:
            def __len__(self):  # type: ignore[no-untyped-def]
                return 1


def test_a_class_that_derives_has_what_it_likes_for_itself() -> None:
    @nearcall.service
    class Account(Protocol):
        def balance(self) -> int: ...

    class Own(Account):
        def balance(self) -> int:
            return 1

        def __enter__(self) -> Own:
            return self

        def __exit__(self, *error: object) -> None: ...

        def __del__(self) -> None: ...

        def __len__(self) -> int:
            return 7

    with nearcall.Server(Own(), "inproc://account"), nearcall.connect("inproc://account") as account:
        assert account.balance() == 1
        with pytest.raises(TypeError, match=r"has no len\(\)"):
            len(account)
