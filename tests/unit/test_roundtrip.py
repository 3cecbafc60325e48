"""Every supported type crosses unchanged, as an argument, by name, as a result and as an item of a stream."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcall.errors import InvalidArgument
from nearcall.service.plan import ServicePlan
from nearcall.service.service import plan_of, service

from .loopback import ARRIVES_AS, Loopback, carry_arguments, receive_value, send_value

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True)
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T
    more: list[T]


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: int


class Row(msgspec.Struct, array_like=True):
    id: int
    name: str | None = None


class Movie(TypedDict, total=False):
    title: str
    year: int


class Pair(NamedTuple):
    left: int
    right: str = "x"


@dataclass
class Blob:
    __hash__ = None

    view: memoryview
    array: bytearray
    data: bytes = b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and (bytes(self.view), self.array, self.data) == (
            bytes(other.view),
            other.array,
            other.data,
        )


ints = st.integers(-(2**63), 2**64 - 1) | st.integers(-(2**200), 2**200)
floats = st.floats(allow_nan=False)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
data = st.binary(max_size=40)
points = st.builds(Point, ints, floats)
trees = st.recursive(
    st.builds(Tree, text), lambda inner: st.builds(Tree, text, st.lists(inner, max_size=3)), max_leaves=6
)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
aware = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.timezone.utc))
plain = st.recursive(
    st.none() | st.booleans() | ints | floats | text | data,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text | ints, inner, max_size=3),
    max_leaves=8,
)

TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, ints),
    (float, floats),
    (str, text),
    (bytes, data),
    (bytearray, data.map(bytearray)),
    (memoryview, data.map(memoryview)),
    (bytes | None, st.none() | data),
    (Annotated[bytes, msgspec.Meta(max_length=40)], data),
    (Annotated[int, msgspec.Meta(ge=0)], st.integers(0, 2**64 - 1) | st.integers(0, 2**80)),
    (UserId, ints),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Rights, st.sampled_from([Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE])),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (dt.datetime, st.datetimes() | aware),
    (dt.date, st.dates()),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas(dt.timedelta(days=-999_999), dt.timedelta(days=999_999))),
    (uuid.UUID, st.uuids()),
    (decimal.Decimal, decimals),
    (list[int], st.lists(ints)),
    (list[Point], st.lists(points, max_size=4)),
    (tuple[int, str], st.tuples(ints, text)),
    (tuple[float, ...], st.lists(floats).map(tuple)),
    (set[int], st.sets(ints)),
    (frozenset[str], st.frozensets(text)),
    (dict[str, float], st.dictionaries(text, floats)),
    (dict[int, list[str]], st.dictionaries(ints, st.lists(text, max_size=3))),
    (dict[tuple[int, int], bool], st.dictionaries(st.tuples(ints, ints), st.booleans())),
    (dict[Color, Level], st.dictionaries(st.sampled_from(Color), st.sampled_from(Level))),
    (dict[uuid.UUID, dt.date], st.dictionaries(st.uuids(), st.dates())),
    (dict[bytes, int], st.dictionaries(data, ints)),
    (Sequence[int], st.lists(ints)),
    (Mapping[str, int], st.dictionaries(text, ints)),
    (int | str | None, ints | text | st.none()),
    (list[int | None] | float | bool, st.lists(ints | st.none()) | floats | st.booleans()),
    (Circle | Square, st.builds(Circle, floats) | st.builds(Square, ints)),
    (Point, points),
    (Tree, trees),
    (Box[int], st.builds(Box[int], ints, st.lists(ints))),
    (Box[Point], st.builds(Box[Point], points, st.lists(points, max_size=2))),
    (Row, st.builds(Row, ints, st.none() | text)),
    (Movie, st.fixed_dictionaries({}, optional={"title": text, "year": ints})),
    (Pair, st.builds(Pair, ints, text)),
    (Blob, st.builds(Blob, data.map(memoryview), data.map(bytearray), data)),
    (list[memoryview], st.lists(data.map(memoryview))),
    (Any, plain),
    (list, st.lists(plain, max_size=2)),
    (dict[str, Any], st.dictionaries(text, plain, max_size=2)),
]


def make_service(annotation: Any) -> ServicePlan:
    """A service with one method of each mode that takes and gives values of the type."""

    class Echo:
        def unary(self, value, other=7):
            return value

        def stream(self, values):
            yield from values

    Echo.unary.__annotations__ = {"value": annotation, "other": int, "return": annotation}
    Echo.stream.__annotations__ = {"values": Iterator[annotation], "return": Iterator[annotation]}
    return plan_of(service(Echo))


PLANS = [(make_service(annotation), values) for annotation, values in TYPES]


@pytest.mark.parametrize(("plan", "values"), PLANS, ids=[str(annotation) for annotation, _ in TYPES])
@settings(max_examples=25)
@given(st.data())
def test_values_cross_unchanged(plan: ServicePlan, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    unary, stream = plan.methods
    arguments = unary.arguments
    results = [
        carry_arguments(arguments, arguments, (value, 1))[0],
        carry_arguments(arguments, arguments, {"value": value})[0],
        receive_value(unary.reply, *send_value(unary.reply, value)),
    ]
    item = stream.request_item
    assert item is not None
    results.append(receive_value(item, *send_value(item, value)))
    for result in results:
        assert result == value
        assert type(result) is type(value)


@pytest.mark.parametrize(
    "sent", [b"abc", bytearray(b"abc"), memoryview(b"abc")], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("form", sorted(ARRIVES_AS))
def test_a_buffer_arrives_as_its_receiver_wants_it(form: str, sent: Any) -> None:
    reply = make_service(ARRIVES_AS[form]).methods[0].reply
    result = receive_value(reply, *send_value(reply, sent))
    assert type(result) is ARRIVES_AS[form]
    assert result == b"abc"


def test_subclasses_of_plain_types_arrive_plain() -> None:
    class Name(str): ...

    class Stamp(dt.datetime): ...

    class Money(decimal.Decimal): ...

    for annotation, value, expected in [
        (str, Name("n"), "n"),
        (dt.datetime, Stamp(2020, 1, 2, 3, 4, 5, 6), dt.datetime(2020, 1, 2, 3, 4, 5, 6)),
        (decimal.Decimal, Money("1.50"), decimal.Decimal("1.50")),
        (Sequence[int], range(3), [0, 1, 2]),
        (int, Level.HIGH, 2),
        (float, 3, 3.0),
    ]:
        arguments = make_service(annotation).methods[0].arguments
        (result, _) = carry_arguments(arguments, arguments, (value, 1))
        assert result == expected
        assert type(result) is type(expected)


WRONG: list[tuple[Any, Any, str]] = [
    (int, True, "must be int, got bool"),
    (int, 1.0, "must be int, got float"),
    (int, None, "must be int, got None"),
    (float, True, "must be float, got bool"),
    (float, "1", "must be float, got str"),
    (bool, 1, "must be bool, got int"),
    (str, b"x", "must be str, got bytes"),
    (None, 0, "must be None, got int"),
    (bytes, "x", "must be bytes, got str"),
    (memoryview, None, "must be memoryview, got None"),
    (bytes | None, "x", "must be bytes | None, got str"),
    (int | str | None, 1.5, "must be int | str | None, got float"),
    (list[int], (1,), "must be list[int], got tuple"),
    (tuple[int, ...], [1], "must be tuple[int, ...], got list"),
    (set[int], frozenset(), "must be set[int], got frozenset"),
    (Sequence[str], "text", "must be Sequence[str], got str"),
    (Mapping[str, int], [1], "must be Mapping[str, int], got list"),
    (Movie, [1], "must be Movie, got list"),
    (Pair, (1, "x"), "must be Pair, got tuple"),
    (Point, {"x": 1}, "must be Point, got dict"),
    (Box[int], 3, "must be Box[int], got int"),
    (Color, "red", "must be Color, got str"),
    (Literal["a", 1], "b", "must be Literal['a', 1], got 'b'"),
    (Literal["a", 1], True, "must be Literal['a', 1], got True"),
    (dt.date, dt.datetime(2020, 1, 1), "must be date, got datetime.datetime: write value.date()"),
    (dt.datetime, dt.date(2020, 1, 1), "must be datetime, got datetime.date"),
    (list[int], collections.deque([1]), "must be list[int], got collections.deque: pass list(deque)"),
    (str, pathlib.PurePosixPath("a"), "must be str, got pathlib.PurePosixPath: pass str(path)"),
    (int, pathlib.PurePosixPath("a"), "must be int, got pathlib.PurePosixPath"),
    (decimal.Decimal, 1, "must be Decimal, got int"),
    (uuid.UUID, "x", "must be UUID, got str"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_a_wrong_outer_type_is_refused_before_sending(annotation: Any, value: Any, message: str) -> None:
    plan = make_service(annotation).methods[0]
    assert type(value) not in plan.arguments.accepts[0]
    with pytest.raises(InvalidArgument) as caught:
        plan.arguments.check_at(0, value)
    assert caught.value.message == f"Echo.unary(): argument 'value' {message}"
    with pytest.raises(InvalidArgument) as caught:
        plan.arguments.encode_named({"value": value})
    assert caught.value.message == f"Echo.unary(): argument 'value' {message}"
    assert plan.arguments.coding.encode_error(caught.value, {"value": value}) is caught.value


@dataclass
class Order:
    points: list[Point]
    tree: Tree | None = None


@service
class Deep:
    def take(self, first: int, data: bytes, order: Order, table: dict[str, list[int]]) -> None: ...


@pytest.mark.parametrize("named", [False, True], ids=["by position", "by name"])
@pytest.mark.parametrize(
    ("order", "table", "message"),
    [
        (Order([Point("x")]), {}, "argument 'order' at .points[0].x: expected int, got str"),
        (Order([Point(True)]), {}, "argument 'order' at .points[0].x: expected int, got bool"),
        (Order([], Tree("a", [Tree(3)])), {}, "argument 'order' at .tree.children[0].name: expected str, got int"),
        (Order([]), {"a": [None]}, "argument 'table' at [...][0]: expected int, got None"),
        (
            Order([]),
            {"a": [2**16383]},
            "argument 'table' at ['a'][0]: an int of 2049 bytes cannot be sent: the longest that is has 2048; "
            "send bytes",
        ),
        (
            Order([]),
            {"\ud800": []},
            "argument 'table' cannot be sent: a str holds a lone surrogate, which UTF-8 cannot carry",
        ),
        (
            Order([], Tree(object())),
            {},
            "argument 'order' cannot be sent: object is not a type that can be encoded; "
            "use a dataclass, a msgspec.Struct or plain data",
        ),
    ],
)
def test_deeper_mistakes_are_named_by_the_server(order: Any, table: Any, message: str, named: bool) -> None:
    arguments = plan_of(Deep).methods[0].arguments
    with pytest.raises(InvalidArgument) as caught:
        carry_arguments(arguments, arguments, (1, b"", order, table), named=named)
    assert caught.value.message == f"Deep.take(): {message}"


def test_a_value_that_holds_itself_is_refused() -> None:
    tree = Tree("a")
    tree.children.append(tree)
    arguments = plan_of(Deep).methods[0].arguments
    with pytest.raises(InvalidArgument, match="argument 'order' cannot be sent: the value is nested too deeply"):
        carry_arguments(arguments, arguments, (1, b"", Order([], tree), {}))
    loop: dict[str, Any] = {}
    loop["self"] = loop
    arguments = make_service(Any).methods[0].arguments
    with pytest.raises(InvalidArgument, match="argument 'value' cannot be sent: the value is nested too deeply"):
        carry_arguments(arguments, arguments, (loop, 1))


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91", b"\x93\x01", b"\x94\x01\x02\x03\x04", b"\x93\x01\xa1\xff\x80", b"\x80"]
)
def test_damaged_arguments_are_refused_in_one_line(body: bytes) -> None:
    arguments = plan_of(Deep).methods[0].arguments
    for decode in (lambda: arguments.coding.decode(body), lambda: arguments.coding.decode_named(body, [])):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as caught:
            decode()
        message = arguments.coding.decode_error(caught.value).message
        assert message.startswith("Deep.take(): ")
        assert "\n" not in message


@given(st.binary(max_size=60))
@settings(max_examples=100)
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    arguments = plan_of(Deep).methods[0].arguments
    with contextlib.suppress(InvalidArgument):
        try:
            arguments.coding.decode(body)
        except Exception as error:
            raise arguments.coding.decode_error(error) from error


@service
class Modes:
    def add(self, a: int, b: int = 2) -> int:
        return a + b

    def mixed(self, a: bytes, p: Point, b: memoryview, *, n: int = 1) -> tuple[bytes, int]:
        return bytes(a) + bytes(b), int(p.x * n)

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def scale(self, by: float, xs: Iterator[float]) -> Iterator[float]:
        for x in xs:
            yield x * by

    def total(self, xs: Iterator[Point], *, start: int = 0) -> Point:
        return Point(sum((point.x for point in xs), start))

    def chunks(self, data: Iterator[bytes]) -> Iterator[bytes]:
        yield from data

    def nothing(self) -> None: ...


@pytest.mark.parametrize("cls", [Modes, None], ids=["typed", "dynamic"])
def test_calls_of_every_mode(cls: type | None) -> None:
    modes = Loopback(Modes(), cls)
    assert (modes.add(1), modes.add(1, 3), modes.add(b=5, a=1)) == (3, 4, 6)
    point = Point(2) if cls else {"x": 2, "y": 0.0}
    assert tuple(modes.mixed(b"a", point, b"b", n=2)) == (b"ab", 4)
    assert tuple(modes.mixed(b"a", point, b"b")) == (b"ab", 2)
    assert list(modes.count(3)) == [0, 1, 2]
    assert list(modes.scale(2.0, [1.5, 2])) == [3.0, 4.0]
    assert list(modes.scale(xs=iter([1.0]), by=2.0)) == [2.0]
    total = modes.total([point, point], start=1)
    assert (total.x if cls else total["x"]) == 5
    assert list(modes.chunks([b"a", b"bc"])) == [b"a", b"bc"]
    assert modes.nothing() is None
    with pytest.raises(InvalidArgument, match="argument 'b'"):
        modes.add(1, "x")
    with pytest.raises(InvalidArgument, match="argument 'xs' must be an iterable, got int"):
        modes.total(3)


def test_mistakes_in_a_stream_are_named() -> None:
    modes = Loopback(Modes(), Modes)
    with pytest.raises(InvalidArgument, match=r"Modes.total\(\): an item of 'xs' must be Point, got int"):
        modes.total([3])
    with pytest.raises(
        InvalidArgument, match=r"Modes.total\(\): an item of 'xs' must be Point at .x: expected int, got str"
    ):
        modes.total([Point("x")])
