"""Values of the wrong type: what is said of them, where they are, and what to write."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import fractions
import functools
import io
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypedDict

import msgspec
import numpy as np
import pytest

import nearcall
from nearcall.testing import serving

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
TODAY = NOW.date()


@dataclasses.dataclass
class Point:
    x: int
    day: datetime.date = TODAY


@dataclasses.dataclass
class Track:
    points: list[Point]
    named: dict[str, list[Point]] = dataclasses.field(default_factory=dict)


class Color(enum.Enum):
    RED = "red"


@nearcall.service
class Listener:
    def said(self, text: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Spot:
    x: tuple[int, ...]


Dotted = TypedDict("Dotted", {"a.b": dict[str, int], "a[b": dict[str, int]})


@nearcall.service
class Values:
    def point(self, point: Point) -> None: ...
    def perhaps(self, point: Point | None) -> None: ...
    def color(self, color: Color) -> None: ...
    def points(self, points: list[Point]) -> None: ...
    def tracks(self, tracks: list[Track]) -> None: ...
    def named(self, points: dict[str, list[Point]]) -> None: ...
    def counts(self, counts: dict[str, int]) -> None: ...
    def by_number(self, by_number: dict[int, dict[str, int]]) -> None: ...
    def numbers(self, numbers: list[int]) -> None: ...
    def date(self, day: datetime.date) -> None: ...
    def dates(self, days: list[datetime.date]) -> None: ...
    def moments(self, moments: list[datetime.datetime]) -> None: ...
    def times(self, times: list[datetime.time], spans: list[datetime.timedelta]) -> None: ...
    def anything(self, what: Any) -> None: ...
    def limited(self, counts: dict[str, int], limit: int = 1) -> None: ...
    def mixed(self, data: bytes, counts: dict[str, int]) -> None: ...
    def beside(self, pixels: dict[str, np.ndarray], counts: dict[str, int]) -> None: ...
    def heard(self, listener: Listener, counts: dict[str, int], limit: int = 1) -> None: ...
    def told(self, listeners: dict[str, Listener], counts: dict[str, int]) -> None: ...
    def spots(self, spots: set[Spot]) -> None: ...
    def dotted(self, dotted: Dotted) -> None: ...
    def nested(self, nested: dict[str, dict[str, list[Point]]]) -> None: ...
    def listen(self, listener: Listener) -> None: ...
    def wrong(self, how: str) -> dict[str, list[int]]:
        result: Any = {"a": [1], "b": [1, how]}
        return result  # type: ignore[no-any-return]


@pytest.fixture
def values(new_url: str) -> Iterator[Any]:
    with nearcall.Server(Values(), new_url) as server, nearcall.connect(server.urls[0], Values) as values:
        yield values


def _again() -> Any:
    """What a notebook does when the cell with the class is run again."""

    @dataclasses.dataclass
    class Again:
        x: int
        day: datetime.date = TODAY

    Again.__name__ = Again.__qualname__ = "Point"
    Again.__module__ = Point.__module__
    return Again


def test_a_class_that_was_defined_again(values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    declared_again = r"and the class Point of .*test_mistakes_values was defined again in between: "
    other = _again()
    with pytest.raises(
        nearcall.InvalidArgument, match=rf"'point' must be Point, got .*Point, {declared_again}make the"
    ):
        values.point(other(1))
    with pytest.raises(
        nearcall.InvalidArgument, match=rf"must be Point \| None, got .*Point, {declared_again}make the"
    ):
        values.perhaps(other(1))
    with pytest.raises(nearcall.InvalidArgument, match=rf"at \[1\]: expected Point, got .*Point, {declared_again}make"):
        values.points([Point(1), other(1)])
    monkeypatch.setattr(sys.modules[__name__], "Point", other)
    with pytest.raises(nearcall.InvalidArgument, match=rf"{declared_again}declare the service again, for it still mea"):
        values.point(other(1))


def test_two_classes_of_one_name(values: Any) -> None:
    other = _again()
    other.__module__ = "shop.models"
    with pytest.raises(nearcall.InvalidArgument) as caught:
        values.point(other(1))
    assert caught.value.message == (
        "Values.point(): argument 'point' must be Point, got shop.Point, and these are two classes: "
        f"{__name__}.Point is declared, and shop.models.Point was given"
    )
    with pytest.raises(nearcall.InvalidArgument, match=r"must be Color, got .*, and these are two classes: .*Color is"):
        values.color(enum.Enum("Color", "RED", module="shop.models").RED)


def test_a_service_that_was_defined_again(values: Any) -> None:
    @nearcall.service(name="Listener")
    class Again:
        def said(self, text: str) -> None: ...

    Again.__name__ = Again.__qualname__ = "Listener"
    with pytest.raises(nearcall.InvalidArgument, match=r"expected Listener, got Listener, and the class Listener of "):
        values.listen(Again())


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda values: values.numbers([1, 2, "3"]), "argument 'numbers' at [2]: expected int, got str"),
        (lambda values: values.points([Point(1), 2]), "argument 'points' at [1]: expected Point, got int"),
        (
            lambda values: values.tracks([Track([]), Track([Point(1), Point("x")])]),  # type: ignore[arg-type]
            "argument 'tracks' at [1].points[1].x: expected int, got str",
        ),
        (
            lambda values: values.tracks([Track([], {"a": [], "b": [Point(1), 2]})]),  # type: ignore[list-item]
            "argument 'tracks' at [0].named['b'][1]: expected Point, got int",
        ),
        (
            lambda values: values.named({"a": [], "b": [Point(1), Point("x")]}),  # type: ignore[arg-type]
            "argument 'points' at ['b'][1].x: expected int, got str",
        ),
        (
            lambda values: values.counts({**{f"k{n}": n for n in range(700)}, "bad": "x", "late": "y"}),
            "argument 'counts' at ['bad']: expected int, got str",
        ),
        (
            lambda values: values.by_number({1: {"a": 1}, 2: {"b": 1, "c": None}, 3: {}}),
            "argument 'by_number' at [2]['c']: expected int, got None",
        ),
        (
            lambda values: values.by_number({1: {}, "two": {}}),
            "argument 'by_number': the key 'two': expected int, got str",
        ),
        (
            lambda values: values.by_number({1: {}, 2: {"a": 1, 5: 1}}),
            "argument 'by_number' at [2]: the key 5: expected str, got int",
        ),
    ],
)
def test_where_the_wrong_value_is(values: Any, call: Callable[[Any], Any], where: str) -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        call(values)
    assert caught.value.message.partition("(): ")[2] == where


def test_where_it_is_in_a_result(values: Any) -> None:
    with pytest.raises(nearcall.Internal, match=r"the result must be dict\[.* at \['b'\]\[1\]: expected int, got str$"):
        values.wrong("x")


class Heard(Listener):
    def said(self, text: str) -> None: ...


EMPTY: dict[str, list[Point]] = {f"k{n}": [] for n in range(3000)}
MANY = {f"k{n}": n for n in range(12_000)}
PIXELS = {"sky": np.zeros(3), "sea": np.ones(3)}
WRONG = {"a": 1, "bad": "x"}


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda values: values.limited(WRONG), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.limited(counts=WRONG, limit=2), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.limited({1: 1}), "'counts': the key 1: expected str, got int"),
        (lambda values: values.mixed(b"12", WRONG), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.mixed(counts=WRONG, data=b"12"), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.beside(PIXELS, WRONG), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.beside(counts=WRONG, pixels=PIXELS), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.heard(Heard(), WRONG), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.heard(Heard(), WRONG, 3), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.told({"me": Heard()}, WRONG), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.dotted({"a.b": WRONG, "a[b": {}}), "'dotted' at .a.b['bad']: expected int, got str"),
        (lambda values: values.dotted({"a.b": {}, "a[b": WRONG}), "'dotted' at .a[b['bad']: expected int, got str"),
        (lambda values: values.counts({**MANY, "bad": "x"}), "'counts' at ['bad']: expected int, got str"),
        (lambda values: values.counts({"bad": "x", **MANY}), "'counts' at ['bad']: expected int, got str"),
        (
            lambda values: values.nested({**{key: {} for key in MANY}, "bad": {**EMPTY, "y": [Point("x")]}}),  # type: ignore[arg-type]
            "'nested' at ['bad']['y'][0].x: expected int, got str",
        ),
        (
            lambda values: values.counts({"\x1b[31m\n\u202e" + "long" * 1000: "x"}),
            rf"'counts' at ['\x1b[31m\n\u202e{('long' * 16)[:63]}... (3938 characters more)]: expected int, got str",
        ),
    ],
)
def test_the_key_is_told_in_each_form(values: Any, call: Callable[[Any], Any], where: str) -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        call(values)
    assert caught.value.message.partition("(): argument ")[2] == where


class Marked(Spot):
    """A subclass, which would arrive as a Spot."""


def test_an_item_of_a_set_is_told_by_what_it_is(values: Any) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"'spots' at \{Marked\(x=\(2,\)\)\}: expected Spot"):
        values.spots({Spot((1,)), Marked((2,))})


def test_a_long_message_is_not_searched(values: Any) -> None:
    """That could be made to cost too much."""
    with pytest.raises(nearcall.InvalidArgument, match=r"argument 'counts' at \[\.\.\.\]: expected int, got str$"):
        values.counts({**{f"k{n}": n for n in range(40_000)}, "bad": "x"})
    with pytest.raises(nearcall.InvalidArgument, match=r"at \[30000\]: expected date, got another text"):
        values.dates([TODAY] * 30_000 + [NOW])


def test_looking_for_a_key_costs_no_more_than_so_many_bytes() -> None:
    """Each time half of what is left is left out, and what is beside the dict is copied."""
    from nearcall.codec.culprit import find_culprit

    decoder = msgspec.msgpack.Decoder(tuple[bytes, dict[str, dict[str, int]]])
    looked: list[int] = []

    def decode(body: bytes) -> Any:
        looked.append(len(body))
        return decoder.decode(body)

    inner = {f"k{n}": n for n in range(4000)}
    for before in (b"", bytes(50_000)):
        for bad in (inner | {"bad": "x"}, {"bad": "x"} | inner):
            body = msgspec.msgpack.encode((before, {**{key: {} for key in inner}, "here": bad}))
            try:
                decoder.decode(body)
            except msgspec.ValidationError as error:
                words = str(error)
            looked.clear()
            found = find_culprit(body, "[1][...][...]", words=words, is_key=False, decode=decode)
            assert found == ("[1]['here']['bad']", "x")
            assert sum(looked) <= 16 * len(body)
            assert before or sum(looked) <= 6 * len(body)
    few = {f"k{n}": n for n in range(1000)}
    beside = (bytes(100_000), {**{key: {} for key in few}, "here": {**few, "bad": "x"}})
    body = msgspec.msgpack.encode(beside)
    looked.clear()
    assert find_culprit(body, "[1][...][...]", words=words, is_key=False, decode=decode) is None
    assert sum(looked) <= 16 * len(body)


def test_dates_and_times(values: Any) -> None:
    aware = NOW.replace(tzinfo=datetime.timezone.utc)
    for call, problem in (
        (lambda: values.date(NOW), "'day' must be date, got datetime.datetime: write value.date()"),
        (lambda: values.dates([TODAY, NOW]), "'days' at [1]: expected date, got datetime: write value.date()"),
        (lambda: values.dates([TODAY, aware]), "'days' at [1]: expected date, got datetime: write value.date()"),
        (lambda: values.dates(["soon"]), "'days' at [0]: expected date, got a str that is no date"),
        (lambda: values.dates([3]), "'days' at [0]: expected date, got int"),
        (
            lambda: values.moments([NOW, TODAY]),
            "'moments' at [1]: expected datetime, got date: write datetime.combine(value, time())",
        ),
        (lambda: values.times([NOW], []), "'times' at [0]: expected time, got datetime: write value.timetz()"),
        (lambda: values.times([], ["x"]), "'spans' at [0]: expected timedelta, got a str that is no timedelta"),
    ):
        with pytest.raises(nearcall.InvalidArgument) as caught:
            call()
        assert caught.value.message.partition("argument ")[2] == problem


def _named(module: str, name: str, *bases: type) -> type:
    return type(name, bases, {"__module__": module})


REMEDIES = [
    (re.Pattern, "Pattern cannot be encoded; take str, and pass pattern.pattern"),
    (io.BytesIO, "BytesIO cannot be encoded; take bytes, and pass buffer.getvalue()"),
    (
        types.SimpleNamespace,
        "SimpleNamespace cannot be encoded; take a dataclass or a TypedDict of its fields, and pass",
    ),
    (_named("pandas.core.series", "Series"), "Series cannot be encoded; take NDArray or list, and pass series.to_nu"),
    (_named("pyarrow.lib", "Array"), "Array cannot be encoded; take NDArray or list, and pass array.to_numpy()"),
    (_named("torch", "Tensor"), "Tensor cannot be encoded; take NDArray, and pass tensor.numpy(force=True)"),
    (
        _named("shop.models", "Order", _named("pydantic.main", "BaseModel")),
        "Order cannot be encoded; take a TypedDict or a dataclass of its fields, and pass model.model_dump()",
    ),
    (
        _named("shop_pb2", "Order", _named("google._upb._message", "Message")),
        "Order cannot be encoded; take bytes, and pass message.SerializeToString()",
    ),
    (_named("shop.models", "Strange"), "Strange cannot be encoded; make it a dataclass, a msgspec.Struct, a TypedDict"),
]


@pytest.mark.parametrize(("cls", "advice"), REMEDIES, ids=[cls.__name__ for cls, _ in REMEDIES])
def test_types_that_cannot_be_sent(cls: type, advice: str) -> None:
    def send(self: Any, value: Any) -> None: ...

    for annotation in (cls, list[cls]):  # type: ignore[valid-type]
        send.__annotations__["value"] = annotation
        with pytest.raises(TypeError) as caught:
            nearcall.service(type("Sending", (), {"send": send}))
        assert "Sending.send(): parameter 'value: " in str(caught.value)
        assert advice in str(caught.value)


def test_values_that_cannot_be_sent(values: Any) -> None:
    for value, advice in (
        (pathlib.PurePosixPath("/tmp"), "where Any is declared: declare PurePath, or pass str(path)"),
        ({"a": pathlib.Path("/tmp")}, "where Any is declared: declare Path, or pass str(path)"),
        ([1j], "declare complex, or pass (number.real, number.imag)"),
        (fractions.Fraction(1, 2), "declare Fraction, or pass fraction.as_integer_ratio()"),
        (io.BytesIO(), "BytesIO is not a type that can be sent: pass buffer.getvalue()"),
        (object(), "object is not a type that can be sent"),
    ):
        with pytest.raises(nearcall.InvalidArgument) as caught:
            values.anything(value)
        assert advice in caught.value.message


@dataclasses.dataclass
class Other:
    y: int


class Shade(enum.Enum):
    DARK = "dark"


@pytest.mark.parametrize(
    ("union", "advice"),
    [
        (
            str | bytes,
            "the members of str | bytes are sent as text or bytes, and could not be told apart: take one of ",
        ),
        (datetime.date | str, "the members of date | str are sent as text or bytes, and could not be told apart: take"),
        (
            list[int] | tuple[int, ...],
            "are sent as arrays, and could not be told apart: take one of them, such as list",
        ),
        (
            Point | Other,
            "the members of Point | Other are sent as maps, and could not be told apart: make each of them ",
        ),
        (Point | dict[str, int], "the members of Point | dict[str, int] are sent as maps, and could not be told apart"),
        (dict[str, int] | dict[int, str], "are sent as maps, and could not be told apart: make each of them a msgspec"),
        (Color | Shade, "the members of Color | Shade are sent by their values, and could not be told apart: take one"),
    ],
)
def test_unions_in_a_tuple_whose_members_look_alike(union: Any, advice: str) -> None:
    def send(self: Any, value: Any) -> None: ...
    def get(self: Any) -> Any: ...

    row = NamedTuple("Row", [("value", union)])  # type: ignore[misc] # noqa: UP014 - made of a type
    send.__annotations__["value"] = list[row]  # type: ignore[valid-type]
    with pytest.raises(TypeError) as caught:
        nearcall.service(type("Sending", (), {"send": send}))
    assert str(caught.value).startswith("Sending.send(): parameter 'value: list[")
    assert advice in str(caught.value)
    get.__annotations__["return"] = row
    with pytest.raises(TypeError, match=r"^Getting\.get\(\): the result '.*' cannot be sent: the members of "):
        nearcall.service(type("Getting", (), {"get": get}))


def _logged(method: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return wrapper


def _logged_with_self(method: Callable[..., Any]) -> Callable[..., Any]:
    def around(self: Any, *args: Any) -> Any:
        return method(self, *args)

    return around


def _logged_well(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return wrapper


def test_a_decorator_without_wraps() -> None:
    for decorator, inner in ((_logged, "wrapper"), (_logged_with_self, "around")):

        class Decorated:
            @decorator
            def add(self, a: int) -> int:
                return a

        with pytest.raises(TypeError) as caught:
            nearcall.service(Decorated)
        name = decorator.__name__
        assert str(caught.value) == (
            f"Decorated.add(): the decorator '{name}' has put '{inner}' in its place, which hides its parameters: "
            f"write @functools.wraps(function) right above 'def {inner}' in '{name}'"
        )

    @nearcall.service
    class Well:
        @_logged_well
        def add(self, a: int) -> int:
            return a

    with serving(Well()) as well:
        assert well.add(3) == 3


def test_the_same_without_a_class(new_url: str) -> None:
    async def main(url: str) -> None:
        async with nearcall.aio.connect(url) as values:
            with pytest.raises(nearcall.InvalidArgument, match=r"at \['b'\]\[0\]\.x: expected int, got str$"):
                await values.named({"a": [], "b": [{"x": "x", "day": "2026-01-02"}]})

    with nearcall.Server(Values(), new_url) as server:
        asyncio.run(main(server.urls[0]))
