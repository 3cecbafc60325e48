"""Ints beyond 64 bits, which neither msgpack nor msgspec has.

They travel in the extension type that every receiver of ``Any`` reads: see :mod:`nearcall.codec.anything`. To look for
one in each message would cost every call. So only what was refused is encoded, or decoded, once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

from ..._core import check_keys
from ..explain import Again
from ..hashed import ANYTHING, ANYTHING_AND_SETS, HashedKeys
from ..protocol import PARTS
from ..shape import walk

__all__ = ["decode_wide", "encode_wide", "may_be_wide", "or_again", "refused_twice", "takes_wide"]

_LONGEST: Final = 128 << 10
"""The most bytes of a message with such ints. What is made of it meanwhile is not counted, and each int takes some
microseconds.
"""
_MARK: Final = b"\x92\xa3int"
"""How the data of the extension begins."""


def may_be_wide(types: Iterable[shapes.Type], hashed: HashedKeys | None) -> bool:
    """Whether ints beyond 64 bits may be sent in a message.

    Args:
        types: The types of the values in it.
        hashed: The keys of its dicts and sets that are checked. If one may become something else than what is sent,
            such as an object, its hash is not known when a message is decoded for the second time.
    """
    if hashed is not None and not all(hashed.as_sent):
        return False
    found = [node for type_ in types for node in walk(type_) if isinstance(node, (shapes.IntType, shapes.AnyType))]
    # Of an int beyond 64 bits msgspec does not ask whether it is a multiple.
    return bool(found) and not any(getattr(node, "multiple_of", None) for node in found)


def takes_wide(types: Iterable[shapes.Type]) -> bool:
    """Whether ints beyond 64 bits may be given for other numbers, and arrive as these."""
    return any(isinstance(node, (shapes.FloatType, shapes.DecimalType)) for type_ in types for node in walk(type_))


def encode_wide(make: Callable[[], Callable[[Any], Any]]) -> Callable[..., Any]:
    """What encodes a value that was refused once more.

    Args:
        make: Makes the encoder, when it is first needed.
    """
    made = cache(make)

    def encode(error: BaseException, value: Any) -> Any:
        try:
            if not isinstance(error, OverflowError):
                raise error
            encoded = made()(value)
            body: bytes = encoded if isinstance(encoded, bytes) else encoded[0]
            if len(body) > _LONGEST and _MARK in body:
                raise ValueError(
                    f"with an int beyond 64 bits in it, a message has at most {_LONGEST >> 10} KiB beside its buffers; "
                    f"this one has {len(body) >> 10}: send such ints as bytes"
                )
            return encoded
        finally:
            del error  # whose traceback has this frame: a circle would keep the value

    return encode


def decode_wide(make: Callable[[], Callable[..., Any]], hashed: HashedKeys | None) -> Callable[..., Any]:
    """What decodes a message that was refused once more.

    Args:
        make: Makes the decoder, when it is first needed.
        hashed: The keys that are checked before a message is decoded for the first time.
    """
    made = cache(make)
    keys = ANYTHING_AND_SETS if hashed is not None and hashed.lists else ANYTHING

    def decode(error: BaseException, body: bytes, *buffers: list[memoryview]) -> Any:
        try:
            if not isinstance(error, msgspec.ValidationError) or len(body) > _LONGEST or _MARK not in body:
                raise error
            check_keys(body, keys)
            return made()(body, *buffers)
        finally:
            del error  # whose traceback has this frame: a circle would keep the memory of the buffers

    return decode


def refused_twice(again: Again | None, decode_again: Callable[..., Any] | None, form: str) -> Again | None:
    """What decodes a message once more that was refused twice, as both attempts did."""
    if again is None or decode_again is None:
        return again

    def both(body: bytes, /, *, buffers: list[memoryview]) -> Any:
        try:
            return again(body, buffers=buffers)
        except Exception as error:
            return decode_again(error, body, buffers) if form == PARTS else decode_again(error, body)

    return both


def or_again(run: Callable[..., Any], again: Callable[..., Any] | None) -> Callable[..., Any]:
    """The same function; what it refuses is tried once more, if there is another way: see
    :attr:`nearcall.codec.protocol.ValueCoding.encode_again`.
    """
    if again is None:
        return run

    def either(*given: Any) -> Any:
        try:
            return run(*given)
        except Exception as error:
            return again(error, *given)

    return either
