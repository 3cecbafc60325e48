"""Values where the type says ``Any``: they arrive as they were sent, or the call is refused.

msgpack has lists, maps, numbers, texts and bytes. Python's other built-in types travel in nearcall's own extension
types. Objects of a class are refused, because the receiver would not know the class.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import re
import sys
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from ..types.hints import describe_value, type_name
from ..types.registered import carried_type
from ..types.shown import shown
from . import dtypes
from .remedies import conversion

__all__ = [
    "ENVELOPE",
    "EXTENSIONS",
    "OWN_EXTENSIONS",
    "Packed",
    "pack",
    "pack_int",
    "pack_plainly",
    "unknown",
    "unpack",
]

TUPLE: Final = 4
SET: Final = 5
FROZENSET: Final = 6
OBJECT: Final = 7
EXTENSIONS: Final = frozenset({TUPLE, SET, FROZENSET, OBJECT})
"""The msgpack extension types whose data is one msgpack value: see docs/protocol.md."""

_SCALARS: Final = frozenset({type(None), bool, float, str, bytes})
_64_BITS: Final = range(-(1 << 63), 1 << 64)
LONGEST_INT: Final = 2048
"""The most bytes of an int. What Python does with one takes the square of its length, such as its text."""
ENVELOPE: Final = 3
"""The extension type of an error's details with an exception or a traceback beside them (see docs/protocol.md)."""
OWN_EXTENSIONS: Final = range(-128, 32)
"""Those with a meaning, now or in a later version: no value of a user has one of them."""
_ZONE = re.compile(r"[A-Za-z0-9_+\-]{1,32}(?:/[A-Za-z0-9_+\-]{1,32}){0,3}")


class Packed:
    """Stands for a value that travels as an extension type; the encoder's hook encodes its content."""

    __slots__ = ("code", "content")

    def __init__(self, code: int, content: Any) -> None:
        self.code = code
        self.content = content


