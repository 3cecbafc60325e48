"""What ``msgspec.Meta`` says for readers (a title, a description, examples) changes nothing, wherever it stands."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union

import pytest
from msgspec import Meta

import nearcall

ABOUT = Meta(title="one", description="It is one.", examples=[1], extra={"a": 1}, extra_json_schema={"b": 2})


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: Annotated[int, ABOUT, Meta(ge=0)]
    names: Annotated[list[Annotated[str, ABOUT]], ABOUT]


@dataclass
class Line:
    ends: list[Annotated[Point, ABOUT]]


@nearcall.service
class Bell:
    def ring(self) -> int: ...


class OwnBell(Bell):
    def ring(self) -> int:
        return 1


APoint, ALine, AColour = Annotated[Point, ABOUT], Annotated[Line, ABOUT], Annotated[Colour, ABOUT]


@nearcall.service
class Described:
    def number(self, value: Annotated[int, ABOUT, Meta(ge=0)]) -> Annotated[int, ABOUT]:
        return value

    def point(self, value: APoint) -> APoint | None:
        return value

    def line(self, value: ALine) -> ALine:
        return value

    def either(self, value: Annotated[Union[Point, Line], ABOUT]) -> Union[APoint, ALine]:  # noqa: UP007 - as it is
        return value

    def table(self, value: dict[Annotated[str, ABOUT], APoint]) -> dict[Annotated[str, ABOUT], APoint]:
        return value

    def colour(self, value: AColour) -> AColour:
        return value

    def points(self, count: int) -> Iterator[APoint]:
        yield from [POINT] * count


@nearcall.service
class Objects:
    def ring(self, bell: Annotated[Bell, ABOUT]) -> int:
        return bell.ring()

    def call(self, function: Annotated[Callable[[int], int], ABOUT]) -> int:
        return function(1)


POINT = Point(1, ["a"])
SENT: list[tuple[str, Any]] = [
    ("number", 1),
    ("point", POINT),
    ("line", Line([POINT])),
    ("either", POINT),
    ("either", Line([POINT])),
    ("table", {"a": POINT}),
    ("colour", Colour.RED),
]


@pytest.mark.parametrize("url", ["inproc://described", "grpc://127.0.0.1:0", "http://127.0.0.1:0"])
def test_values_cross(url: str) -> None:
    with nearcall.Server(Described(), url) as server, nearcall.connect(server.urls[0], Described) as client:
        for name, value in SENT:
            assert getattr(client, name)(value) == value
        assert list(client.points(2)) == [POINT] * 2
        with pytest.raises(nearcall.InvalidArgument, match="'value': expected int >= 0"):
            client.number(-1)
    with nearcall.Server(Described(), "inproc://described") as server, nearcall.connect(server.urls[0]) as client:
        plain = client.point({"x": 1, "names": ["a"]})
        assert plain == {"x": 1, "names": ["a"]}


def test_objects_are_passed() -> None:
    with nearcall.Server(Objects(), "inproc://objects"), nearcall.connect("inproc://objects", Objects) as client:
        assert client.ring(OwnBell()) == 1
        assert client.call(lambda number: number + 1) == 2
