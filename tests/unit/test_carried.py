"""Objects of classes that travel as another type: registered ones, and those of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
import pytest

import nearcall
from nearcall.codec.hashed import hashed_keys
from nearcall.codec.shape import shape_of
from nearcall.errors import FailedPrecondition, InvalidArgument
from nearcall.types.carried import CarriedShape

from ..hostile.colliding import ints, packed_map
from .loopback import Loopback

T = TypeVar("T")
U = TypeVar("U")


class Money:
    def __init__(self, text: str) -> None:
        self.cents = int(text.removesuffix(" ct"))

    def __str__(self) -> str:
        return f"{self.cents} ct"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return self.cents


class Gold(Money):
    pass


class Box(Generic[T]):
    def __init__(self, inner: T) -> None:
        self.inner = inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and bool(cast(Any, other).inner == self.inner)

    __hash__ = None  # type: ignore[assignment]


class Tag:
    def __init__(self, text: str) -> None:
        self.text = text


class Node:
    def __init__(self, children: list[Node]) -> None:
        self.children = children


@dataclass
class NodeData:
    children: list[Node]


nearcall.register_type(Money, to=str)
nearcall.register_type(
    Box, to=cast(Any, tuple)[T, int], give=lambda box: (box.inner, 1), make=lambda pair: Box(pair[0])
)
nearcall.register_type(
    Node, to=NodeData, give=lambda node: NodeData(node.children), make=lambda data: Node(data.children)
)


@dataclass
class Order:
    price: Money
    many: list[Money] = field(default_factory=list[Money])
    by: dict[Money, Money | None] = field(default_factory=dict[Money, "Money | None"])
    box: Box[set[Money]] | None = None

    def __post_init__(self) -> None:
        if type(self.price) is not Money:
            raise TypeError("no Money")


@nearcall.service(
    types=[nearcall.CarriedType(Tag, to=bytes, give=lambda tag: tag.text.encode(), make=lambda b: Tag(b.decode()))]
)
class Shop:
    def one(self, price: Money) -> Money:
        return price

    def order(self, order: Order) -> Order:
        return order

    def maybe(self, price: Money | None = None, *, note: str = "") -> Money | None:
        return price

    def count(self, to: int) -> Iterator[Money]:
        return map(Money, map(str, range(to)))

    def tag(self, tags: list[Tag]) -> str:
        return ",".join(tag.text for tag in tags)

    def depth(self, node: Node) -> int:
        return 1 + max(map(self.depth, node.children), default=0)


@pytest.fixture(params=["msgpack", "json"])
def shop(request: pytest.FixtureRequest) -> Iterator[Any]:
    url = f"inproc://carried-{request.param}"
    with nearcall.Server(Shop(), url, codecs=["json"]), nearcall.connect(url, Shop, codec=request.param) as client:
        yield client


def test_wherever_the_annotation_names_them(shop: Any) -> None:
    assert shop.one(Money("3")) == Money("3")
    order = Order(Money("1"), [Money("2")], {Money("3"): Money("4"), Money("5"): None}, Box({Money("6")}))
    assert shop.order(order) == order
    assert shop.maybe() is None
    assert shop.maybe(note="n", price=Money("7")) == Money("7")
    assert list(shop.count(3)) == [Money("0"), Money("1"), Money("2")]
    assert shop.tag([Tag("a"), Tag("b")]) == "a,b"
    assert shop.depth(Node([Node([]), Node([Node([])])])) == 3


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda shop: shop.one("3 ct"), "Shop.one(): argument 'price' must be Money, got str"),
    (lambda shop: shop.tag([Tag("a"), "b"]), "Shop.tag(): argument 'tags' at [1]: expected Tag, got str"),
    (
        lambda shop: shop.order(Order(Money("1"), [Gold("1")])),
        "Shop.order(): argument 'order' at .many[0]: expected Money, got tests.Gold, a subclass, which would "
        "arrive without what is its own: declare it, or a union of tagged Structs",
    ),
]


class Priced(NamedTuple):
    name: str
    price: Money


@nearcall.service
class Asking:
    def ask(self, asked: Callable[[Priced, Money], Money], first: Money) -> Priced:
        return Priced("a", asked(Priced("b", first), Money("1")))


def test_beside_functions_that_are_passed() -> None:
    with nearcall.Server(Asking(), "inproc://asking"), nearcall.connect("inproc://asking", Asking) as client:
        assert client.ask(lambda priced, more: Money(str(priced.price.cents + more.cents)), Money("2")) == (
            "a",
            Money("3"),
        )


def test_a_codec_of_the_users_says_that_it_cannot() -> None:
    class Own:
        name = "own"

        def encode(self, value: Any) -> bytes:
            return msgspec.json.encode(value)

        def decode(self, data: bytes, type: Any) -> Any:
            return msgspec.json.decode(data, type=type)

    with pytest.raises(
        TypeError, match=r"Shop.one\(\): .* holds Money, which travels in msgpack and JSON: declare str"
    ):
        nearcall.Server(Shop(), "inproc://own", codecs=[Own()]).start()


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_others_are_refused_before_they_leave(shop: Any, call: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(shop)
    assert str(caught.value) == message


def test_what_travels_is_not_taken_for_an_object() -> None:
    order = Order(Money("1"), by={Money("2"): cast(Money, "3 ct")})
    with pytest.raises(InvalidArgument, match=r"at \.by\[.*\]: expected Money \| None, got str"):
        Loopback(Shop(), Shop).order(order)


def test_a_client_without_the_class_passes_what_travels() -> None:
    shop = Loopback(Shop())
    assert shop.one("3 ct") == "3 ct"
    assert shop.order({"price": "1 ct", "by": {"2 ct": None}})["by"] == {"2 ct": None}
    for call, message in (
        (lambda: shop.one(3), "expected str, as which Money travels, got int"),
        (lambda: shop.one("x"), "no Money can be made of 'x': invalid literal for int() with base 10: 'x'"),
        (
            lambda: shop.order({"price": "1 ct", "box": ([2], 1)}),
            "at .box: what Box travels as: expected str, as which",
        ),
        (
            lambda: shop.order({"price": "1 ct", "box": [["2 ct"]]}),
            "at .box: what Box travels as: expected array of length 2",
        ),
        (
            lambda: shop.order({"price": "1 ct", "box": ({3}, 1)}),
            "at .box: what Box travels as: expected str, as which",
        ),
        (lambda: shop.tag([b"\xff"]), "at [0]: no Tag can be made of b'\\xff': 'utf-8' codec can't decode"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            cast(Any, call)()
        assert message in str(caught.value)


def test_a_function_that_keeps_no_promise() -> None:
    class Odd:
        pass

    class Unfit:
        pass

    odd = nearcall.CarriedType(Odd, to=int, give=lambda odd: "text", make=lambda number: Odd())
    unfit = nearcall.CarriedType(Unfit, to=int, give=lambda unfit: 1, make=lambda number: {0: Unfit()}[number])

    @nearcall.service(types=[odd, unfit])
    class Oddities:
        def odd(self, odd: Odd) -> None: ...
        def unfit(self, unfit: Unfit) -> None: ...

    with pytest.raises(InvalidArgument, match="Odd travels as int, and its 'give' has made str of an object"):
        Loopback(Oddities(), Oddities).odd(Odd())
    with pytest.raises(InvalidArgument, match=r"no Unfit can be made of 1: its 'make' raised KeyError: 1$"):
        Loopback(Oddities(), Oddities).unfit(Unfit())


class Strict:
    def __init__(self, problem: Exception, when: str) -> None:
        self.problem, self.when = problem, when


PROBLEMS: dict[str, Exception] = {
    "KeyError: 'colour'": KeyError("colour"),
    "OverflowError: too large": OverflowError("too large"),
    "FileNotFoundError: [Errno 2] No such file": FileNotFoundError(2, "No such file"),
    "AssertionError": AssertionError(),
    "no colour": ValueError("no colour"),
    "ValueError": ValueError(),
}


def _give_strict(strict: Strict) -> str:
    if strict.when == "give":
        raise strict.problem
    return next(text for text, problem in PROBLEMS.items() if problem is strict.problem)


def _make_strict(text: str) -> Strict:
    raise PROBLEMS[text]


@dataclass
class Holder:
    name: str
    stricts: list[Strict]
    perhaps: Strict | str = ""


@nearcall.service(types=[nearcall.CarriedType(Strict, to=str, give=_give_strict, make=_make_strict)])
class Stricts:
    def one(self, strict: Strict) -> None: ...
    def holder(self, holder: Holder) -> None: ...

    def some(self, which: str) -> list[Strict]:
        return [Strict(PROBLEMS[which], "make")]


@pytest.fixture(scope="module")
def stricts() -> Iterator[Any]:
    with nearcall.Server(Stricts(), "inproc://stricts"), nearcall.connect("inproc://stricts", Stricts) as client:
        yield client


@pytest.mark.parametrize("text", PROBLEMS)
def test_what_the_functions_raise_is_told_and_kept(stricts: Any, text: str) -> None:
    problem = PROBLEMS[text]
    is_plain = text == "no colour"
    given = Strict(problem, "give")
    why = text if is_plain else f"its 'give' raised {text}"
    for call, where in (
        (lambda: stricts.one(given), "one(): argument 'strict' cannot be sent"),
        (lambda: stricts.holder(Holder("a", [given])), "holder(): argument 'holder' at .stricts[0]"),
        (lambda: stricts.holder(Holder("a", [], given)), "holder(): argument 'holder' at .perhaps.Strict"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            cast(Any, call)()
        assert caught.value.message == f"Stricts.{where}: Strict cannot be sent: {why}"
        assert caught.value.__cause__ is problem
    with pytest.raises(nearcall.Internal) as found:
        stricts.some(text)
    why = text if is_plain else f"its 'make' raised {text}"
    assert found.value.message == (
        f"Stricts.some(): the result must be list[Strict] at [0]: no Strict can be made of {text!r}: {why}"
    )
    assert found.value.__cause__ is problem


@dataclass
class Checked:
    which: str = ""

    def __post_init__(self) -> None:
        if self.which:
            raise PROBLEMS[self.which]


@dataclass
class Within:
    checked: list[Checked | str]


@nearcall.service
class Checking:
    def take(self, checked: list[Checked]) -> None: ...
    def within(self, within: Within) -> None: ...


@pytest.mark.parametrize("codec", ["msgpack", "json"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_what_a_class_raises_over_its_fields_is_told(codec: str, text: str) -> None:
    checked = Checked()
    checked.which = text
    why = text if text == "no colour" else f"the check of Checked raised {text}"
    url = "inproc://checking"
    with (
        nearcall.Server(Checking(), url, codecs=["json"]),
        nearcall.connect(url, Checking, codec=cast(Any, codec)) as client,
    ):
        with pytest.raises(InvalidArgument) as caught:
            client.take([Checked(), checked])
        assert caught.value.message.endswith(f"[1]: {why}")
        with pytest.raises(InvalidArgument) as caught:
            client.within(Within(["a", checked]))
        assert caught.value.message.endswith(f".checked[1]: {why}")


@nearcall.service(name="Giving", types=[nearcall.CarriedType(Strict, to=str, give=_give_strict, make=_make_strict)])
class GivingChecked:
    def checked(self, which: str) -> Checked: ...
    def strict(self, which: str) -> Strict: ...
    def take(self, strict: Strict) -> None: ...


@dataclass
class Unchecked:
    which: str


@nearcall.service(name="Giving", types=[nearcall.CarriedType(Strict, to=str, give=lambda strict: strict.when)])
class Giving:
    """The same without checks."""

    def checked(self, which: str) -> Unchecked:
        return Unchecked(which)

    def strict(self, which: str) -> Strict:
        return Strict(PROBLEMS[which], which)

    def take(self, strict: Strict) -> None: ...


@pytest.mark.parametrize("codec", ["msgpack", "json", "protobuf", "protobuf as json"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_what_a_class_raises_is_the_cause_in_every_codec(codec: str, text: str) -> None:
    own, problem = "protobuf" not in codec, PROBLEMS[text]
    url = "inproc://giving" if own else "http://127.0.0.1:0"
    with nearcall.Server(Giving(), url, codecs=["json"] if own else []) as server:
        chosen: Any = "json" if codec.endswith("json") else codec
        with nearcall.connect(server.urls[0], GivingChecked, codec=chosen) as client:
            for call in (
                lambda: client.checked(text),
                lambda: client.strict(text),
                lambda: client.take(Strict(problem, "give")),
            ):
                with pytest.raises(nearcall.RpcError) as caught:
                    cast(Any, call)()
                assert caught.value.__cause__ is problem


def test_both_sides_declare_them_alike() -> None:
    class Other:
        pass

    @nearcall.service(name="Shop")
    class Texts:
        def one(self, price: str) -> str:
            return price

    @nearcall.service(name="Shop", types=[nearcall.CarriedType(Other, to=int, give=id, name="Money")])
    class Numbers:
        def one(self, price: Other) -> Other:
            return price

    for cls, here in ((Texts, "str"), (Numbers, "Money (as int)")):
        with pytest.raises(FailedPrecondition) as caught:
            Loopback(Shop(), cls).one(Other() if cls is Numbers else "3 ct")
        assert str(caught.value).endswith(
            f"({here} here, Money (as str) there): declare Money on both sides, and register it alike with "
            "nearcall.register_type"
        )


def test_what_cannot_be_registered() -> None:
    gold = nearcall.CarriedType(Gold, to=str)

    async def later(text: str) -> Gold:
        return Gold(text)

    for make, message in (
        (lambda: nearcall.register_type(Order, to=str), "Order travels by itself"),
        (lambda: nearcall.register_type(cast(Any, "Order"), to=str), "Order is not a class"),
        (lambda: nearcall.register_type(Gold, to=str | None), "Gold: give=... is missing"),
        (lambda: nearcall.register_type(Gold, to=str, make=cast(Any, 3)), "Gold: make takes a function, not 3"),
        (lambda: nearcall.register_type(Box[int], to=str), r"Box\[int\]: register Box, whatever its type arguments"),
        (lambda: nearcall.register_type(Gold, to="str", give=str), "Gold: to takes a type, such as str or .*not 'str'"),
        (lambda: nearcall.register_type(Gold, to=str, name=cast(Any, 3)), "Gold: name takes a str, not 3"),
        (lambda: nearcall.register_type(Gold, to=str, make=cast(Any, later)), "Gold: make .* and this is 'async def'"),
        (
            lambda: nearcall.register_type(Gold, to=list[T], give=list),
            r"Gold travels as list\[T\], and its class has no type variable T: .* declare class Gold\(Generic\[T\]\)",
        ),
        (
            lambda: nearcall.service(types=[nearcall.CarriedType(Box, to=dict[T, U], give=dict)])(Shop),
            r"Box travels as .* no type variable U: .* declare class Box\(Generic\[T, U\]\)",
        ),
        (
            lambda: nearcall.service(types=[cast(Any, Gold)])(Shop),
            r"types takes a list of nearcall.CarriedType, and .*Gold'> is none: write nearcall.CarriedType\(Gold, to=",
        ),
        (lambda: nearcall.service(types=cast(Any, gold))(Shop), r"write types=\[nearcall.CarriedType\(Gold, str\)\]"),
        (lambda: nearcall.service(types=cast(Any, iter([gold])))(Shop), "types takes a list of .*, not list_iterator"),
        (lambda: nearcall.service(types=cast(Any, None))(Shop), "types takes a list of nearcall.CarriedType, not None"),
        (
            lambda: nearcall.service(errors=cast(Any, iter([KeyError])))(Shop),
            "errors takes a list of exception classes",
        ),
        (
            lambda: nearcall.service(types=[gold, nearcall.CarriedType(Gold, to=int, give=int)])(Shop),
            r"types says twice as what Gold travels: nearcall.CarriedType\(Gold, str\) and",
        ),
        (
            lambda: nearcall.service(types=[gold, nearcall.CarriedType(Tag, to=str, name="Gold")])(Shop),
            "types has two classes that both sides would call Gold: give .* another name=",
        ),
    ):
        with pytest.raises(TypeError, match=message):
            cast(Any, make)()

    class Passed:
        pass

    class Ring:
        pass

    with pytest.raises(TypeError, match=r"Ring travels as list\[Ring\], which holds it again: let it travel as"):

        @nearcall.service(types=[nearcall.CarriedType(Ring, to=list[Ring], give=lambda _: [], make=lambda _: Ring())])
        class Rings:
            def take(self, ring: Ring) -> None: ...

    with pytest.raises(
        TypeError, match="Passed travels as Shop, which holds a reference to Shop: let it travel as data"
    ):

        @nearcall.service(types=[nearcall.CarriedType(Passed, to=Shop)])
        class Passing:
            def take(self, passed: Passed) -> None: ...


def test_a_class_that_makes_objects_of_a_subclass() -> None:
    base = type(PurePosixPath("x")).__mro__[1]  # PurePath, whose objects are of PurePosixPath
    carried = nearcall.CarriedType(base, to=str)
    assert carried.fits(PurePosixPath("a"))
    assert not carried.fits("a")


def test_keys_that_collide_are_refused_before_they_are_read() -> None:
    """What is sent in place of such an object, or of an array, is decoded as it would be without a type."""
    import numpy as np

    from nearcall._core import check_keys

    body = packed_map([msgspec.msgpack.encode(key) for key in ints(14)])
    for kind in (Money, Box[Money], np.ndarray):
        keys = hashed_keys(shape_of(kind))
        assert keys is not None
        with pytest.raises(ValueError, match="collide"):
            check_keys(body, keys)
    shape = shape_of(dict[Money, int])
    assert isinstance(cast(Any, shape).key_type, CarriedShape)
    keys = hashed_keys(shape)
    assert keys is not None
    assert {hash(Money(str(number))) for number in range(3)} == {0, 1, 2}
    [hashes] = [hasher for kind, hasher in zip(keys.types, keys.hashers, strict=True) if kind is Money]
    assert hashes(msgspec.msgpack.encode([{"3 ct": None}])) == [3]
