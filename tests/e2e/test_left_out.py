"""A client without the class gets every field, also those that have their default in a class that leaves such out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

import nearcall
import nearcall.aio


class Author(msgspec.Struct, omit_defaults=True, frozen=True):
    name: str = "anonymous"


class Book(msgspec.Struct, omit_defaults=True, rename="camel"):
    title: str
    page_count: int = 100
    tags: list[str] = []
    index: dict[str, int] = {}
    author: Author = Author()
    sequel: "Book | None" = None  # noqa: UP037 - it names the class it stands in


class Circle(msgspec.Struct, omit_defaults=True, tag=True):
    radius: float = 1.0


class Square(msgspec.Struct, omit_defaults=True, tag=True):
    side: float = 2.0


@nearcall.service
class Shelf:
    def book(self, title: str) -> Book:
        return Book(title, sequel=Book("next", page_count=1, tags=["x"]))

    def same(self, book: Book) -> Book:
        return book

    def books(self) -> dict[str, list[Book]]:
        return {"a": [Book("b")]}

    def each(self) -> Iterator[Book]:
        yield Book("c")

    def shapes(self) -> list[Circle | Square]:
        return [Circle(), Square(side=5)]


EMPTY = {"pageCount": 100, "tags": [], "index": {}, "author": {"name": "anonymous"}, "sequel": None}
NEXT = {"title": "next", **EMPTY, "pageCount": 1, "tags": ["x"]}
FIRST = {"title": "first", **EMPTY, "sequel": NEXT}


def test_every_field_is_there(new_url: str) -> None:
    with nearcall.Server(Shelf(), new_url) as server, nearcall.connect(server.urls[0]) as shelf:
        assert shelf.book("first") == FIRST
        assert shelf.same({"title": "y"}) == {"title": "y", **EMPTY}
        assert shelf.books() == {"a": [{"title": "b", **EMPTY}]}
        assert list(shelf.each()) == [{"title": "c", **EMPTY}]
        assert shelf.shapes() == [{"type": "Circle", "radius": 1.0}, {"type": "Square", "side": 5.0}]

        async def main() -> None:
            async with nearcall.aio.connect(server.urls[0]) as awaited:
                assert await awaited.book("first") == FIRST

        asyncio.run(main())


def test_with_the_class_nothing_changes(new_url: str) -> None:
    with nearcall.Server(Shelf(), new_url) as server, nearcall.connect(server.urls[0], Shelf) as shelf:
        assert shelf.same(Book("x")) == Book("x")
