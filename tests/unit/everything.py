"""A class with a field of every type, its values, and one whose messages need nothing to be there."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from hypothesis import strategies as st
from typing_extensions import NotRequired, TypedDict

from nearcall import field

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


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ints = st.one_of(st.integers(-3, 200), st.integers(-(2**63), 2**63 - 1))
floats = st.floats(allow_nan=False)
# In JSON, what has no declared type cannot be infinite.
finite = st.floats(allow_nan=False, allow_infinity=False)
trees = st.recursive(
    st.builds(Tree, texts),
    lambda inner: st.builds(Tree, texts, st.lists(inner, max_size=3), st.none() | inner),
    max_leaves=6,
)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts | finite.filter(lambda value: value % 1 != 0),
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


def plain(message: Any) -> Plain:
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
        plain(message.inner) if message.HasField("inner") else None,
    )


def same(one: Any, other: Any) -> bool:
    """Equal, where NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, Plain) and isinstance(other, Plain):
        return all(same(getattr(one, name), getattr(other, name)) for name in Plain.__struct_fields__)
    return bool(one == other)
