"""Ints beyond 64 bits that a hostile peer sends, or that are where none can be."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from nearcall.errors import InvalidArgument
from nearcall.service.service import plan_of, service

from .loopback import carry_arguments

OBJECT = 7


@dataclass
class Account:
    number: Annotated[int, msgspec.Meta(le=2**62)]


@dataclass(frozen=True)
class Point:
    x: int


@service
class Books:
    def add(self, a: int, b: int = 1) -> int: ...

    def name(self, text: str, rate: float) -> None: ...

    def table(self, table: dict[int, int]) -> None: ...

    def open(self, account: Account) -> None: ...

    def sets(self, sets: list[set[int]]) -> None: ...

    def pairs(self, pairs: set[tuple[int, int]]) -> None: ...

    def points(self, points: set[Point], by: int) -> None: ...

    def rates(self, rates: dict[float, int]) -> None: ...

    def list(self, numbers: list[int]) -> None: ...


METHODS = {method.name: method for method in plan_of(Books).methods}


def extension(content: Any) -> Any:
    return msgspec.msgpack.Ext(OBJECT, msgspec.msgpack.encode(["int", content]))


def wide(value: int) -> Any:
    return extension(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def received(method: str, *values: Any) -> Any:
    """What the handler gets if a peer sends this, or the error's text."""
    return read(method, msgspec.msgpack.encode(values))


def read(method: str, body: bytes) -> Any:
    coding = METHODS[method].arguments.coding
    try:
        try:
            return coding.decode(body)
        except Exception as error:
            if coding.decode_again is None:
                raise
            return coding.decode_again(error, body)
    except Exception as error:
        return coding.decode_error(error, body).message


@pytest.mark.parametrize(
    ("method", "values", "told"),
    [
        ("add", (extension(b""), 1), "an int has 1 to 2048 bytes"),
        ("add", (extension(bytes(2049)), 1), "an int has 1 to 2048 bytes"),
        ("add", (extension("1"), 1), "bytes are expected"),
        ("add", (wide(1), 1), "an int of 64 bits needs no extension"),
        ("rates", (msgspec.Raw(b"\x81" + msgspec.msgpack.encode(wide(2**70)) + b"\x01"),), "expected float, got ext"),
        ("points", ([{"x": 1}], wide(2**70)), "argument 'by': expected int, got ext"),
        ("name", (wide(2**70), 1.0), "argument 'text': expected str, got"),
        ("open", ({"number": wide(2**70)},), "argument 'account' at .number: expected int <= 4611686018427387904"),
    ],
)
def test_what_is_none_is_refused(method: str, values: tuple[Any, ...], told: str) -> None:
    assert told in received(method, *values)


def colliding(count: int) -> list[int]:
    """Ints with one hash: a set of thousands of them takes seconds."""
    return [k * (2**61 - 1) << 61 for k in range(1, count)]


def packed(head: int, numbers: list[int], after: bytes = b"") -> bytes:
    items = [msgspec.msgpack.encode(wide(number)) + after for number in numbers]
    return bytes([head]) + len(items).to_bytes(4, "big") + b"".join(items)


def test_keys_that_collide_are_refused() -> None:
    assert len(set(map(hash, colliding(50)))) == 1
    assert read("table", b"\x91" + packed(0xDF, colliding(50), b"\x01")) == (dict.fromkeys(colliding(50), 1),)
    assert "collide" in read("table", b"\x91" + packed(0xDF, colliding(3_000), b"\x01"))


def test_members_of_sets_that_collide_are_refused() -> None:
    assert read("sets", b"\x91\x91" + packed(0xDD, colliding(50))) == ([set(colliding(50))],)
    assert "collide" in read("sets", b"\x91\x91" + packed(0xDD, colliding(3_000)))
    pairs = [b"\x92\x01" + msgspec.msgpack.encode(wide(number)) for number in colliding(3_000)]
    assert "collide" in read("pairs", b"\x91\xdd" + len(pairs).to_bytes(4, "big") + b"".join(pairs))


