"""What an object held is what arrives, whatever its class does when one is constructed; what it refuses is refused."""

from __future__ import annotations

import asyncio
import enum
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pytest
from typing_extensions import NotRequired, Required

import nearcall
import nearcall.aio

from .conftest import TRANSPORTS

T = TypeVar("T")


@dataclass
class Scaled:
    """Scales, derives and normalises."""

    value: int
    derived: int = field(init=False)
    words: list[str] = field(default_factory=list)
    limit: ClassVar[int] = 100

    def __post_init__(self) -> None:
        if not 0 <= self.value <= self.limit:
            raise ValueError(f"value must be from 0 to {self.limit}")
        self.value *= 2
        self.derived = self.value + 1
        self.words.append(f"w{len(self.words)}")


@dataclass(frozen=True, slots=True)
class Shifted:
    at: int
    _: KW_ONLY
    name: str = "x"

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", self.at + 1)


@dataclass
class Longer(Scaled):
    more: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.more += "!"


@dataclass
class Holder:
    """Runs nothing itself."""

    one: Scaled
    all: list[Scaled] = field(default_factory=list)
    named: dict[str, Longer] = field(default_factory=dict)
    maybe: Shifted | None = None


@dataclass
class Total:
    """Looks at what it holds, which must be what the sender's held."""

    parts: list[Scaled]
    total: int

    def __post_init__(self) -> None:
        if sum(part.value for part in self.parts) != self.total:
            raise ValueError("the total is wrong")
        self.parts.sort(key=lambda part: -part.value)


@dataclass
class Box(Generic[T]):
    item: T
    seen: int = 0

    def __post_init__(self) -> None:
        self.seen += 1


@dataclass
class Node:
    number: int
    below: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number += 1


class Measure(msgspec.Struct, tag=True, rename="camel", omit_defaults=True):
    first_one: int = 3
    inner_one: Shifted | None = None

    def __post_init__(self) -> None:
        if self.first_one < 0:
            raise ValueError("first_one must not be negative")
        self.first_one *= 2


class Frozen(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True, kw_only=True):
    low: int = 1
    high: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "high", self.high + 1)


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"

    @classmethod
    def _missing_(cls, value: object) -> Level:
        return cls.HIGH


class Row(TypedDict):
    scaled: Required[Scaled]
    count: NotRequired[int]


class Even(NamedTuple):
    number: int
    other: int = 2


class Doubled(Even):
    """A class of its own: its ``__new__`` must not run again."""

    __slots__ = ()

    def __new__(cls, number: int, other: int = 2) -> Doubled:
        return super().__new__(cls, number * 2, other)


