"""What the decorator accepts, what it serves, and what it says about the rest."""

from __future__ import annotations

import collections
import enum
import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NewType, Optional, Protocol, TypeVar

import msgspec
import pytest
from typing_extensions import Self

from nearcall.errors import Internal, InvalidArgument
from nearcall.service.plan import MethodPlan
from nearcall.service.service import idempotent, is_service, no_side_effects, oneway, plan_of, service

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")


def methods(cls: type) -> dict[str, MethodPlan]:
    return {method.name: method for method in plan_of(cls).methods}


@service
class Calculator:
    """Adds.

    And more.
    """

    constant = 3

    def __init__(self) -> None:
        self.calls = 0

    def add(self, a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    def total(self, xs: Iterable[int]) -> int:
        return sum(xs)

    def scale(self, xs: Iterator[float], by: float) -> Generator[float, None, None]:
        for x in xs:
            yield x * by

    async def later(self, n: int) -> int:
        return n

    async def stream(self, n: int) -> AsyncIterator[int]:
        yield n

    async def both(self, by: int, xs: AsyncIterator[int]) -> AsyncIterator[int]:
        async for x in xs:
            yield x * by

    @oneway
    def log(self, line: str) -> None: ...

    @idempotent
    @functools.lru_cache  # noqa: B019
    def cached(self, n: int) -> int:
        return n

    def _private(self, x: object) -> None: ...

    @property
    def size(self) -> int:
        return 1

    @staticmethod
    def helper(x: int) -> int:
        return x

    @classmethod
    def make(cls) -> Calculator:
        return cls()

    class Nested: ...


def test_exactly_the_public_methods_are_served_in_order() -> None:
    assert list(methods(Calculator)) == [
        "add",
        "countdown",
        "total",
        "scale",
        "later",
        "stream",
        "both",
        "log",
        "cached",
    ]


@pytest.mark.parametrize(
    ("name", "kind", "is_async", "position"),
    [
        ("add", "unary", False, -1),
        ("countdown", "server_stream", False, -1),
        ("total", "client_stream", False, 0),
        ("scale", "bidi_stream", False, 0),
        ("later", "unary", True, -1),
        ("stream", "server_stream", True, -1),
        ("both", "bidi_stream", True, 1),
        ("log", "oneway", False, -1),
        ("cached", "unary", False, -1),
    ],
)
def test_kinds_come_from_the_hints(name: str, kind: str, is_async: bool, position: int) -> None:
    plan = methods(Calculator)[name]
    assert (plan.kind, plan.handler_is_async, plan.stream_position) == (kind, is_async, position)
    assert (plan.request_item is not None) == (position >= 0)


def test_plans_say_who_they_are() -> None:
    plan = plan_of(Calculator)
    assert (plan.name, plan.doc) == ("Calculator", "Adds.\n\nAnd more.")
    add = plan.methods[0]
    assert (add.full_name, add.signature, add.doc) == (
        "Calculator.add",
        "add(a: int, b: int) -> int",
        "Adds two numbers.",
    )
    assert methods(Calculator)["cached"].idempotent
    assert plan_of(Calculator) is plan


def test_bare_methods_of_the_codec_are_handed_out() -> None:
    add = methods(Calculator)["add"]
    for function in (
        add.arguments.coding.encode,
        add.arguments.coding.decode,
        add.reply.coding.encode,
        add.reply.coding.decode,
    ):
        assert type(function).__name__ == "builtin_function_or_method"


def test_hints_may_be_aliases_and_optional() -> None:
    UserId = NewType("UserId", int)

    @service
    class Users:
        def find(self, id: UserId, name: Optional[str] = None) -> dict[str, int] | None: ...  # noqa: UP045

    find = methods(Users)["find"]
    assert find.signature == "find(id: UserId, name: str | None = ...) -> dict[str, int] | None"
    find.arguments.check_at(0, 3)
    find.arguments.check_at(1, None)
    with pytest.raises(InvalidArgument, match="argument 'id' must be UserId, got str"):
        find.arguments.check_at(0, "x")


@service
class Early:
    def get(self, key: str) -> Late: ...


def test_a_type_defined_further_down_is_found_at_first_use() -> None:
    assert methods(Early)["get"].reply.type_name == "Late"


class Vast(enum.IntEnum):
    ONE = 2**70


@dataclass
class Late:
    x: int


@service
class Typed:
    def half(self, x: Fraction) -> None: ...


def test_a_type_that_never_appears_is_named() -> None:
    with pytest.raises(TypeError, match="Typed: an annotation names 'Fraction', which does not exist; define it in"):
        plan_of(Typed)


class Unknown:
    pass


Callback = Callable[..., int]


@dataclass
class Left:
    x: int


@dataclass
class Right:
    x: int


def test_the_object_itself_may_be_called_otherwise() -> None:
    @service
    class Other:
        def plain(this, x: int) -> int: ...
        def typed(this: T, x: int) -> int: ...

    assert [method.signature for method in plan_of(Other).methods] == ["plain(x: int) -> int", "typed(x: int) -> int"]


@service
class Offered(Protocol):
    def take(self) -> int: ...


def refused(message: str) -> Callable[[Callable[..., Any]], None]:
    """Checks that a class with the method is refused with the message."""

    def check(function: Callable[..., Any]) -> None:
        cls = type("Bad", (), {"m": function})
        with pytest.raises(TypeError) as caught:
            service(cls)
        assert str(caught.value) == message
        assert not is_service(cls)

    return check


def test_what_cannot_be_served_is_refused_at_definition() -> None:
    @refused("Bad.m(): parameter 'a' has no type annotation; write one (Any takes every value)")
    def m1(self, a) -> None: ...

    @refused("Bad.m(): has no return annotation; write '-> None' if it returns nothing")
    def m2(self, a: int): ...

    @refused("Bad.m(): parameter '*args' cannot be served; list the parameters one by one")
    def m3(self, *args: int) -> None: ...

    @refused("Bad.m(): parameter '**kwargs' cannot be served; list the parameters one by one")
    def m4(self, **kwargs: int) -> None: ...

    @refused(
        "Bad.m(): parameter 'a: list[Unknown]' cannot be sent: Unknown cannot be encoded; "
        "make it a dataclass, a msgspec.Struct, a TypedDict or a NamedTuple, say as what it travels with "
        "nearcall.register_type(Unknown, ...), or make it a service if its objects shall stay where they are"
    )
    def m5(self, a: list[Unknown]) -> None: ...

    @refused(
        "Bad.m(): the result 'dict[str, Unknown]' cannot be sent: Unknown cannot be encoded; "
        "make it a dataclass, a msgspec.Struct, a TypedDict or a NamedTuple, say as what it travels with "
        "nearcall.register_type(Unknown, ...), or make it a service if its objects shall stay where they are"
    )
    def m6(self) -> dict[str, Unknown]: ...

    @refused("Bad.m(): parameters 'a' and 'b' are both streams, and a method can have one; make one a list")
    def m7(self, a: Iterator[int], b: Iterable[str]) -> None: ...

    @refused("Bad.m(): a one-way method returns nothing, not 'int'; annotate '-> None' or drop @nearcall.oneway")
    @oneway
    def m8(self) -> int: ...

    @refused("Bad.m(): a one-way method cannot take a stream; drop @nearcall.oneway")
    @oneway
    def m9(self, xs: Iterator[int]) -> None: ...

    @refused("Bad.m(): yields, so its result must be annotated '-> Iterator[int]', not '-> int'")
    def m10(self) -> int:
        yield 1

    @refused(
        "Bad.m(): is 'def' and yields, so it is no asynchronous iterator; write 'async def', or annotate it "
        "'-> Iterator[int]'"
    )
    def m25(self) -> AsyncIterator[int]:
        yield 1

    @refused("Bad.m(): parameter 'a: any' cannot be sent: any is a function; write Any, from typing")
    def m26(self, a: any) -> None: ...

    @refused("Bad.m(): the method is asynchronous, so its stream must be 'xs: AsyncIterator[int]'")
    async def m11(self, xs: Iterator[int]) -> int: ...

    @refused("Bad.m(): the method is synchronous, so its stream must be 'xs: Iterator[int]'")
    def m12(self, xs: AsyncIterator[int]) -> int: ...

    @refused("Bad.m(): the stream 'xs' cannot have a default; remove it")
    def m13(self, xs: Iterator[int] = iter(())) -> int: ...  # noqa: B008

    @refused("Bad.m(): has no self parameter; make it a method, or begin its name with an underscore")
    def m14() -> int: ...

    @refused(
        "Bad.m(): parameter 'a: list[Iterator[int]]' cannot be sent: Iterator cannot be inside another type: "
        "a stream is a whole parameter or the whole result"
    )
    def m15(self, a: list[Iterator[int]]) -> None: ...

    @refused(
        "Bad.m(): parameter 'a: object' cannot be sent: object cannot be encoded; write Any for a value of any type"
    )
    def m16(self, a: object) -> None: ...

    @refused(
        "Bad.m(): parameter 'a: Callable[..., None]' cannot be sent: a function needs the types of its parameters and "
        "its result: write Callable[[int], str], for example"
    )
    def m20(self, a: Callable[..., None]) -> None: ...

    @refused(
        "Bad.m(): parameter 'a: Offered | int' cannot be sent: tests.unit.test_service.Offered | int may not be a "
        "union: beside a service or an array only None may stand; take them as two"
    )
    def m21(self, a: Offered | int) -> None: ...

    @refused(
        "Bad.m(): parameter 'a: dict[Offered, int]' cannot be sent: Offered is a service, and a reference to one "
        "cannot be the key of a dict: make it the value"
    )
    def m22(self, a: dict[Offered, int]) -> None: ...

    @refused("Bad.m(): the result 'Self' cannot be sent: Self is not looked up; write the name of the class, in quotes")
    def m23(self) -> Self: ...

    @refused(
        "Bad.m(): parameter 'a: Vast | None' cannot be sent: the ints of an enum, a Literal or a tag are within -2**63 "
        "to 2**63 - 1, and one is not: make it a text, or shorter"
    )
    def m27(self, a: Vast | None) -> None: ...

    @refused("Bad.m(): its first parameter, 'a: int', would be the object itself; write self before it")
    def m17(a: int) -> int: ...

    @refused(
        "Bad.m(): is 'async def' and does not yield, so it is no stream; yield the items, "
        "or write 'def' if it returns an iterator or only declares an interface"
    )
    async def m18(self) -> AsyncIterator[int]: ...

    @refused("Bad.m(): yields, so its result must be annotated '-> Iterator[int]', not '-> list[int]'")
    def m19(self) -> list[int]:
        yield 1

    @refused(
        "Bad.m(): parameter 'a: list[Left] | list[Right]' cannot be sent: list[Left] and list[Right] in a union could "
        "not be told apart, since values of both are of list: take one of them"
    )
    def m24(self, a: list[Left] | list[Right]) -> None: ...

    for annotation in (slice, Callback, collections.ChainMap[int, int], int | Unknown, bytes | bytearray):
        function = eval("lambda self, a: None")
        function.__annotations__ = {"a": annotation, "return": None}
        with pytest.raises(TypeError, match=r"^Bad\.m\(\): parameter 'a: .*' cannot be sent: [^\n]*$"):
            service(type("Bad", (), {"m": function}))


def test_marks_may_be_written_with_brackets() -> None:
    @service
    class Bracketed:
        @oneway()
        def log(self, line: str) -> None: ...

        @idempotent()
        def get(self, key: str) -> str: ...

        @no_side_effects()
        def look(self, key: str) -> str: ...

    log, get, look = plan_of(Bracketed).methods
    assert log.kind == "oneway"
    assert get.idempotent
    assert not get.no_side_effects
    assert look.idempotent
    assert look.no_side_effects
    for mark in (oneway, idempotent, no_side_effects):
        with pytest.raises(TypeError, match=rf"@nearcall.{mark.__name__} decorates a method, not 3"):
            mark()(3)


def test_what_is_not_a_service_is_told_so() -> None:
    with pytest.raises(TypeError, match=r"Unknown is not a service: decorate the class with @nearcall\.service"):
        plan_of(Unknown)
    with pytest.raises(TypeError, match="Unknown has no public methods to serve"):
        service(Unknown)
    with pytest.raises(TypeError, match="decorates a class, not 3"):
        service(3)
    with pytest.raises(TypeError, match=r"decorates a class, not 'a.B'; write @nearcall.service\(name='a.B'\)"):
        service("a.B")
    for mark in (oneway, idempotent, no_side_effects):
        with pytest.raises(TypeError, match=rf"@nearcall.{mark.__name__} decorates a method, not <property .*'def'"):
            mark(property(lambda _: 1))
    with pytest.raises(ValueError, match="'a b' is not a service name"):
        service(name="a b")
    with pytest.raises(TypeError, match="name must be a str, not 5"):
        service(name=5)
    with pytest.raises(TypeError, match="errors: 3 is not an exception class"):
        service(errors=[3])
    with pytest.raises(TypeError, match=r"errors takes a list of exception classes: write errors=\[KeyError\]"):
        service(errors=KeyError)


def test_options() -> None:
    class NoMoney(Exception): ...

    @service(name="bank.v1", errors=[NoMoney])
    class Bank:
        def pay(self, amount: int) -> None: ...

    assert (plan_of(Bank).name, plan_of(Bank).errors) == ("bank.v1", (NoMoney,))
    assert plan_of(Bank).methods[0].full_name == "bank.v1.pay"


def test_nothing_is_inherited_by_accident() -> None:
    class Base:
        def inherited(self) -> int:
            return 1

    @service
    class Derived(Base):
        def own(self) -> int:
            return 2

    assert list(methods(Derived)) == ["own"]


@service
class Store(Protocol[T]):
    def get(self, key: str, default: int = 7) -> int: ...
    def items(self, start: int) -> Iterator[int]: ...
    def put(self, values: Iterator[int]) -> None: ...
    def blob(self, data: bytes) -> bytes: ...


class PlainStore(Store[int]):
    """Undecorated, with its own hints."""

    def get(self, key: str, default: int = 8, *, extra: int = 0) -> int:
        return default

    async def items(self, start):
        yield start

    def blob(self, data: memoryview) -> bytes:
        return bytes(data)

    def helper(self) -> object: ...


@service
class FullStore(PlainStore):
    """Decorated, with a method more."""

    def size(self) -> int:
        return 3


def test_an_implementation_is_served_as_its_interface() -> None:
    for cls, names in ((PlainStore, []), (FullStore, ["size"])):
        plan = plan_of(cls)
        assert plan.name == "Store"
        assert [method.name for method in plan.methods] == ["get", "items", "put", "blob", *names]
        assert {method.service for method in plan.methods} == {"Store"}
        get, items, put, blob, *_ = plan.methods
        assert get.arguments.coding.decode_named(b"\x81\xa3key\xa1a", []) == ("a", 8)
        assert get.arguments.names == ("key", "default")
        assert (items.kind, items.handler_is_async) == ("server_stream", True)
        assert (put.kind, put.handler_is_async) == ("client_stream", False)
        assert blob.arguments.coding.forms == ("memoryview",)
    assert not methods(Store)["items"].handler_is_async


def test_an_implementation_that_differs_is_refused() -> None:
    class Wider(Store[int]):
        def get(self, key: str | None, default: float = 7) -> int: ...

    assert plan_of(Wider).methods[0].signature.startswith("get(key: str | None, default: float")

    class WrongType(Store[int]):
        def get(self, key: int, default: int = 7) -> int: ...

    class WrongResult(Store[int]):
        def get(self, key: str, default: int = 7) -> str: ...

    class WrongNames(Store[int]):
        def get(self, name: str = "", default: int = 7) -> int: ...

    class WrongKind(Store[int]):
        def get(self, key: str, default: int = 7) -> Iterator[int]: ...

    class NoMethod(Store[int]):
        get = 3

    for cls, message in {
        WrongType: "WrongType.get() differs from its interface: "
        "the interface's Store.get(key: str) but WrongType's has key: int",
        WrongResult: "WrongResult.get() differs from its interface: "
        "the interface's Store.get returns int but WrongResult's returns str",
        WrongNames: "WrongNames.get(): its parameters (name, default) differ from the interface "
        "Store.get(key, default); give it the same ones in the same order",
        WrongKind: "WrongKind.get() differs from its interface: "
        "the interface's Store.get is unary but WrongKind's is a server stream",
        NoMethod: "NoMethod.get is not a method, but Store.get is",
    }.items():
        with pytest.raises(TypeError) as caught:
            plan_of(cls)
        assert str(caught.value) == message


def test_two_services_in_one_class_are_refused() -> None:
    class Both(Calculator, Store[int]): ...

    with pytest.raises(TypeError, match="Both implements Store and Calculator: write one class for each service"):
        plan_of(Both)


def test_generic_classes_and_local_names_work() -> None:
    @dataclass
    class Box(Generic[T]):
        content: T

    @service
    class Boxes:
        def open(self, box: Box[int]) -> Awaitable[int]: ...
        def list(self) -> list[int]: ...
        def more(self) -> list[str]: ...

    open_, *_ = plan_of(Boxes).methods
    assert open_.signature == "open(box: Box[int]) -> int"
    assert open_.handler_is_async
    open_.arguments.check_at(0, Box("deeper mistakes are the server's to find"))
    with pytest.raises(InvalidArgument, match=r"must be Box\[int\], got int"):
        open_.arguments.check_at(0, 3)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type aliases and type parameters came with Python 3.12")
@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_type_statements_and_type_parameters_work(future: str) -> None:
    source = """
from collections.abc import Iterator
from nearcall.service.service import service
type Ints = Iterator[int]
type Pair[T] = tuple[T, T]
type Name = str
@service
class Store[K]:
    def get(self, key: K, name: Name, pair: Pair[int]) -> Name | None: ...
    def all(self, since: int) -> Ints: ...
"""
    scope: dict[str, Any] = {"__name__": __name__}
    exec(f"{future}\n{source}", scope)
    get, every = plan_of(scope["Store"]).methods
    assert get.signature == "get(key: K, name: Name, pair: Pair[int]) -> Name | None"
    assert every.kind == "server_stream"
    assert get.arguments.coding.decode(get.arguments.coding.encode((1.5, "x", (1, 2)))[0], []) == (1.5, "x", (1, 2))
    with pytest.raises(InvalidArgument, match=r"argument 'pair' must be Pair\[int\], got int"):
        get.arguments.check_at(2, 3)
    get.arguments.check_at(0, object())


def test_annotations_need_not_be_strings() -> None:
    scope: dict[str, Any] = {"__name__": __name__, "service": service}
    source = """
class Later: ...
@service
class Plain:
    def m(self, a: int, b: "list[Later]" = []) -> "Plain | None": ...
"""
    with pytest.raises(TypeError, match=r"parameter 'b: list.Later.' cannot be sent: Later cannot be encoded"):
        exec(source, scope)


@dataclass
class Unlisted:
    count: int
    tags: list[str] = None  # type: ignore[assignment]


@dataclass
class Made:
    """Which puts a list in the place of the default."""

    tags: list[str] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.tags = self.tags or []


class Wrong(msgspec.Struct):
    number: int = "a"  # type: ignore[assignment]


@dataclass
class Pair(Generic[T]):
    first: T
    second: T = "b"  # type: ignore[assignment]


@dataclass
class Defaults:
    ratio: float = 1
    maybe: int | None = None
    unset: int | msgspec.UnsetType = msgspec.UNSET
    path: Path = Path("a")
    color: Literal["red", "blue"] = "red"
    data: bytes = b""
    anything: Any = object
    listed: list[str] = field(default_factory=list)
    pair: Pair[str] = field(default_factory=lambda: Pair("a"))


def test_a_default_that_its_field_could_not_hold_is_refused() -> None:
    @refused(
        "Bad.m(): parameter 'a: Unlisted' cannot be sent: the default of Unlisted.tags must be list[str], got None: "
        "give it another, or declare 'list[str] | None'"
    )
    def m1(self, a: Unlisted) -> None: ...

    @refused(
        "Bad.m(): the result 'dict[str, Wrong]' cannot be sent: the default of Wrong.number must be int, got str: "
        "give it another, or declare 'int | str'"
    )
    def m2(self) -> dict[str, Wrong]: ...

    @refused(
        "Bad.m(): parameter 'a: Pair[int]' cannot be sent: the default of Pair[int].second must be int, got str: "
        "give it another, or declare 'int | str'"
    )
    def m3(self, a: Pair[int]) -> None: ...

    @service
    class Good:
        def m(self, defaults: Defaults, made: Made) -> Pair[str]: ...

    assert methods(Good)["m"]


def test_results_are_checked_like_arguments() -> None:
    reply = methods(Calculator)["add"].reply
    assert reply.check is not None
    for wrong, name in ((None, "None"), ("x", "str"), (True, "bool"), (1.5, "float")):
        with pytest.raises(Internal) as caught:
            reply.check(wrong)
        assert caught.value.message == f"Calculator.add(): the result must be int, got {name}"
    item = methods(Calculator)["countdown"].reply
    assert item.check is not None
    with pytest.raises(Internal, match=r"Calculator.countdown\(\): an item of the result must be int, got str"):
        item.check("x")
    nothing = methods(Calculator)["log"].reply
    assert nothing.check is not None
    with pytest.raises(Internal, match="the result must be None, got int"):
        nothing.check(3)


def test_frame_locals_are_not_kept_alive() -> None:
    huge = object()

    @service
    class Small:
        def m(self) -> int: ...

    declared = sys.modules["nearcall.types.declared"].declared[Small]
    assert huge not in declared.namespace.values()
