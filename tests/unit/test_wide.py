"""Ints beyond 64 bits that a hostile peer sends, or that are where none can be."""

from __future__ import annotations

from dataclasses import dataclass
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


@service
class Books:
    def add(self, a: int, b: int = 1) -> int: ...

    def name(self, text: str, rate: float) -> None: ...

    def table(self, table: dict[int, int]) -> None: ...

    def open(self, account: Account) -> None: ...


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
        ("name", (wide(2**70), 1.0), "argument 'text': expected str, got"),
        ("open", ({"number": wide(2**70)},), "argument 'account' at .number: expected int <= 4611686018427387904"),
    ],
)
def test_what_is_none_is_refused(method: str, values: tuple[Any, ...], told: str) -> None:
    assert told in received(method, *values)


def test_keys_that_collide_are_refused() -> None:
    def keys(count: int) -> list[int]:
        return [k * (2**61 - 1) << 61 for k in range(1, count)]

    def body(numbers: list[int]) -> bytes:
        pairs = [msgspec.msgpack.encode(wide(number)) + b"\x01" for number in numbers]
        return b"\x91\xdf" + len(pairs).to_bytes(4, "big") + b"".join(pairs)

    assert len(set(map(hash, keys(50)))) == 1
    assert read("table", body(keys(50))) == (dict.fromkeys(keys(50), 1),)
    assert "collide" in read("table", body(keys(20_000)))


def test_a_long_message_is_decoded_once() -> None:
    table = dict.fromkeys(range(2**62, 2**62 + 120_000), 1)
    assert (
        received("table", table | {0: wide(2**70)}) == "Books.table(): argument 'table' at [...]: expected int, got ext"
    )


def test_a_float_is_no_int() -> None:
    arguments = METHODS["name"].arguments
    with pytest.raises(InvalidArgument, match="argument 'rate' must be float, got int"):
        carry_arguments(arguments, arguments, ("a", 2**70 + 1))
    with pytest.raises(InvalidArgument, match="argument 'rate' cannot be sent: an int beyond 64 bits"):
        carry_arguments(arguments, arguments, ("a", 2**70))