def pack(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """What to encode for a value, so that :func:`unpack` makes an equal value of the same type.

    Args:
        value: The value.
        other: Gives what to encode for a value of any other type; ``None``: such a value is refused.

    Raises:
        TypeError: the value would arrive as something else; the message says what to do.
    """
    kind = cast(Any, type(value))
    if kind is int:
        return pack_int(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return [pack(item, other) for item in value]
    if kind is dict:
        return {pack(key, other): pack(item, other) for key, item in value.items()}
    if kind is tuple:
        return Packed(TUPLE, [pack(item, other) for item in value])
    if kind is set or kind is frozenset:
        return Packed(SET if kind is set else FROZENSET, [pack(item, other) for item in value])
    if (describe := _OBJECTS.get(f"{kind.__module__}.{kind.__qualname__}")) is not None:
        name, content = describe(value)
        return Packed(OBJECT, [name, content])
    if kind is msgspec.Raw:
        return value
    if kind is msgspec.msgpack.Ext:
        if value.code in OWN_EXTENSIONS:
            raise TypeError(f"an extension of type {value.code} cannot be sent: those below 32 have a meaning already")
        return value
    if (numpy := sys.modules.get("numpy")) is not None:
        if isinstance(value, numpy.ndarray):
            return value
        if isinstance(value, numpy.generic):
            return _scalar(value)
    if other is None:
        raise TypeError(_refusal(value))
    return other(value)


def pack_int(value: int) -> Any:
    """What to encode for an int: itself, if msgpack has it.

    Raises:
        TypeError: it is longer than :data:`LONGEST_INT`.
    """
    if value in _64_BITS:
        return value
    length = (value + (value < 0)).bit_length() // 8 + 1  # a power of two below zero needs no further bit
    if length > LONGEST_INT:
        raise TypeError(f"an int of {length} bytes cannot be sent: the longest that is has {LONGEST_INT}; send bytes")
    return Packed(OBJECT, ["int", value.to_bytes(length, "big", signed=True)])


def pack_plainly(value: Any) -> Any:
    """Like :func:`pack`, but objects with fields become dicts, and values of subclasses become values of the plain
    types that they derive from.
    """
    return pack(value, _plainly)


def _plainly(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return pack_plainly(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name, msgspec.UNSET) for field in dataclasses.fields(value)}
    elif isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
    else:
        return _plain_subclass(value)
    return {name: pack_plainly(field) for name, field in fields.items() if field is not msgspec.UNSET}


def _plain_subclass(value: Any) -> Any:
    bases: tuple[Any, ...] = (dict, list, tuple, set, frozenset)
    for base in bases:
        if isinstance(value, base):
            return pack_plainly(base(value))
    return value  # the encoder's hook converts other values, or refuses them


class UnknownToThisVersion(ValueError):
    """A value of a type that this version of nearcall does not have."""


def unknown(what: str) -> UnknownToThisVersion:
    """The error for a value that a later version has sent. It reads the same on both sides."""
    return UnknownToThisVersion(f"{what}, which its receiver does not know: the sender's nearcall is newer")


def unpack(code: int, content: Any) -> Any:
    """The value that a decoded extension stands for.

    Raises:
        ValueError: the extension is malformed.
    """
    try:
        if code == OBJECT:
            name, inner = content
            if isinstance(name, str) and name not in _READERS:
                raise unknown(f"a value of the type '{shown(name, 80)}'")
            return _READERS[name](inner)
        if type(content) is list:
            kind: Any = {TUPLE: tuple, SET: set, FROZENSET: frozenset}[code]
            return kind(content)
    except UnknownToThisVersion:
        raise
    except Exception as problem:  # of any class: a peer chose the content
        raise ValueError(f"a malformed value of extension type {code}: {problem}") from None
    raise ValueError(f"a malformed value of extension type {code}")


def _refusal(value: Any) -> str:
    name = describe_value(value)
    if isinstance(value, enum.Enum):
        return f"{name} would arrive as its value where Any is declared: declare {name}, or send its value"
    bases: tuple[Any, ...] = (str, bytes, int, float, list, tuple, dict, set, frozenset)
    for base in bases:
        if isinstance(value, base) and not hasattr(value, "_fields"):
            plain = base.__name__
            return f"{name} would arrive as {plain} where Any is declared: declare {name}, or send {plain}(...)"
    kind = cast(Any, type(value))
    instead, declared = conversion(kind), _declared(value)
    if declared is not None:
        return f"{name} cannot be sent where Any is declared: declare {declared}, or {instead or 'send plain data'}"
    if instead is not None:
        return f"{name} is not a type that can be sent: {instead}"
    if kind.__module__ != "builtins":
        return (
            f"{name} is a class that the receiver does not know where Any is declared: declare it, or send plain data"
        )
    return f"{name} is not a type that can be sent"


def _declared(value: Any) -> str | None:
    """The class to declare for a value that travels as one of another type; ``None`` if it does not."""
    found: str | None = None
    for base in cast(Any, type(value)).__mro__:
        try:
            carried = carried_type(base)
        except TypeError:  # what it needs is not installed
            continue
        if carried is not None and carried.fits(value):
            found = type_name(base)  # the last one: a Path is a PosixPath, which nobody declares
    return found


def _datetime(value: datetime.datetime) -> tuple[str, Any]:
    zone = value.tzinfo
    if zone is None or type(zone) is datetime.timezone:
        return "datetime", [value.isoformat(), value.fold, None]
    key: Any = getattr(zone, "key", None) if type(zone).__module__ == "zoneinfo" else None
    if isinstance(key, str) and _ZONE.fullmatch(key):
        return "datetime", [value.replace(tzinfo=None).isoformat(), value.fold, key]
    raise TypeError(f"a datetime in a zone of type {describe_value(zone)} cannot be sent: give it a fixed offset")


def _time(value: datetime.time) -> tuple[str, Any]:
    if value.tzinfo is None or type(value.tzinfo) is datetime.timezone:
        return "time", [value.isoformat(), value.fold]
    raise TypeError("a time of day in a zone cannot be sent: give it a fixed offset")


def _scalar(value: Any) -> Any:
    import numpy as np

    code: Any = np.lib.format.dtype_to_descr(value.dtype)
    try:
        known = isinstance(code, str) and dtypes.size_of(code) == value.dtype.itemsize
    except ValueError:
        known = False
    if not known:
        raise TypeError(_refusal(value))
    return Packed(OBJECT, ["numpy", [code, value.tobytes()]])


# By name: importing all of these modules takes longer than anything else that nearcall does at its start.
_OBJECTS: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "datetime.datetime": _datetime,
    "datetime.time": _time,
    "datetime.date": lambda value: ("date", value.isoformat()),
    "datetime.timedelta": lambda value: ("timedelta", [value.days, value.seconds, value.microseconds]),
    "uuid.UUID": lambda value: ("uuid", value.bytes),
    "decimal.Decimal": lambda value: ("decimal", str(value)),
    "builtins.bytearray": lambda value: ("bytearray", bytes(value)),
    "builtins.memoryview": lambda value: ("memoryview", value.tobytes()),
}


def _read_datetime(content: Any) -> datetime.datetime:
    text, fold, key = content
    value = datetime.datetime.fromisoformat(text).replace(fold=fold)
    if key is None:
        return value
    if not _ZONE.fullmatch(key):
        raise ValueError("no name of a time zone")
    import zoneinfo

    return value.replace(tzinfo=zoneinfo.ZoneInfo(key))


def _read_time(content: Any) -> datetime.time:
    text, fold = content
    return datetime.time.fromisoformat(text).replace(fold=fold)


def _read_decimal(content: Any) -> decimal.Decimal:
    if type(content) is not str:
        raise ValueError("a decimal is a text")
    return decimal.Decimal(content)


def _read_int(content: Any) -> int:
    if not 0 < len(_read_bytes(content)) <= LONGEST_INT:
        raise ValueError(f"an int has 1 to {LONGEST_INT} bytes")
    value = int.from_bytes(content, "big", signed=True)
    if value in _64_BITS:
        raise ValueError("an int of 64 bits needs no extension")
    return value


def _read_scalar(content: Any) -> Any:
    code, data = content
    if not isinstance(code, str) or len(data) != dtypes.size_of(code):
        raise ValueError("no scalar of numpy")
    import numpy as np

    return np.ndarray((), dtypes.dtype_of(code), data)[()]


def _read_uuid(content: Any) -> Any:
    import uuid

    return uuid.UUID(bytes=_read_bytes(content))


def _read_bytes(content: Any) -> bytes:
    if type(content) is not bytes:
        raise ValueError("bytes are expected")
    return content


_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": _read_datetime,
    "date": datetime.date.fromisoformat,
    "time": _read_time,
    "timedelta": lambda content: datetime.timedelta(*cast("list[int]", content)),
    "uuid": _read_uuid,
    "int": _read_int,
    "decimal": _read_decimal,
    "bytearray": lambda content: bytearray(_read_bytes(content)),
    "memoryview": lambda content: memoryview(_read_bytes(content)),
    "numpy": _read_scalar,
}