class Positive:
    """A descriptor that looks at what it holds."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, instance: Any, owner: Any = None) -> int:
        return 1 if instance is None else getattr(instance, self.name)

    def __set__(self, instance: Any, value: int) -> None:
        if value <= 0:
            raise ValueError("it must be positive")
        setattr(instance, self.name, value)


class Counting(Positive):
    """A descriptor that changes what it is given."""

    def __set__(self, instance: Any, value: int) -> None:
        super().__set__(instance, value + 1)


@dataclass
class Described:
    size: int = Positive()  # type: ignore[assignment]


@dataclass
class Counted:
    size: int = Counting()  # type: ignore[assignment]


@dataclass
class Own:
    x: int

    def __init__(self, x: int) -> None:
        self.x = x
        self.y = x + 1


@dataclass
class Derived:
    x: int

    def __post_init__(self) -> None:
        self.area = self.x * self.x


@dataclass
class Computed:
    x: int

    def __post_init__(self) -> None:
        self.x += 1

    @functools.cached_property
    def area(self) -> int:
        return self.x * self.x


Small = NewType("Small", Annotated[int, msgspec.Meta(le=10)])  # type: ignore[valid-newtype]
Few = NewType("Few", Annotated[list[Scaled], msgspec.Meta(max_length=2)])  # type: ignore[valid-newtype]


@dataclass
class Limited:
    small: Small
    few: Few
    level: Level = Level.LOW
    kind: Literal["a", "b"] = "a"
    last: Final[Scaled | None] = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        self.small = Small(self.small - 1)


@nearcall.service
class Keeper:
    def limited(self, value: Limited) -> Limited:
        return value

    def scaled(self, value: Scaled) -> Scaled:
        return value

    def longer(self, value: Longer) -> Longer:
        return value

    def holder(self, value: Holder) -> Holder:
        return value

    def total(self, value: Total) -> Total:
        return value

    def box(self, value: Box[Scaled]) -> Box[Scaled]:
        return value

    def node(self, value: Node) -> Node:
        return value

    def measures(self, value: list[Measure | Frozen]) -> list[Measure | Frozen]:
        return value

    def row(self, value: Row) -> Row:
        return value

    def doubled(self, value: Doubled) -> Doubled:
        return value

    def described(self, value: Described) -> Described:
        return value

    def counted(self, value: Counted) -> Counted:
        return value

    def own(self, value: Own) -> Own:
        return value

    def derived(self, value: Derived) -> Derived:
        return value

    def computed(self, value: Computed) -> Computed:
        return value

    def each(self, values: Iterator[Scaled]) -> Iterator[Scaled]:
        yield from values

    def two(self, first: Scaled, second: Scaled, third: int = 1) -> list[Scaled]:
        return [second, first]

    def wrong(self) -> Derived:
        return Derived(2)


def changed(value: Any, /, **attributes: Any) -> Any:
    for name, each in attributes.items():
        setattr(value, name, each)
    return value


SCALED = changed(Scaled(3, ["b", "a"]), derived=77)

VALUES: list[tuple[str, Any]] = [
    ("scaled", SCALED),
    ("longer", Longer(4, ["c"], "m")),
    ("holder", Holder(SCALED, [SCALED, Scaled(0)], {"a": Longer(1)}, Shifted(5, name="y"))),
    ("holder", Holder(SCALED)),
    ("total", Total([changed(Scaled(1), value=1), changed(Scaled(2), value=2)], 3)),
    ("box", Box(SCALED, 5)),
    ("node", Node(1, [Node(2), Node(3, [Node(4)])])),
    ("measures", [Measure(1, Shifted(2)), Frozen(high=4), Measure(3), Frozen(low=7, high=8)]),
    ("row", {"scaled": SCALED, "count": 4}),
    ("row", {"scaled": Scaled(1)}),
    ("doubled", Doubled(4)),
    ("described", Described(4)),
    ("limited", Limited(Small(8), Few([SCALED, SCALED]), Level.HIGH, "b", SCALED)),
    ("computed", Computed(4)),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("limited", Limited(Small(12), Few([])), "<= 10"),
    ("limited", Limited(Small(1), Few([SCALED] * 3)), "2"),
    ("scaled", changed(Scaled(3), value=-1), "value must be from 0 to 100"),
    ("holder", Holder(SCALED, [SCALED, changed(Scaled(1), value=101)]), "value must be from 0 to 100"),
    ("total", changed(Total([], 0), total=4), "the total is wrong"),
    ("measures", [Measure(), changed(Measure(), first_one=-1)], "first_one must not be negative"),
    ("described", changed(Described(4), _size=-4), "it must be positive"),
    ("counted", Counted(4), "field 'size' of Counted would be 6: its descriptor changes 5"),
    ("own", Own(4), "Own holds 'y', which is no field and would be lost: make it one"),
    ("derived", Derived(4), "Derived holds 'area', which is no field and would be lost: make it one"),
]
ROADS: dict[str, Callable[[str, Path], str]] = {
    **TRANSPORTS,
    "grpc": lambda name, directory: f"grpc+unix://{directory}/{name}.grpc",
    "http": lambda name, directory: f"http+unix://{directory}/{name}.http",
}


def held(value: Any) -> Any:
    """Everything that a value holds, field by field, with the classes."""
    if hasattr(value, "__dataclass_fields__"):
        return type(value), [(each.name, held(getattr(value, each.name))) for each in fields(value)]
    if isinstance(value, msgspec.Struct):
        return type(value), [(name, held(getattr(value, name))) for name in value.__struct_fields__]
    if isinstance(value, (list, tuple)):
        return type(value), [held(each) for each in value]
    if isinstance(value, dict):
        return type(value), [(key, held(each)) for key, each in value.items()]
    return type(value), value


@pytest.fixture(params=ROADS)
def keeper_url(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> Iterator[str]:
    with nearcall.Server(Keeper(), ROADS[request.param](f"k{key}", runtime_dir)) as server:
        yield server.urls[0]


def test_objects_arrive_as_they_left(keeper_url: str) -> None:
    with nearcall.connect(keeper_url, Keeper) as keeper:
        for method, value in VALUES:
            before = held(value)
            assert held(getattr(keeper, method)(value)) == before, method
            assert held(getattr(keeper, method)(value=value)) == before, method
            assert held(value) == before, method  # the sender's own is not touched
        arrived = keeper.two(SCALED, second=Scaled(1))
        assert held(arrived) == held([Scaled(1), SCALED])
        assert held(list(keeper.each(iter([SCALED, Scaled(5)])))) == held([SCALED, Scaled(5)])


def test_in_an_event_loop_as_well(keeper_url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(keeper_url, Keeper) as keeper:
            client: Any = keeper
            for method, value in VALUES:
                assert held(await getattr(client, method)(value)) == held(value), method
            assert held([each async for each in client.each([SCALED])]) == held([SCALED])

    asyncio.run(main())


def test_what_a_class_refuses_is_refused(keeper_url: str) -> None:
    with nearcall.connect(keeper_url, Keeper) as keeper:
        for method, value, why in REFUSED:
            with pytest.raises(nearcall.InvalidArgument) as caught:
                getattr(keeper, method)(value)
            assert why in str(caught.value), method
        with pytest.raises(nearcall.Internal, match="Derived holds 'area'"):
            keeper.wrong()
        with pytest.raises(nearcall.InvalidArgument, match="value must be from 0 to 100"):
            list(keeper.each(iter([SCALED, changed(Scaled(1), value=-5)])))
        assert held(keeper.scaled(SCALED)) == held(SCALED)


def test_what_is_computed_when_asked_for_is_no_loss(keeper_url: str) -> None:
    value = Computed(4)
    assert value.area == 25
    with nearcall.connect(keeper_url, Keeper) as keeper:
        assert keeper.computed(value).area == 25


def test_no_code_of_a_class_sees_the_object_that_arrives(new_url: str) -> None:
    seen: list[Any] = []

    @dataclass
    class Watching:
        x: int
        inner: list[int]

        def __post_init__(self) -> None:
            seen.append(self)
            self.inner.clear()

    class Service:
        def echo(self, value: Any) -> Any:
            return value

    Service.echo.__annotations__ = {"value": Watching, "return": Watching}
    service: Any = nearcall.service(Service)
    with nearcall.Server(service(), new_url) as server, nearcall.connect(server.urls[0], service) as client:
        sent = Watching(1, [])
        sent.inner.append(3)
        arrived = client.echo(sent)
    assert (arrived.x, arrived.inner) == (1, [3])
    assert len(seen) == 3  # the first construction, and one look at each receiver
    assert all(each is not arrived for each in seen)


@nearcall.service
class Listener:
    def heard(self) -> int:
        return 7


@dataclass
class Subscription:
    listener: Listener
    count: int

    def __post_init__(self) -> None:
        self.count += 1


@nearcall.service
class Club:
    def join(self, subscription: Subscription) -> tuple[int, int]:
        return subscription.listener.heard(), subscription.count


def test_a_reference_in_such_an_object_is_one(new_url: str) -> None:
    with nearcall.Server(Club(), new_url) as server, nearcall.connect(server.urls[0], Club) as club:
        for _ in range(3):
            assert club.join(Subscription(Listener(), 4)) == (7, 5)


def test_arrays_in_such_an_object(new_url: str) -> None:
    numpy: Any = pytest.importorskip("numpy")

    @dataclass
    class Samples:
        data: Any
        total: float = 0.0

        def __post_init__(self) -> None:
            self.total += float(self.data.sum())

    class Service:
        def echo(self, value: Any) -> Any:
            return value

    Samples.__annotations__ = {"data": numpy.ndarray, "total": float}
    Service.echo.__annotations__ = {"value": Samples, "return": Samples}
    service: Any = nearcall.service(Service)
    with nearcall.Server(service(), new_url) as server, nearcall.connect(server.urls[0], service) as client:
        arrived = client.echo(Samples(numpy.arange(5.0)))
    assert arrived.total == 10.0
    assert arrived.data.tolist() == [0, 1, 2, 3, 4]


def test_a_named_tuple_cannot_hold_such_an_object() -> None:
    class Pair(NamedTuple):
        left: Scaled
        right: int

    class Service:
        def echo(self, value: Any) -> None: ...

    Service.echo.__annotations__ = {"value": Pair, "return": None}
    with pytest.raises(TypeError, match=r"Pair.left has a class that checks its objects .*make Pair a dataclass"):
        nearcall.Server(nearcall.service(Service)(), "inproc://never")


def test_attrs(new_url: str) -> None:
    attrs: Any = pytest.importorskip("attrs")

    @attrs.define
    class Part:
        size: int = attrs.field(validator=attrs.validators.gt(0))
        _private: int = 5

        def __attrs_post_init__(self) -> None:
            self._private += self.size

    @attrs.define(slots=False)
    class Whole:
        parts: list[Part] = attrs.field(factory=list)
        twice: int = attrs.field(default=1, converter=lambda value: value * 2)

    class Service:
        def echo(self, value: Any) -> Any:
            return value

    Whole.__annotations__["parts"] = list[Part]
    Part.__annotations__.update(size=int, _private=int)
    Whole.__annotations__["twice"] = int
    Service.echo.__annotations__ = {"value": Whole, "return": Whole}
    service: Any = nearcall.service(Service)
    with nearcall.Server(service(), new_url) as server, nearcall.connect(server.urls[0], service) as client:
        sent = Whole([Part(1, 2), Part(3)], 4)
        arrived = client.echo(sent)
        assert arrived == sent
        assert [part._private for part in arrived.parts] == [3, 8]
        object.__setattr__(sent.parts[1], "size", 0)
        with attrs.validators.disabled():
            sent.parts[1].size = 0
        with pytest.raises(nearcall.InvalidArgument, match=r"'size' must be > 0"):
            client.echo(sent)


def test_dataclasses_of_pydantic(keeper_url: str) -> None:
    pydantic: Any = pytest.importorskip("pydantic")

    @functools.partial(pydantic.dataclasses.dataclass)
    class Order:
        count: int = pydantic.Field(gt=0)
        total: int = pydantic.Field(default=3, alias="sum")

        def __post_init__(self) -> None:
            self.total += 1

    class Service:
        def echo(self, value: Any) -> Any:
            return value

    Service.echo.__annotations__ = {"value": Order, "return": Order}
    service: Any = nearcall.service(Service)
    scheme = keeper_url.partition(":")[0]
    where = f"{scheme}://127.0.0.1:0" if scheme in ("tcp", "tls") else f"{keeper_url}2"
    with nearcall.Server(service(), where) as server, nearcall.connect(server.urls[0], service) as client:
        sent = Order(count=1, sum=9)
        assert client.echo(sent) == sent
        sent.count = -1
        with pytest.raises(nearcall.InvalidArgument, match="Input should be greater than 0"):
            client.echo(sent)


def test_a_subclass_of_a_plain_type_must_equal_it(new_url: str) -> None:
    numpy: Any = pytest.importorskip("numpy")
    import datetime
    from fractions import Fraction

    @nearcall.service
    class Plain:
        def spans(self, values: list[datetime.timedelta]) -> list[datetime.timedelta]:
            return values

        def floats(self, values: list[float]) -> list[float]:
            return values

        def any(self, value: Any) -> Any:
            return value

    refused = [
        ("floats", [Fraction(1, 3)], "no float equals Fraction"),
        ("any", numpy.rec.array([1, 2]), "numpy.recarray would arrive as ndarray"),
    ]
    if sys.version_info >= (3, 11):
        pandas: Any = pytest.importorskip("pandas")
        refused.append(("spans", [pandas.Timedelta(5)], "a pandas.Timedelta with nanoseconds would lose them"))
    with nearcall.Server(Plain(), new_url) as server, nearcall.connect(server.urls[0], Plain) as client:
        assert client.floats([Fraction(1, 2)]) == [0.5]
        for method, value, why in refused:
            with pytest.raises(nearcall.InvalidArgument, match=why):
                getattr(client, method)(value)
