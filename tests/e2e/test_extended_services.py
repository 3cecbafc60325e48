"""Services that extend another one, where both are passed: each side gets what the annotation promises, and no more."""

from __future__ import annotations

from typing import Any, Protocol, cast

import pytest

import nearcall


@nearcall.service
class Reader(Protocol):
    def read(self) -> str: ...


@nearcall.service
class Writer(Reader, Protocol):
    def write(self, text: str) -> None: ...


@nearcall.service
class Eraser(Reader, Protocol):
    def erase(self) -> None: ...


class Note(Writer):
    def __init__(self, text: str = "") -> None:
        self.text = text

    def read(self) -> str:
        return self.text

    def write(self, text: str) -> None:
        self.text = text


class Slate(Eraser):
    def __init__(self) -> None:
        self.text = "chalk"

    def read(self) -> str:
        return self.text

    def erase(self) -> None:
        self.text = ""


@nearcall.service
class Desk(Protocol):
    def to_read(self) -> Reader: ...
    def to_write(self) -> Writer: ...
    def to_erase(self) -> Eraser: ...
    def read(self, given: Reader) -> str: ...
    def sign(self, given: Writer) -> str: ...
    def wipe(self, given: Eraser) -> str: ...
    def force(self, given: Reader) -> None: ...


class TheDesk(Desk):
    def __init__(self) -> None:
        self.note = Note("mine")

    def to_read(self) -> Reader:
        return self.note

    def to_write(self) -> Writer:
        return self.note

    def to_erase(self) -> Eraser:
        return Slate()

    def read(self, given: Reader) -> str:
        return given.read()

    def sign(self, given: Writer) -> str:
        given.write(given.read() + ", signed")
        return given.read()

    def wipe(self, given: Eraser) -> str:
        given.erase()
        return given.read()

    def force(self, given: Reader) -> None:
        cast(Any, given).write("forced")


@pytest.fixture
def desk(new_url: str) -> Any:
    with nearcall.Server(TheDesk(), new_url) as server, nearcall.connect(server.urls[0], Desk) as desk:
        yield desk


def test_what_a_service_adds_can_be_called_both_ways(desk: Desk) -> None:
    note = Note("yours")
    assert desk.read(note) == "yours"
    assert desk.sign(note) == note.text == "yours, signed"
    assert desk.wipe(Slate()) == ""
    written = desk.to_write()
    written.write("theirs")
    assert written.read() == desk.to_read().read() == "theirs"
    erased = desk.to_erase()
    erased.erase()
    assert erased.read() == ""


@nearcall.service(name="Desk")
class Greedy(Protocol):
    """Says that it gets more than the server gives."""

    def to_read(self) -> Writer: ...


def test_an_object_is_passed_with_the_methods_of_the_annotation_only(new_url: str) -> None:
    desk = TheDesk()
    with nearcall.Server(desk, new_url) as server:
        with nearcall.connect(server.urls[0], Greedy) as greedy:
            got = greedy.to_read()
            assert got.read() == "mine"
            with pytest.raises(nearcall.Unimplemented):
                got.write("taken")
        assert desk.note.text == "mine"
        with nearcall.connect(server.urls[0], Desk) as honest:
            note = Note("yours")
            with pytest.raises(nearcall.RpcError):
                honest.force(note)
            assert note.text == "yours"


@nearcall.service
class Stamp(Reader, Protocol):
    def write(self, number: int) -> None: ...


def test_two_that_add_a_method_of_one_name_are_refused() -> None:
    class Office:
        def one(self) -> Writer: ...
        def other(self) -> Stamp: ...

    # Not by @nearcall.service in the class: each annotation by itself is right.
    office = nearcall.service(Office)
    with pytest.raises(TypeError, match=r"Reader\.write\(\) is declared by Writer and by Stamp, .*service\(name="):
        nearcall.Server(office(), "inproc://nobody")
