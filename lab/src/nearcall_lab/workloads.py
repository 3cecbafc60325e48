"""The work every mechanism is given: payloads, the typed call, and how a reply is verified."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any


@dataclass
class Order:
    """Argument of the typed call: four fields."""

    symbol: str
    quantity: int
    price: float
    urgent: bool


@dataclass
class Fill:
    """Result of the typed call: four fields, computed from the order so that a made-up reply is found out."""

    symbol: str
    cost: float
    lots: int
    accepted: bool


@dataclass
class Named:
    """Result of ``wait``."""

    id: int
    name: str


TYPED = ("quote", "wait")
"""Operations whose replies carry the server's secret."""
MOST_SECRET = 1_000_000
"""Small enough that it fits into whatever carries an integer."""
_secret = 0


def keep_secret(secret: int) -> None:
    """From now on `fill` and `named` add it to their results, in this process and those that it forks.

    Only the server's process gets the secret, a new one for each launch. So a client cannot make up typed replies,
    however well it knows the arguments.
    """
    global _secret
    _secret = secret


def named(delay_s: float) -> Named:
    """The result of a handler of ``wait`` that has waited for `delay_s` seconds."""
    return Named(round(delay_s * 1e6) + _secret, f"waited {delay_s:g} s")


def fill(order: Order) -> Fill:
    """The handler's work in the typed call."""
    return Fill(order.symbol, order.quantity * order.price, order.quantity // 100 + _secret, not order.urgent)


_ALPHABET = 4 * b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Payload bytes are plain ASCII, so that a mechanism which can carry only text pays nothing extra for escaping. The 64
characters four times, so that each of the 256 random byte values maps to one of them.
"""
_DRAWN = 1_000_003
"""Bytes that are drawn at random. Not a round number: a reply assembled from wrong pieces of the right length must not
look right.
"""


def orders() -> list[Order]:
    """Arguments of the typed call, all different, so that a stale reply cannot pass for the right one."""
    return [Order(f"SYM{i}", 100 * i + 7, 1.25 * i, i % 2 == 0) for i in range(1, 5)]


def octets(size: int) -> list[bytes]:
    """Payloads of `size` bytes, all different; the same ones every time."""
    rng = random.Random(size)
    return [_octets(rng, size) for _ in range(4 if size <= 100_000 else 2)]


def _octets(rng: random.Random, size: int) -> bytes:
    """Random ones; beyond a megabyte they repeat, because drawing 100 MB takes a while."""
    drawn = rng.randbytes(min(size, _DRAWN)).translate(_ALPHABET)
    return (drawn * (size // _DRAWN + 1))[:size] if size > _DRAWN else drawn


def same_bytes(argument: bytes, reply: Any) -> bool:
    """Whether an echoed reply has the argument's length and content. `bytes`, `bytearray` and `memoryview` will do."""
    if type(reply) is memoryview:
        return reply.nbytes == len(argument) and reply.tobytes() == argument
    return isinstance(reply, (bytes, bytearray)) and reply == argument


def secret_of_fill(argument: Order, reply: Any) -> int | None:
    """The secret in a reply to the typed call; None if its four values cannot be those that a handler computed."""
    right = (
        reply.symbol == argument.symbol
        and reply.cost == argument.quantity * argument.price
        and reply.accepted is (not argument.urgent)
    )
    return _over(reply.lots, argument.quantity // 100) if right else None


def secret_of_named(delay_s: float, reply: Any) -> int | None:
    """The secret in a reply to ``wait``; None if it is not one for this length of time."""
    return _over(reply.id, round(delay_s * 1e6)) if reply.name == f"waited {delay_s:g} s" else None


def _over(value: Any, base: int) -> int | None:
    known = isinstance(value, int) and 0 <= value - base <= MOST_SECRET
    return value - base if known else None


def describe_mismatch(argument: Any, reply: Any) -> str:
    """One line that states how a wrong reply differs from the right one."""
    if isinstance(argument, bytes):
        if not isinstance(reply, (bytes, bytearray, memoryview)):
            return f"wrong reply: {type(reply).__name__} instead of {len(argument)} bytes"
        got = bytes(reply)
        if len(got) != len(argument):
            return f"wrong reply: {len(got)} bytes instead of {len(argument)}"
        at = next(i for i, (a, b) in enumerate(zip(argument, got, strict=True)) if a != b)
        return f"wrong reply: {len(got)} bytes, but byte {at} differs"
    return f"wrong reply: {reply!r} to {argument!r}"[:200]
