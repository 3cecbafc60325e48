"""Values arrive as they left, of the same types, or are refused before they leave: never changed in silence."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import uuid
import zoneinfo
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcall.codec.msgpack import functions as msgpack
from nearcall.codec.statuses import describe_error, make_error
from nearcall.errors import InvalidArgument, NotFound, ResourceExhausted, RpcError
from nearcall.service.service import plan_of, service

from .loopback import Loopback, carry_arguments, receive_value, send_value

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))


@dataclass
class Animal:
    name: str


@dataclass
class Dog(Animal):
    breed: str = "?"


class Shape(msgspec.Struct):
    id: int


class Round(Shape):
    radius: float = 1.0


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Mouse(msgspec.Struct, tag=True):
    at: dt.datetime
    tail: float = 1.0


class Sparing(msgspec.Struct, omit_defaults=True, rename="camel", tag="sparing", tag_field="kind"):
    first_one: int
    second_one: float = 5.0
    third_one: list[int] = []


class Row(msgspec.Struct, array_like=True, tag=True):
    at: dt.datetime
    anything: Any = None


class Movie(TypedDict, total=False):
    title: str
    at: dt.datetime


class Pair(NamedTuple):
    left: int
    right: Any = None


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Visit:
    at: dt.datetime
    who: Animal | None = None
    extra: Any = None
    more: list[Animal] = field(default_factory=list)
    by_day: dict[dt.date, list[dt.datetime]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stamp:
    at: dt.datetime
    label: str = "x"


@dataclass
class Node:
    at: dt.datetime
    children: list[Node] = field(default_factory=list)


@dataclass
class P:
    x: int
    y: float = 5.0


def echo_of(annotation: Any) -> Any:
    class Echo:
        def unary(self, value, other=7):
            return value

    Echo.unary.__annotations__ = {"value": annotation, "other": int, "return": annotation}
    return plan_of(service(Echo)).methods[0]


def crossed(annotation: Any, value: Any) -> list[Any]:
    """What arrives by position, by name, and as a result."""
    plan = echo_of(annotation)
    return [
        carry_arguments(plan.arguments, plan.arguments, (value, 1))[0],
        carry_arguments(plan.arguments, plan.arguments, {"value": value})[0],
        receive_value(plan.reply, *send_value(plan.reply, value)),
    ]


def refused(annotation: Any, value: Any) -> str:
    """Why it is refused, which must be the same however it leaves."""
    plan = echo_of(annotation)
    messages: set[str] = set()
    for send in (
        lambda: carry_arguments(plan.arguments, plan.arguments, (value, 1)),
        lambda: carry_arguments(plan.arguments, plan.arguments, {"value": value}),
        lambda: send_value(plan.reply, value),
    ):
        with pytest.raises(RpcError) as caught:
            send()
        messages.add(
            caught.value.message.partition("argument 'value' ")[2] or caught.value.message.partition("the result ")[2]
        )
    assert len({message.removeprefix("cannot be sent: ") for message in messages}) == 1, messages
    return messages.pop().removeprefix("cannot be sent: ").replace("tests.", "")


def exactly(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down; a time with the same offset."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(exactly, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(exactly(x, y) and exactly(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, (set, frozenset)):
        return a == b and {(type(x), x) for x in a} == {(type(x), x) for x in b}
    if isinstance(a, (dt.datetime, dt.time)):
        return a == b and a.utcoffset() == b.utcoffset() and (a.tzinfo is None) == (b.tzinfo is None)
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, decimal.Decimal):
        return str(a) == str(b)
    if hasattr(a, "__dict__") and hasattr(a, "__dataclass_fields__"):
        return exactly(vars(a), vars(b))
    if isinstance(a, msgspec.Struct):
        return exactly(msgspec.structs.astuple(a), msgspec.structs.astuple(b))
    return bool(a == b)


offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
datetimes = st.datetimes(
    dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.none() | offsets | st.just(dt.timezone.utc)
)
times = st.times(timezones=st.none() | offsets)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
atoms = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | text
    | st.binary(max_size=8)
    | datetimes
    | times
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.decimals()
    | st.datetimes(
        dt.datetime(1990, 1, 1), dt.datetime(2030, 1, 1), timezones=st.sampled_from([BERLIN, zoneinfo.ZoneInfo("UTC")])
    )
)
keys = st.recursive(
    text | st.integers(0, 9) | st.integers(2**64, 2**70) | st.dates() | st.uuids() | st.booleans(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=3,
)
anything = st.recursive(
    atoms | st.binary(max_size=8).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(keys, max_size=3)
        | st.frozensets(keys, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)
visits = st.builds(
    Visit, datetimes, st.none() | st.builds(Animal, text), anything, st.lists(st.builds(Animal, text), max_size=2),
    st.dictionaries(st.dates(), st.lists(datetimes, max_size=2), max_size=2),
)  # fmt: skip


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (Any, anything),
        (list[Any], st.lists(anything, max_size=3)),
        (dict[str, Any], st.dictionaries(text, anything, max_size=3)),
        (list, st.lists(anything, max_size=3)),
        (tuple, st.lists(anything, max_size=3).map(tuple)),
        (dt.datetime, datetimes),
        (dt.datetime | None, st.none() | datetimes),
        (list[dt.datetime], st.lists(datetimes)),
        (dict[dt.datetime, dt.time], st.dictionaries(datetimes, times)),
        (set[dt.datetime], st.sets(datetimes)),
        (tuple[dt.datetime, int, Any], st.tuples(datetimes, st.integers(0, 5), anything)),
        (dt.datetime | list[dt.datetime] | int, datetimes | st.lists(datetimes) | st.integers(0, 5)),
        (dt.time, times),
        (dt.timedelta, st.timedeltas()),
        (decimal.Decimal, st.decimals()),
        (float, st.floats()),
        (Visit, visits),
        (list[Visit], st.lists(visits, max_size=2)),
        (Stamp, st.builds(Stamp, datetimes)),
        (
            dict[str, Node],
            st.dictionaries(text, st.builds(Node, datetimes, st.lists(st.builds(Node, datetimes), max_size=2))),
        ),
        (Row, st.builds(Row, datetimes, anything)),
        (Cat | Mouse, st.builds(Cat) | st.builds(Mouse, datetimes)),
        (list[Cat | Mouse | None], st.lists(st.none() | st.builds(Cat) | st.builds(Mouse, datetimes))),
        (Sparing, st.builds(Sparing, st.integers(0, 9), st.floats(), st.just([]))),
        (Movie, st.fixed_dictionaries({}, optional={"title": text, "at": datetimes})),
        (Pair, st.builds(Pair, st.integers(0, 9), anything)),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)
@settings(max_examples=60)
@given(data=st.data())
def test_values_arrive_equal_and_of_the_same_types(annotation: Any, values: Any, data: st.DataObject) -> None:
    value = data.draw(values)
    for result in crossed(annotation, value):
        assert exactly(result, value), result


def test_zones_keep_their_rules_in_any_and_their_offset_elsewhere() -> None:
    summer = dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN)
    for result in crossed(Any, summer):
        assert (result.tzinfo, result.fold, result.utcoffset()) == (BERLIN, 1, summer.utcoffset())
    for result in crossed(dt.datetime, summer):
        assert result.timestamp() == summer.timestamp()
        assert result.tzinfo == dt.timezone(dt.timedelta(hours=1))
    assert "whole minutes" in refused(dt.datetime, dt.datetime(1890, 1, 1, tzinfo=BERLIN))
    assert "a zone without an offset" in refused(dt.time, dt.time(1, 2, tzinfo=BERLIN))
    assert "a zone without an offset" in refused(list[dt.time], [dt.time(1, 2, tzinfo=BERLIN)])


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Animal, Dog("a"), "must be Animal, got Dog, a subclass"),
        (Shape, Round(1), "must be Shape, got Round, a subclass"),
        (Animal | None, Dog("a"), "must be Animal | None, got Dog"),
        (list[Animal], [Animal("a"), Dog("b")], "at [1]: expected Animal, got Dog, a subclass"),
        (dict[str, Animal], {"a": Dog("b")}, "at ['a']: expected Animal, got Dog"),
        (tuple[int, Animal], (1, Dog("b")), "at [1]: expected Animal, got Dog"),
        (list[Animal | int], [1, Dog("b")], "at [1]: expected Animal, got Dog"),
        (list[Animal | None], [None, Dog("b")], "at [1]: expected Animal, got Dog"),
        (Visit, Visit(dt.datetime.min, Dog("b")), "at .who: expected Animal, got Dog"),
        (Visit, Visit(dt.datetime.min, more=[Dog("b")]), "at .more[0]: expected Animal, got Dog"),
        (list[Visit], [Visit(dt.datetime.min, extra=Color.RED)], "Color"),
        (list[Animal], [{"name": "a"}], "at [0]: expected Animal, got dict"),
        (Movie, {"title": "a", "titel": "b"}, "Movie has no key 'titel', which would be lost"),
        (list[Movie], [{"title": "a"}, {"year": 3}], "at [1]: Movie has no key 'year'"),
        (Movie | None, {"year": 3}, "Movie has no key 'year'"),
        (list[list[int]], [[1], (2,)], "at [1]: expected list, got tuple"),
        (list[set[int]], [frozenset([1])], "at [0]: expected set, got frozenset"),
        (dict[str, tuple[int, ...]], {"a": [1]}, "at ['a']: expected tuple, got list"),
        (list[tuple[int, int]], [Pair(1, 2)], "at [0]: expected tuple, got Pair, a subclass"),
        (tuple[int, int], Pair(1, 2), "must be tuple[int, int], got Pair"),
        (float, 2**53 + 1, "must be float, got int 9007199254740993, which no float equals"),
        (float, 10**400, "must be float, got int 1000"),
        (float, Fraction(1, 3), "must be float, got fractions.Fraction Fraction(1, 3), which no float equals"),
        (Any, Color.RED, "Color would arrive as its value where Any is declared: declare Color, or send its value"),
        (Any, Level.LOW, "Level would arrive as its value where Any is declared"),
        (Any, Animal("a"), "Animal is a class that the receiver does not know where Any is declared"),
        (Any, [{"a": (Pair(1, 2),)}], "Pair is a class"),
        (Any, OrderedDict(a=1), "collections.OrderedDict would arrive as dict"),
        (Any, [defaultdict(list)], "collections.defaultdict would arrive as dict"),
        (Any, range(3), "range cannot be sent where Any is declared: declare range, or pass list(range)"),
        (Any, dt.time(1, 2, tzinfo=BERLIN), "a time of day in a zone cannot be sent"),
        (Any, msgspec.msgpack.Ext(2, b""), "an extension of type 2 cannot be sent"),
        (dict[str, Any], {"a": Animal("a")}, "Animal is a class"),
        (Any, [2**16383], "an int of 2049 bytes cannot be sent: the longest that is has 2048; send bytes"),
        (dict[str, int], {"a": -(2**16384)}, "at ['a']: an int of 2049 bytes cannot be sent"),
        (Annotated[int, msgspec.Meta(multiple_of=3)], 2**64, "an int beyond 64 bits"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_would_change_is_refused(annotation: Any, value: Any, message: str) -> None:
    assert message in refused(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Sequence[int], (1, 2), [1, 2]),
        (list[Sequence[int]], [(1, 2)], [[1, 2]]),
        (Mapping[str, int], OrderedDict(a=1), {"a": 1}),
        (dict[str, int], OrderedDict(a=1), {"a": 1}),
        (list[dict[str, int]], [defaultdict(int, a=1)], [{"a": 1}]),
        (Sequence[dt.datetime], (dt.datetime(2020, 1, 1, tzinfo=EAST),), [dt.datetime(2020, 1, 1, tzinfo=EAST)]),
        (float, 3, 3.0),
        (float, 2**60, float(2**60)),
        (int, Level.LOW, 1),
    ],
    ids=str,
)
def test_what_is_declared_is_what_arrives(annotation: Any, value: Any, expected: Any) -> None:
    for result in crossed(annotation, value):
        assert exactly(result, expected)


def test_a_type_of_which_nothing_is_lost_costs_nothing() -> None:
    for annotation in (int, str, list[int], P, dict[str, float], Sequence[P], Animal, list[str | None], Color, Cat):
        encode = echo_of(annotation).reply.coding.encode
        assert encode is None or encode is msgpack.encode or annotation in (P, Cat, Sequence[P])


def test_defaults_that_a_decoder_filled_in_travel() -> None:
    plan = echo_of(P).reply
    arrived = receive_value(plan, msgspec.msgpack.encode({"x": 1}), [])
    assert arrived == P(1, 5.0)
    assert msgspec.msgpack.decode(send_value(plan, arrived)[0]) == {"x": 1, "y": 5.0}
    nested = echo_of(dict[str, list[P]]).reply
    arrived = receive_value(nested, msgspec.msgpack.encode({"a": [{"x": 1}]}), [])
    assert msgspec.msgpack.decode(send_value(nested, arrived)[0]) == {"a": [{"x": 1, "y": 5.0}]}
    frozen = echo_of(Stamp).reply
    arrived = receive_value(frozen, msgspec.msgpack.encode({"at": "2020-01-01T00:00:00"}), [])
    assert msgspec.msgpack.decode(send_value(frozen, arrived)[0]) == {"at": "2020-01-01T00:00:00", "label": "x"}
    sparing = echo_of(Sparing).reply
    sent = msgspec.msgpack.decode(send_value(sparing, Sparing(1))[0])
    assert sent == {"kind": "sparing", "firstOne": 1, "secondOne": 5.0, "thirdOne": []}


def test_unset_fields_stay_unset() -> None:
    class Patch(msgspec.Struct, omit_defaults=True):
        a: int | msgspec.UnsetType = msgspec.UNSET
        b: Any = 3

    globals()["Patch"] = Patch
    plan = echo_of(Patch).reply
    assert msgspec.msgpack.decode(send_value(plan, Patch())[0]) == {"b": 3}
    assert receive_value(plan, *send_value(plan, Patch())).a is msgspec.UNSET


class Failed(Exception):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.when = dt.datetime(2020, 1, 1, tzinfo=EAST)
        self.pairs = [(1, 2), {3}]
        self.pet = Animal("a")


def test_what_exceptions_carry_arrives_as_it_left() -> None:
    described = describe_error(Failed((1, 2), {"a": (3,)}, Level.LOW), declared=[Failed])
    error: Any = make_error(*described, declared={"Failed": Failed})
    assert exactly(error.args, ((1, 2), {"a": (3,)}, 1))
    assert exactly(error.when, dt.datetime(2020, 1, 1, tzinfo=EAST))
    assert exactly(error.pairs, [(1, 2), {3}])
    assert error.pet == {"name": "a"}
    details = {"key": (1, uuid.UUID(int=5)), "pet": Dog("a"), "who": {Color.RED: [Sparing(1)]}}
    error = make_error(*describe_error(NotFound("x", details=details)))
    expected = {
        "key": (1, uuid.UUID(int=5)),
        "pet": {"name": "a", "breed": "?"},
        "who": {"red": [{"first_one": 1, "second_one": 5.0, "third_one": []}]},
    }
    assert exactly(error.details, expected)


def test_numpy_scalars_arrive_as_themselves_in_any() -> None:
    np = pytest.importorskip("numpy")
    for value in (np.float32(1.5), np.float64(-0.0), np.int8(-3), np.bool_(True), np.datetime64("2020-01-01", "ns")):
        for result in crossed(Any, {"a": [value, np.arange(3), (np.arange(2), value)]}):
            assert type(result["a"][0]) is type(value)
            assert result["a"][0] == value
            assert result["a"][2][0].tolist() == [0, 1]
    assert "no float equals" in refused(float, np.longdouble(1) / 3)


@given(st.binary(max_size=30), st.sampled_from([4, 5, 6, 7]))
@settings(max_examples=400)
def test_damaged_extensions_are_refused_in_one_line(data: bytes, code: int) -> None:
    plan = echo_of(Any).reply
    for body in (
        data,
        msgspec.msgpack.encode(["datetime", [data.hex(), 0, None]]),
        msgspec.msgpack.encode(["uuid", data]),
    ):
        message = ""
        try:
            receive_value(plan, msgspec.msgpack.encode(msgspec.msgpack.Ext(code, body)), [])
        except RpcError as error:
            message = error.message
        assert "\n" not in message


@pytest.mark.parametrize(
    "content",
    [
        ["datetime", ["2020-01-01T00:00:00", 0, "../../etc/passwd"]],
        ["datetime", ["2020-01-01T00:00:00", 0, "/etc/passwd"]],
        ["datetime", ["2020-01-01T00:00:00", 0, "Europe"]],
        ["datetime", ["2020-01-01T00:00:00", 0, "No/Such"]],
        ["datetime", ["2020-01-01T00:00:00", 2, None]],
        ["timedelta", [10**12, 0, 0]],
        ["uuid", b"123"],
        ["decimal", 1],
        ["numpy", ["|S0", b""]],
        ["numpy", ["<f8", b"1234567"]],
        ["numpy", ["|O", b"12345678"]],
        [["datetime"], 1],
    ],
    ids=str,
)
def test_hostile_objects_are_refused(content: Any) -> None:
    plan = echo_of(Any).reply
    body = msgspec.msgpack.encode(msgspec.msgpack.Ext(7, msgspec.msgpack.encode(content)))
    with pytest.raises(RpcError, match="malformed value of extension type 7"):
        receive_value(plan, body, [])


def test_no_name_finds_a_type_that_is_not_listed() -> None:
    body = msgspec.msgpack.encode(msgspec.msgpack.Ext(7, msgspec.msgpack.encode(["builtins.eval", "1"])))
    with pytest.raises(RpcError, match=r"a value of the type 'builtins\.eval', which its receiver does not know"):
        receive_value(echo_of(Any).reply, body, [])


def test_values_nested_too_deeply_are_refused() -> None:
    body = b"\x90"
    for _ in range(5000):
        body = b"\x91\xc9" + len(body).to_bytes(4, "big") + b"\x04" + body
    for hostile in (body, b"\x91" * 100_000 + b"\xc0", b"\x81\x00" * 100_000 + b"\xc0"):
        with pytest.raises(RpcError, match="nested too deeply"):
            receive_value(echo_of(Any).reply, hostile, [])
    value: Any = ()
    for _ in range(2000):
        value = (value,)
    assert "nested too deeply" in refused(Any, value)


def test_a_lack_of_memory_is_told_as_what_it_is() -> None:
    plan = echo_of(Any)
    for error in (
        plan.arguments.coding.decode_error(MemoryError()),
        plan.arguments.coding.encode_error(MemoryError(), (1, 2)),
        plan.reply.coding.decode_error(MemoryError()),
        plan.reply.coding.encode_error(MemoryError()),
    ):
        assert isinstance(error, ResourceExhausted)
        assert "no memory" in error.message


@service
class Zoo:
    def keep(self, animal: Animal, at: dt.datetime, notes: Any = None) -> list[Any]:
        return [animal.name, at, notes]

    def visits(self, visits: list[Visit], movie: Movie, pair: tuple[int, dt.datetime]) -> dict[str, Any]:
        return {"visits": visits[0].at, "movie": movie.get("at"), "pair": pair[1]}


def test_what_would_be_lost_names_the_parameter() -> None:
    zoo = Loopback(Zoo(), Zoo)
    with pytest.raises(
        InvalidArgument, match=r"^Zoo.keep\(\): argument 'animal' must be Animal, got tests.Dog, a subclass"
    ):
        zoo.keep(Dog("a"), dt.datetime.min)
    with pytest.raises(InvalidArgument, match=r"^Zoo.keep\(\): argument 'notes' .*Color"):
        zoo.keep(Animal("a"), dt.datetime.min, [Color.RED])
    with pytest.raises(
        InvalidArgument, match=r"^Zoo.visits\(\): argument 'movie' cannot be sent: Movie has no key 'year'"
    ):
        zoo.visits([], {"year": 1}, (1, dt.datetime.min))
