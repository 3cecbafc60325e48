"""Finds dicts and sets in a type whose keys a peer could choose so that they collide, and hashes such keys beforehand.

The hashes of text, bytes, dates and naive datetimes depend on a secret of the process. All others can be foreseen: a
peer that chooses the keys chooses their hashes, and a dict or set of n keys that collide takes n² steps to build, while
every other thread waits for the interpreter. So the compiled core works out what a message's tables cost before the
message is decoded, and refuses messages that cost too much. It asks Python for the hashes that it cannot tell from the
bytes.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Union, cast

import msgspec
from msgspec import inspect as shapes

from ..types.carried import CarriedShape
from .msgpack.carried import NO_READERS, Readers
from .msgpack.functions import carried_readers, keys_decoder
from .shape import walk

__all__ = ["ANYTHING", "ANYTHING_AND_SETS", "HashedKeys", "hashed_keys", "together"]

_SECRET = (shapes.StrType, shapes.BytesType, shapes.MemoryViewType, shapes.DateType)
"""Types whose hashes nobody can foresee."""
_FEW = (shapes.NoneType, shapes.BoolType, shapes.LiteralType, shapes.EnumType)
"""Types with few values, so that few keys can collide."""
_AS_SENT = (shapes.AnyType, shapes.IntType, *_SECRET, shapes.NoneType, shapes.BoolType, shapes.LiteralType)
"""Types that keep the kind of msgpack's value: an int stays an int, and text becomes something with a secret hash.
So do tuples of these: as a key, a list is a tuple whatever the type.
"""
_SIMPLE: dict[type, Any] = {
    shapes.IntType: int,
    shapes.FloatType: float,
    shapes.StrType: str,
    shapes.BytesType: bytes,
    shapes.MemoryViewType: memoryview,
    shapes.BoolType: bool,
    shapes.NoneType: None,
    shapes.DecimalType: decimal.Decimal,
    shapes.UUIDType: uuid.UUID,
    shapes.DateTimeType: datetime.datetime,
    shapes.DateType: datetime.date,
    shapes.TimeType: datetime.time,
    shapes.TimeDeltaType: datetime.timedelta,
}

Hasher = Callable[[bytes], "list[int] | None"]


class HashedKeys(msgspec.Struct, frozen=True, eq=False):
    """What the compiled core must know to check the keys in a message."""

    lists: bool
    """Lists may become sets."""
    types: tuple[Any, ...]
    """The types of keys."""
    as_sent: tuple[bool, ...]
    """For each type, whether a key keeps the kind that it has in msgpack. If not, only Python can hash it."""
    carried: Readers = NO_READERS
    """For classes among these that travel as another type."""

    @property
    def hashers(self) -> tuple[Hasher, ...]:
        """For each type, a function that takes an encoded list of dicts, and returns the hashes of their keys.

        It returns ``None`` if one of them cannot be decoded or hashed.
        """
        return tuple([_made_hasher(each, self.carried) if self.carried else _hasher(each) for each in self.types])


def hashed_keys(shape: shapes.Type) -> HashedKeys | None:
    """The keys to check in values of a type; ``None`` if there are none."""
    lists = False
    types: list[shapes.Type] = []
    for node in walk(shape):
        if isinstance(node, shapes.AnyType):
            types.append(node)
        elif isinstance(node, (shapes.CustomType, CarriedShape)):
            # msgspec decodes what is sent in its place as it would without a type.
            types.append(shapes.AnyType())
        elif isinstance(node, (shapes.SetType, shapes.FrozenSetType)) and not _harmless(node.item_type):
            lists = True
            types.append(node.item_type)
        elif isinstance(key := getattr(node, "key_type", None), shapes.Type) and not _harmless(key):
            types.append(key)
    if not types:
        return None
    as_sent = {_annotation(key): _as_sent(key) for key in types}
    has_carried = any(isinstance(node, CarriedShape) for key in types for node in walk(key))
    carried = carried_readers(types) if has_carried else NO_READERS
    return HashedKeys(lists, tuple(as_sent), tuple(as_sent.values()), carried)


def together(several: Iterable[HashedKeys | None]) -> HashedKeys | None:
    """The keys to check in a message that holds values of several types."""
    found = [each for each in several if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    as_sent = {kind: key for each in found for kind, key in zip(each.types, each.as_sent, strict=True)}
    carried = {cls: reader for each in found for cls, reader in each.carried.items()}
    return HashedKeys(any(each.lists for each in found), tuple(as_sent), tuple(as_sent.values()), carried)


ANYTHING = HashedKeys(lists=False, types=(Any,), as_sent=(True,))
"""For values of type ``Any``."""

ANYTHING_AND_SETS = HashedKeys(lists=True, types=(Any,), as_sent=(True,))
"""The same where some lists become sets."""


def _harmless(key: shapes.Type) -> bool:
    if isinstance(key, shapes.UnionType):
        return all(map(_harmless, key.types))
    return isinstance(key, (*_SECRET, *_FEW)) or _secret(key)


def _secret(key: shapes.Type) -> bool:
    if isinstance(key, shapes.TupleType):
        return bool(key.item_types) and all(map(_secret, key.item_types))
    if isinstance(key, (shapes.VarTupleType, shapes.FrozenSetType)):
        return _secret(key.item_type)
    return isinstance(key, _SECRET)


def _as_sent(key: shapes.Type) -> bool:
    if isinstance(key, shapes.UnionType):
        # Beside int, float takes no ints.
        types = [each for each in key.types if not isinstance(each, shapes.FloatType)]
        return all(map(_as_sent, types)) and (
            len(types) == len(key.types) or any(isinstance(each, (shapes.IntType, shapes.AnyType)) for each in types)
        )
    if isinstance(key, shapes.TupleType):
        return all(map(_as_sent, key.item_types))
    if isinstance(key, shapes.VarTupleType):
        return _as_sent(key.item_type)
    return isinstance(key, _AS_SENT)


def _annotation(key: Any) -> Any:
    """The type that msgspec described, without limits such as a length."""
    kind = cast("type[shapes.Type]", type(key))
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if isinstance(key, shapes.UnionType):
        return Union[tuple(map(_annotation, key.types))]  # noqa: UP007 - of a tuple of types
    if isinstance(key, shapes.TupleType):
        return tuple[tuple(map(_annotation, key.item_types))]  # type: ignore[misc]
    if isinstance(key, shapes.VarTupleType):
        return tuple[_annotation(key.item_type), ...]  # type: ignore[misc]
    if isinstance(key, shapes.FrozenSetType):
        return frozenset[_annotation(key.item_type)]  # type: ignore[misc]
    # Structs, dataclasses, NamedTuples and enums have a class; everything else is taken as Any.
    return getattr(key, "cls", Any)


@functools.lru_cache(maxsize=256)
def _hasher(key_type: Any) -> Hasher:
    return _made_hasher(key_type, NO_READERS)


def _made_hasher(key_type: Any, carried: Readers) -> Hasher:
    decoder = functools.cache(lambda: keys_decoder(key_type, carried))  # made when first needed, which is rare

    def hashes(body: bytes) -> list[int] | None:
        try:
            return [hash(key) for single in decoder()(body) for key in single]
        except Exception:  # the user's types run code, and a peer chose the bytes
            return None

    return hashes
