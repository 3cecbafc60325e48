"""Values that go through Google's Protobuf and come back, and bytes that both of us read."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typing_extensions import NotRequired, TypedDict

from nearcall import field
from nearcall.codec.protobuf.errors import CodingError

from .protobuf_bytes import varint
from .protoc import Peer

UTC = datetime.timezone.utc


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = -1
    NONE = 0
    HIGH = 2**31 - 1


class Pair(NamedTuple):
    first: int
    second: str = "two"


class Options(TypedDict):
    name: str
    size: NotRequired[int]
    tags: NotRequired[list[str]]


class Circle(msgspec.Struct, tag=True, frozen=True):
    radius: float


class Square(msgspec.Struct, tag=True, kw_only=True, rename="camel"):
    side_length: float
    label_text: str | None = None


@dataclasses.dataclass
class Tree:
    name: str = ""
    children: list[Tree] = dataclasses.field(default_factory=list)
    parent: Tree | None = None


@dataclasses.dataclass
class Everything:
    flag: bool
    count: int
    ratio: float
    text: str
    data: bytes
    color: Color
    level: Level
    when: datetime.datetime
    took: datetime.timedelta
    day: datetime.date
    number: decimal.Decimal
    key: uuid.UUID
    maybe: int | None
    ints: list[int]
    floats: list[float]
    flags: tuple[bool, ...]
    texts: list[str]
    levels: list[Level]
    names: set[str]
    nested: list[list[int]]
    holes: list[int | None]
    table: dict[str, float]
    by_number: dict[int, list[str]]
    either: int | str | Circle | Square | list[int] | None
    pair: Pair
    fixed: tuple[int, str, float | None]
    options: Options
    tree: Tree
    small: Annotated[int, field(40, type="sint32")]
    single: Annotated[float, field(41, type="float")]
    unsigned: Annotated[int, field(1000, type="fixed64")]
    word: Literal["a", "b"]
    optional_list: list[int] | None = None
    default: int = 7
    anything: Any = None


PEER = Peer(Everything)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ints = st.one_of(st.integers(-3, 200), st.integers(-(2**63), 2**63 - 1))
floats = st.floats(allow_nan=False)
trees = st.recursive(
    st.builds(Tree, texts),
    lambda inner: st.builds(Tree, texts, st.lists(inner, max_size=3), st.none() | inner),
    max_leaves=6,
)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts | floats.filter(lambda value: value % 1 != 0),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
options = st.fixed_dictionaries({"name": texts}, optional={"size": ints, "tags": st.lists(texts, max_size=2)})
either = st.one_of(
    st.none(),
    ints,
    texts,
    st.builds(Circle, floats),
    st.lists(ints, max_size=3),
    st.builds(Square, side_length=floats, label_text=st.none() | texts),
)
everything = st.builds(
    Everything,
    flag=st.booleans(),
    count=ints,
    ratio=floats,
    text=texts,
    data=st.binary(max_size=300),
    color=st.sampled_from(Color),
    level=st.sampled_from(Level),
    when=st.datetimes(timezones=st.just(UTC)),
    took=st.timedeltas(datetime.timedelta(days=-3_000_000), datetime.timedelta(days=3_000_000)),
    day=st.dates(),
    number=st.decimals(allow_nan=False),
    key=st.uuids(),
    maybe=st.none() | ints,
    ints=st.lists(ints, max_size=4),
    floats=st.lists(floats, max_size=4),
    flags=st.lists(st.booleans(), max_size=4).map(tuple),
    texts=st.lists(texts, max_size=3),
    levels=st.lists(st.sampled_from(Level), max_size=3),
    names=st.sets(texts, max_size=3),
    nested=st.lists(st.lists(ints, max_size=3), max_size=3),
    holes=st.lists(st.none() | ints, max_size=3),
    table=st.dictionaries(texts, floats, max_size=3),
    by_number=st.dictionaries(ints, st.lists(texts, max_size=2), max_size=3),
    either=either,
    pair=st.builds(Pair, ints, texts),
    fixed=st.tuples(ints, texts, st.none() | floats),
    options=options,
    tree=trees,
    small=st.integers(-(2**31), 2**31 - 1),
    single=st.floats(width=32, allow_nan=False),
    unsigned=st.integers(0, 2**64 - 1),
    word=st.sampled_from(["a", "b"]),
    optional_list=st.none() | st.lists(ints, max_size=2),
    default=ints,
    anything=json,
)


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(everything)
def test_values_come_back_from_google_as_they_left(value: Everything) -> None:
    back = PEER.through(value)
    assert back == value
    assert type(back.fixed) is tuple
    assert type(back.pair) is Pair
    assert type(back.names) is set
    # What they read is what they would have written: the same again, whatever the order of maps.
    theirs = PEER.message.FromString(PEER.encode(value))
    again = PEER.message.FromString(PEER.encode(PEER.decode(theirs.SerializeToString())))
    for message in (theirs, again):
        message.ClearField("names")  # two equal sets may have two orders
    assert again == theirs


class Plain(msgspec.Struct):
    """No field that must be there, so that any message of Google's is one of ours."""

    i: int
    s: Annotated[int, field(type="sint64")]
    f: Annotated[int, field(type="fixed32")]
    d: float
    b: bytes
    flag: bool
    opt: int | None
    ints: list[int]
    blobs: list[bytes]
    table: dict[int, bytes]
    inner: Plain | None = None


