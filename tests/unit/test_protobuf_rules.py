"""Which .proto a service becomes, and what has none."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, NewType, TypeVar

import msgspec
import pytest

import nearcall
from nearcall.codec.protobuf.errors import CodingError
from nearcall.codec.protobuf.service import Protobuf, ServiceMessages
from nearcall.codec.protobuf.text import proto_text
from nearcall.service.making import in_codec
from nearcall.service.service import plan_of

from .echo import echo_types

GOLDEN = Path(__file__).parent / "golden"


class Color(enum.Enum):
    """What a shop can paint."""

    RED = "red"
    DARK_BLUE = "blue"


class Level(enum.IntEnum):
    LOW = -1
    NONE = 0


@dataclasses.dataclass
class Point:
    """A point in the plane."""

    x: float
    y: float = 0.0
    label: Annotated[str | None, nearcall.field(7)] = None


class Order(msgspec.Struct, rename="camel"):
    placed_at: datetime.datetime
    took: datetime.timedelta
    price: decimal.Decimal
    color: Color
    level: Level
    points: list[Point]
    matrix: list[list[float]]
    holes: list[int | None]
    stock: dict[str, list[int]]
    either: int | str | Point
    rest: Any
    amount: Annotated[int, nearcall.field(20, type="uint32")]


@nearcall.service(name="shop.v1.Shop")
class Shop:
    """Sells things."""

    def place(self, order: Order) -> Point:
        """Places an order.

        It takes a while.
        """

    def find_all(self, near: Point, limit: int = 10, colors: list[Color] = []) -> Iterator[Order]: ...  # noqa: B006
    def add_all(self, orders: Iterator[Order]) -> int: ...
    def priced(self, orders: Iterator[Order], rate: float) -> Iterator[decimal.Decimal]: ...
    def names(self) -> list[str]: ...
    @nearcall.oneway
    def log(self, line: str) -> None: ...


def messages(cls: type) -> ServiceMessages:
    plan = plan_of(cls)
    return ServiceMessages(plan.name, [method.types for method in plan.methods if method.types], plan.doc)


def test_a_service_becomes_the_proto_that_it_always_became() -> None:
    from .protoc import compiled

    text = proto_text(messages(Shop))
    golden = GOLDEN / "shop.proto"
    assert text == golden.read_text(encoding="utf-8"), "a change of this file breaks peers that were compiled before"
    compiled(text)


def test_paths_are_those_that_protoc_makes() -> None:
    plans = in_codec(plan_of(Shop), Protobuf()).methods
    assert [plan.path for plan in plans][:2] == ["/shop.v1.Shop/Place", "/shop.v1.Shop/FindAll"]
    assert [plan.kind for plan in plans][-1] == "unary", "a one-way call is answered with nothing"


def test_a_method_of_the_name_of_a_message_hides_nothing() -> None:
    from .protoc import compiled

    @nearcall.service(name="a.b.Points")
    class Points:
        def point(self, p: Point) -> Point: ...

    compiled(proto_text(messages(Points)))


@dataclasses.dataclass
class Clash:
    a: int
    b: Annotated[int, nearcall.field(1)]


Umlaut = dataclasses.make_dataclass("Umlaut", [("größe", int)])


class Flags(enum.Flag):
    A = 1
    B = 2


class Large(enum.IntEnum):
    A = 1
    B = 2**31


@nearcall.service
class Listener:
    def said(self, text: str) -> None: ...


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (Clash, "'a' and 'b' of Clash both have the number 1: pin one"),
        (Umlaut, "ASCII letters"),
        (dict[float, int], "the keys of a dict are str, int or bool"),
        (Annotated[int, nearcall.field(type="float")], "an int cannot be a float"),
        (Annotated[str, nearcall.field(type="int32")], "is for an int or a float"),
        (Flags, "cannot be combined"),
        (Large, "not all ints of 32 bits"),
        (Listener, "parameter 'value' is a reference to a Listener, and gRPC has none"),
        (list[Listener], "parameter 'value' is a reference to a Listener"),
        (Annotated[datetime.datetime, msgspec.Meta(tz=False)], "no point in time"),
    ],
)
def test_what_has_no_counterpart_is_refused_in_one_line_that_names_it(annotation: Any, says: str) -> None:
    class Service:
        def take(self, value: annotation, more: int) -> None: ...

    Service.take.__annotations__["value"] = annotation
    with pytest.raises(TypeError, match=r"Service\.take\(\) cannot be served over gRPC and HTTP") as caught:
        messages(nearcall.service(Service))
    text = str(caught.value)
    assert says in text
    assert "parameter 'value'" in text
    assert "\n" not in text


Int32 = Annotated[int, nearcall.field(type="int32")]
Whole = NewType("Whole", Int32)  # type: ignore[valid-newtype]
T = TypeVar("T")


@dataclasses.dataclass
class Box(Generic[T]):
    """A class whose fields are of the type of its argument."""

    one: T
    more: list[T]
    maybe: T | None = None


class Numbers(msgspec.Struct):
    plain: Whole
    maybe: Int32 | None
    kept: Int32 | None = 5
    pinned: Annotated[Int32, nearcall.field(19)] = 0
    outer: Annotated[Int32, nearcall.field(type="uint32")] = 0
    inner: Annotated[int, nearcall.field(18, type="sint32")] | None = None
    items: list[Int32 | None] = []
    table: dict[Int32, Int32 | None] = {}
    pairs: list[tuple[Int32, str]] = []
    nested: list[list[Int32]] = []
    either: Int32 | str | None = None


@nearcall.service
class Counts:
    def take(self, numbers: Numbers, box: Box[Int32]) -> Int32 | None: ...
    def stream(self, items: Iterator[Int32]) -> Iterator[Int32 | None]: ...


def test_the_type_of_a_number_counts_wherever_it_is_written() -> None:
    text = proto_text(messages(Counts))
    assert "int64" not in text
    fields = {line.strip() for line in text.splitlines()}
    assert fields >= {
        "int32 plain = 1;",
        "optional int32 maybe = 2;",
        "OptionalInt32 kept = 3;",
        "optional int32 pinned = 19;",
        "optional uint32 outer = 5;",
        "optional sint32 inner = 18;",
        "repeated OptionalInt32 items = 7;",
        "map<int32, OptionalInt32> table = 8;",
        "repeated Int32StringTuple pairs = 9;",
        "repeated Int32List nested = 10;",
        "Int32OrString either = 11;",
        "int32 one = 1;",
        "repeated int32 more = 2;",
        "optional int32 maybe = 3;",
    }, text


@pytest.mark.parametrize(
    ("annotation", "make"),
    [
        (list[Int32 | None], lambda number: [number, None]),
        (dict[str, list[Int32]], lambda number: {"a": [number]}),
        (Box[Int32], lambda number: Box(1, [2], number)),
        (Int32 | str, lambda number: number),
    ],
)
def test_a_number_within_another_type_has_its_own_range(annotation: Any, make: Any) -> None:
    codec: Any = ServiceMessages("test.Echo", [echo_types(annotation)]).codings()["echo"].reply.encode
    value = make(2**31 - 1)
    assert codec.decode(codec.encode(value), 100) == value
    with pytest.raises(CodingError, match="an int that is not within -2147483648 to 2147483647"):
        codec.encode(make(2**31))


@dataclasses.dataclass
class Pinned:
    within: Annotated[list[Annotated[int, nearcall.field(3)]], nearcall.field(4)]


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (
            Annotated[list[int], nearcall.field(type="int32")],
            "not for list[int]: write it around the number, as Annotated[int, nearcall.field(type='int32')]",
        ),
        (Annotated[dict[str, float] | None, nearcall.field(type="float")], "as Annotated[float, nearcall.field(type="),
        (Annotated[list[int], nearcall.field(implicit=True)], "implicit=True is for fields of a single value"),
        (
            list[Annotated[int, nearcall.field(3)]],
            "nearcall.field(3, type=None) is for a field, and int is only a part",
        ),
        (dict[str, Annotated[int, nearcall.field(json_name="@a")]], "is for a field, and int is only a part of one"),
        (dict[Annotated[str, nearcall.field(2)], int], "is for a field, and str is only a part of one"),
        (int | Annotated[str, nearcall.field(json_name="@a")], "is for a field, and str is only a part of one"),
        (Pinned, "Pinned.within: nearcall.field(3, type=None) is for a field"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(annotation: Any, says: str) -> None:
    with pytest.raises(TypeError, match=r"Echo\.echo\(\) cannot be served over gRPC") as caught:
        ServiceMessages("test.Echo", [echo_types(annotation)])
    assert says in str(caught.value)


def test_a_message_by_itself_has_no_number() -> None:
    with pytest.raises(TypeError, match=r"nearcall\.field\(3, type=None\) is for a field, and Point is a message"):
        ServiceMessages("test.Echo", [echo_types(Annotated[Point, nearcall.field(3)])])


def test_two_types_of_one_name_are_refused() -> None:
    other = dataclasses.make_dataclass("Point", [("z", int)])

    class Service:
        def take(self, one: Point, two: int) -> None: ...
        def give(self) -> list[Point]: ...

    Service.give.__annotations__["return"] = list[other]  # type: ignore[valid-type]
    with pytest.raises(TypeError, match="two types that are called Point"):
        messages(nearcall.service(Service))


def test_two_methods_of_one_name_are_refused() -> None:
    @nearcall.service
    class Twice:
        def get_it(self) -> int: ...
        def getIt(self) -> int: ...

    with pytest.raises(TypeError, match=r"Twice\.getIt\(\) and get_it\(\) are both called GetIt"):
        messages(Twice)


def test_parameters_that_protoc_would_refuse_are_refused() -> None:
    class Service:
        def take(self, a_b: int, aB: int) -> None: ...

    with pytest.raises(TypeError, match=r"fields 'a_b' and 'aB' of the arguments of take\(\) have one name in JSON"):
        messages(nearcall.service(Service))

    class Other:
        def take(self, größe: int) -> None: ...  # noqa: PLC2401 - which Python allows

    with pytest.raises(TypeError, match=r"a parameter of take\(\) is called 'größe', and Protobuf allows ASCII"):
        messages(nearcall.service(Other))


@pytest.mark.parametrize("number", [0, -1, 19_500, 1 << 29, True, "1"])
def test_numbers_that_no_field_can_have(number: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="number of a field"):
        nearcall.field(number)


def test_an_interface_decides_what_its_implementations_are_sent() -> None:
    @nearcall.service
    class Interface:
        def list_all(self, limit: int = ..., tags: list[str] = ..., near: int | None = None) -> int: ...  # type: ignore[assignment]

    class Implementation(Interface):
        def list_all(self, limit: int = 3, tags: list[str] = [], near: int | None = 4) -> int:  # noqa: B006
            return limit

    assert proto_text(messages(Implementation)) == proto_text(messages(Interface))
    (plan,) = in_codec(plan_of(Implementation), Protobuf()).methods
    # What the interface leaves open the handler says; what it promises holds.
    assert plan.arguments.coding.decode.decode(b"", 100) == (3, [], None)