def test_the_most_negative_int_goes_back_and_forth() -> None:
    (value,) = carry_arguments(METHODS["add"].arguments, METHODS["add"].arguments, (-(2**16383), 1))[:1]
    assert value == -(2**16383)
    with pytest.raises(InvalidArgument, match="an int of 2049 bytes cannot be sent"):
        carry_arguments(METHODS["add"].arguments, METHODS["add"].arguments, (-(2**16383) - 1, 1))


def test_many_ints_are_refused_by_their_sender() -> None:
    arguments = METHODS["list"].arguments
    with pytest.raises(InvalidArgument, match=r"has at most 128 KiB beside its buffers; this one has \d+: send such"):
        carry_arguments(arguments, arguments, ([2**70 + n for n in range(20_000)],))


def test_a_long_message_is_decoded_once() -> None:
    table = dict.fromkeys(range(2**62, 2**62 + 20_000), 1)
    assert (
        received("table", table | {0: wide(2**70)}) == "Books.table(): argument 'table' at [...]: expected int, got ext"
    )


def test_a_float_is_no_int() -> None:
    arguments = METHODS["name"].arguments
    with pytest.raises(InvalidArgument, match="argument 'rate' must be float, got int"):
        carry_arguments(arguments, arguments, ("a", 2**70 + 1))
    carried = carry_arguments(arguments, arguments, ("a", 2**70))
    assert (carried, type(carried[1])) == (("a", 2.0**70), float)


@dataclass
class Rate:
    rate: float
    by: dict[str, Decimal]
    either: int | float = 0


@service
class Rates:
    def take(self, rates: list[float], one: Rate, prices: list[Decimal], either: list[int | float]) -> None: ...

    def keys(self, rates: set[float]) -> set[float]: ...


TAKE = {method.name: method for method in plan_of(Rates).methods}["take"].arguments
KEYS = {method.name: method for method in plan_of(Rates).methods}["keys"].arguments


def test_ints_beyond_64_bits_are_given_for_other_numbers() -> None:
    wide = 2**100
    given = ([wide, 1.5], Rate(-wide, {"a": Decimal(wide + 1)}, wide + 1), [wide + 1], [wide + 1, 0.5])
    rates, one, prices, either = carry_arguments(TAKE, TAKE, given)
    assert [*map(type, rates), type(one.rate), type(one.by["a"]), type(one.either)] == [float] * 3 + [Decimal, int]
    assert (rates, one, prices) == given[:3]
    assert [*map(type, prices), *map(type, either)] == [Decimal, int, float]
    assert either == given[3]
    assert carry_arguments(KEYS, KEYS, ({wide, 1.5},)) == ({float(wide), 1.5},)


def test_a_long_list_of_floats_may_have_one() -> None:
    rates = [2.0**70] * 30_000 + [2**100]
    found = carry_arguments(TAKE, TAKE, (rates, Rate(1.0, {}), [], []))
    assert found[0] == rates


def test_no_float_equals_it() -> None:
    right = Rate(1.0, {})
    for value in (2**100 + 1, 10**400):
        with pytest.raises(InvalidArgument, match=r"'rates' at \[1\]: no float equals \d+.*: send float\(...\)"):
            carry_arguments(TAKE, TAKE, ([1.0, value], right, [], []))
        with pytest.raises(InvalidArgument, match=r"argument 'one' at .rate: no float equals \d+"):
            carry_arguments(TAKE, TAKE, ([], Rate(value, {}), [], []))


@dataclass
class Counts:
    number: int
    by: dict[str, int]


@service
class Counting:
    def take(self, counts: Counts, named: dict[str, int]) -> Counts: ...


def test_beside_one_the_key_of_a_wrong_value_is_told() -> None:
    coding = {method.name: method for method in plan_of(Counting).methods}["take"].arguments.coding
    again: Any = coding.decode_again
    for sent, where in (
        (({"number": wide(2**70), "by": {"a": 1, "b": "x"}}, {}), "'counts' at .by['b']"),
        (({"number": 1, "by": {}}, {"c": wide(2**70), "d": "x", "e": 1}), "'named' at ['d']"),
    ):
        body = msgspec.msgpack.encode(sent)
        with pytest.raises(msgspec.ValidationError) as first:
            coding.decode(body)
        with pytest.raises(msgspec.ValidationError) as second:
            again(first.value, body)
        assert f"argument {where}: expected int, got str" in coding.decode_error(second.value, body).message