PLAIN = Peer(Plain)


def _plain(message: Any) -> Plain:
    return Plain(
        message.i,
        message.s,
        message.f,
        message.d,
        message.b,
        message.flag,
        message.opt if message.HasField("opt") else None,
        list(message.ints),
        list(message.blobs),
        dict(message.table),
        _plain(message.inner) if message.HasField("inner") else None,
    )


def _tag(number: int, wire: int) -> bytes:
    return bytes([number << 3 | wire])


def _len(number: int, body: bytes) -> bytes:
    return _tag(number, 2) + varint(len(body)) + body


varints = st.integers(0, 2**64 - 1).map(varint)
entries = st.one_of(varints.map(lambda key: _tag(1, 0) + key), st.binary(max_size=6).map(lambda value: _len(2, value)))
fields = st.recursive(
    st.one_of(
        st.tuples(st.integers(1, 15), varints).map(lambda pair: _tag(pair[0], 0) + pair[1]),
        st.tuples(st.integers(1, 15), st.binary(min_size=8, max_size=8)).map(lambda pair: _tag(pair[0], 1) + pair[1]),
        st.tuples(st.integers(1, 15), st.binary(min_size=4, max_size=4)).map(lambda pair: _tag(pair[0], 5) + pair[1]),
        st.tuples(st.sampled_from([*range(1, 10), *range(11, 16)]), st.binary(max_size=12)).map(
            lambda pair: _len(*pair)
        ),
        st.lists(varints, max_size=4).map(lambda each: _len(8, b"".join(each))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda each: _len(11, b"".join(each))),
        # Google's own libraries do not agree on entries of maps that hold unknown fields.
        st.lists(entries, max_size=4).map(lambda each: _len(10, b"".join(each))),
        st.lists(inner, max_size=3).map(lambda each: _tag(3, 3) + b"".join(each) + _tag(3, 4)),
        st.lists(inner, max_size=5).map(b"".join),
    ),
    max_leaves=12,
)


def _same(one: Any, other: Any) -> bool:
    """Equal, where NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Plain) and isinstance(other, Plain):
        return all(_same(getattr(one, name), getattr(other, name)) for name in Plain.__struct_fields__)
    return bool(one == other)


@settings(max_examples=300, deadline=None)
@given(st.one_of(fields, st.binary(max_size=40)))
def test_any_bytes_are_read_as_google_reads_them(body: bytes) -> None:
    try:
        theirs = PLAIN.message.FromString(body)
    except Exception:
        with pytest.raises(CodingError):
            PLAIN.decode(body)
        return
    assert _same(PLAIN.decode(body), _plain(theirs))


def test_arrays_go_through_google() -> None:
    peer = Peer(np.ndarray)
    for array in (np.arange(6.0).reshape(2, 3), np.array(3), np.zeros((0, 4), "<i2"), np.asfortranarray(np.eye(3))):
        back = peer.through(array)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert (back == array).all()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 0),
        (list[int], []),
        (Any, {"a": [1, None]}),
        (int | None, None),
        (int | None, 0),
        (int | str, ""),
        (list[Any], [None, 1, "x"]),
        (dict[str, dict[str, int]], {"": {"x": 0}}),
        (bytearray, bytearray(b"x")),
        (tuple[()], ()),
        (list[None], [None, None]),
        (datetime.time, datetime.time(1, 2, 3, 4)),
        (frozenset[bytes], frozenset({b"", b"x"})),
        (Tree, Tree("a", [Tree("b")])),
    ],
)
def test_single_results_go_through_google(annotation: Any, value: Any) -> None:
    back = Peer(annotation).through(value)
    assert back == value
    assert type(back) is type(value)


@dataclasses.dataclass
class Film:
    frames: list[bytes]
    poster: bytes
    next: Film | None = None
    note: str = ""
    raw: bytearray = dataclasses.field(default_factory=bytearray)


def test_long_bytes_go_between_what_is_written() -> None:
    """They are lent, not copied, where they lie in the message itself; within another one they are copied."""
    long = bytes(range(256)) * 100
    inner = Film([long, b"", long[:4095], long[:4096]], long, note="inner", raw=bytearray(long))
    film = Film([long, b"short", long, b"", long[1:]], b"", inner, "x" * 5000, bytearray(long[2:]))
    peer = Peer(Film)
    for value in (inner, film, Film([], long), Film([long] * 50, b"x")):
        assert peer.through(value) == value
