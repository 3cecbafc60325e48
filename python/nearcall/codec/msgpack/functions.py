"""msgpack through msgspec: one encoder for all types, and a decoder for each type.

For a type that holds no arrays, these functions are msgspec's own bound methods, so that a call runs no Python code of
this module. A type that may hold numpy arrays has the form ``parts``: see :func:`parts_encoder`.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import functools
import numbers
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
from msgspec import inspect as shapes

from ...types.arrays import dtype_of_annotation
from ...types.beside import Beside
from ...types.hints import describe_value, short_repr
from .. import anything
from ..arrays import array_header, read_array, wrong_dtype
from ..arriving import twins
from ..decoders import make_decoder
from ..references import REFERENCE, Incoming, Received, Uncounted
from ..remedies import conversion
from .carried import NO_READERS, Readers, read_by, readers

__all__ = [
    "ARRAY",
    "BUFFER",
    "carried_readers",
    "coded_decoder",
    "decode_any",
    "encode",
    "encode_aligned",
    "encode_parts",
    "encode_plainly",
    "keys_decoder",
    "parts_decoder",
    "reference_decoder",
]

BUFFER = 1
"""msgpack extension: a raw buffer beside the message; the data is the buffer's index in msgpack."""
ARRAY = 2
"""msgpack extension: a numpy array; the data is [dtype, shape, order, index of its buffer] in msgpack."""


def _convert(value: Any) -> Any:
    """What to send for an object that msgspec does not know: its plain equivalent, if it has one."""
    # Subclasses of the plain types, such as numpy.float64.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if (numpy := sys.modules.get("numpy")) is not None and isinstance(value, numpy.generic):
        item = value.item()
        if not isinstance(item, numpy.generic):  # float128 has no equivalent
            return item if value.dtype.kind not in "mM" else _equal(item, value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, decimal.Decimal):
        return decimal.Decimal(value)
    if isinstance(value, numbers.Real):
        return _equal(float(value), value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)):
        return _equal(_plain_time(value), value)
    if isinstance(value, collections.abc.Mapping):
        return dict(cast(Any, value))
    if isinstance(value, (collections.abc.Sequence, collections.abc.Set)):
        return list(cast(Any, value))
    instead = conversion(type(value)) or "use a dataclass, a msgspec.Struct or plain data"
    raise TypeError(f"{describe_value(value)} is not a type that can be encoded; {instead}")


def _equal(plain: Any, value: Any) -> Any:
    """The plain equivalent of a value, if it is one."""
    if plain == value or value != value:  # noqa: PLR0124 - nan is not equal to itself
        return plain
    if isinstance(value, numbers.Real):
        raise TypeError(f"no float equals {short_repr(value)}, a {describe_value(value)}: send float(...) of it")
    raise TypeError(f"a {describe_value(value)} with nanoseconds would lose them: round it to microseconds")


def _plain_time(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return datetime.datetime.combine(datetime.date(value.year, value.month, value.day), value.timetz())
    if isinstance(value, datetime.date):
        return datetime.date(value.year, value.month, value.day)
    if isinstance(value, datetime.time):
        return datetime.time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)
    return datetime.timedelta(value.days, value.seconds, value.microseconds)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _convert_or_refuse(value: Any) -> Any:
    if type(value) is anything.Packed:
        return msgspec.msgpack.Ext(value.code, encode(value.content))
    if _is_array(value):
        raise TypeError("ndarray cannot be sent here: annotate the value as ndarray or Any")
    return _convert(value)


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=_convert_or_refuse).encode
"""Encodes any supported value without arrays; msgspec's own method."""


def encode_plainly(value: Any) -> bytes:
    """Encodes the details of an exception: plain data arrives as it was sent, objects with fields arrive as dicts."""
    return encode(anything.pack_plainly(value))


_ALIGNMENT = 64
_ZEROS = memoryview(bytes(_ALIGNMENT))
_NO_BYTES = memoryview(b"")
"""In the place of what aligns the next buffer."""


class _Leaving(threading.local):
    """The buffers of the message that this thread is encoding. They are per thread because msgspec passes its hooks no
    context.
    """

    buffers: list[memoryview] | None = None


_leaving = _Leaving()


def _convert_or_put_aside(value: Any) -> Any:
    if type(value) is anything.Packed:
        return msgspec.msgpack.Ext(value.code, _encode_putting_aside(value.content))
    buffers = _leaving.buffers
    if buffers is not None and type(value) is Beside:
        # The view before it is filled in when it is known how many bytes lie before both.
        buffers += [_NO_BYTES, value.view]
        return msgspec.msgpack.Ext(BUFFER, msgspec.msgpack.encode(len(buffers) - 1))
    if buffers is None or not _is_array(value):
        return _convert(value)
    header, data = array_header(value, len(buffers))
    buffers.append(data)
    return msgspec.msgpack.Ext(ARRAY, header)


_encode_putting_aside = msgspec.msgpack.Encoder(enc_hook=_convert_or_put_aside).encode


def encode_parts(value: Any) -> tuple[bytes, list[memoryview]]:
    """Encodes a value that may hold arrays: returns the msgpack, and the arrays' elements, which are sent beside it."""
    buffers: list[memoryview] = []
    outer = _leaving.buffers  # not None if iterating over a value that is being encoded makes a call of its own
    _leaving.buffers = buffers
    try:
        return _encode_putting_aside(value), buffers
    finally:
        _leaving.buffers = outer


def encode_aligned(value: Any) -> tuple[bytes, list[memoryview]]:
    """The same for a value that may hold tables: their buffers begin at addresses that Arrow likes, by bytes before
    them.
    """
    body, buffers = encode_parts(value)
    at = len(body)
    for index, buffer in enumerate(buffers):
        if buffer is _NO_BYTES:
            buffers[index] = _ZEROS[: -at % _ALIGNMENT]
        at += buffers[index].nbytes
    return body, buffers


class _Once(list[memoryview]):
    """The buffers of a message that is decoded, each to be taken once, as every encoder refers to it. A message that
    refers to one very often would take many times its own length as soon as it is sent on.
    """

    def __getitem__(self, index: Any) -> Any:
        buffer = cast("Any", super().__getitem__(index))
        if buffer is _TAKEN:
            raise ValueError(f"the message refers to buffer {index} more than once")
        self[index] = _TAKEN
        return buffer


_TAKEN = memoryview(b"")


class _Arrived(threading.local):
    """The buffers and references of the message that this thread is decoding: msgspec passes its hooks no context."""

    buffers: list[memoryview] | None = None
    references: Incoming | None = None


_arrived = _Arrived()


def _read_extension(code: int, data: memoryview) -> Any:
    if code in anything.EXTENSIONS:
        return anything.unpack(code, decode_any(data))
    buffers = _arrived.buffers or []
    if code == ARRAY:
        return read_array(data, buffers)
    if code == BUFFER:
        index = msgspec.msgpack.decode(data, type=int)
        if not 0 <= index < len(buffers):
            raise ValueError(f"the message refers to buffer {index} of {len(buffers)}")
        return buffers[index]
    if code == REFERENCE and _arrived.references is not None:
        return _arrived.references.take(data)
    if code in anything.OWN_EXTENSIONS:
        raise anything.unknown(f"an extension of type {code}")
    return msgspec.msgpack.Ext(code, bytes(data))


decode_any: Callable[[Any], Any] = msgspec.msgpack.Decoder(Any, ext_hook=_read_extension).decode
"""Decodes a value of any type, with the extension types of :mod:`nearcall.codec.anything`."""


@functools.lru_cache(maxsize=256)
def _wanted_array(annotation: Any) -> tuple[Any, Any]:
    """The class that an array's annotation asks for, and the scalar class of its elements or ``None``."""
    return getattr(annotation, "__origin__", annotation), dtype_of_annotation(annotation)


_BYTES = (bytes, bytearray, memoryview)
"""What is not made of text in base64."""


def _read_custom(annotation: Any, value: Any) -> Any:
    # Services and arrays are the only types beyond msgspec's own that inspect_type() accepts. Arrays come first: to ask
    # whether a value is an instance of an abstract class takes long.
    cls, scalar = _wanted_array(annotation)
    if type(value) is cls:
        if scalar is None or value.dtype.type is scalar or not wrong_dtype(value, scalar):
            return value
        raise ValueError(f"expected an array of {scalar.__name__}, got one of {value.dtype}")
    if isinstance(value, Received):
        return cast(Incoming, _arrived.references).resolve(annotation, value)
    return value  # if the value is of another class, msgspec then raises and names what it expected


def carried_readers(types: Iterable[shapes.Type]) -> Readers:
    """What makes objects of the classes in some types that travel as other types."""
    return readers(types, _accepted_first, _read_custom)


def coded_decoder(annotation: Any, carried: Readers = NO_READERS, *, wide: bool = False) -> Callable[[Any], Any]:
    """A decoder for a type that holds no arrays: msgspec's own method, unless code of a class in it would run.

    Args:
        annotation: The type.
        carried: For classes that travel as another type.
        wide: Also ints beyond 64 bits are decoded, which takes several times as long.

    Raises:
        TypeError: msgspec does not support the type.
    """
    if carried or wide:
        return _accepted_first(annotation, _decoder_with_hooks(carried, wide=wide))
    return _accepted_first(annotation, lambda type_: make_decoder(type_).decode)


def _accepted_first(annotation: Any, make: Callable[[Any], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """A decoder that first lets the classes in a type look at the values, and then makes these as they left."""
    found = twins(annotation)
    if found is None:
        return make(annotation)
    check, decode = make(found.checked), make(found.bare)

    def decode_accepted(body: Any) -> Any:
        buffers, incoming = _arrived.buffers, _arrived.references
        # What a class does to an array that it looks at must not be seen in the one that arrives.
        _arrived.buffers = buffers and _Once(view if view.readonly else memoryview(bytearray(view)) for view in buffers)
        try:
            check(body)
        finally:
            _arrived.buffers = buffers
        if incoming is not None:
            incoming.rewind()
        return decode(body)

    return decode_accepted


def _decoder_with_hooks(carried: Readers, *, wide: bool = False) -> Callable[[Any], Callable[[Any], Any]]:
    read = read_by(carried, _read_custom) if carried else _read_custom
    if wide:
        # msgspec takes an extension for nothing but Any, and an int of any length when it converts.
        return lambda annotation: (
            lambda body: msgspec.convert(decode_any(body), annotation, builtin_types=_BYTES, dec_hook=read)
        )
    return lambda annotation: make_decoder(annotation, ext_hook=_read_extension, dec_hook=read).decode


def parts_decoder(annotation: Any, carried: Readers = NO_READERS, *, wide: bool = False) -> Callable[..., Any]:
    """A decoder for a type that may hold arrays; it takes the body and the list of buffers.

    Args:
        annotation: The type.
        carried: For classes that travel as another type.
        wide: As for :func:`coded_decoder`.

    Raises:
        TypeError: msgspec does not support the type.
    """
    decode = _beside(_accepted_first(annotation, _decoder_with_hooks(carried, wide=wide)))

    def decode_parts(body: Any, buffers: list[memoryview]) -> Any:
        return decode(body, _Once(buffers))

    return decode_parts


def _beside(decode: Callable[[Any], Any]) -> Callable[[Any, list[memoryview]], Any]:
    """A decoder that takes the body, and the buffers to which it may refer."""

    def decode_beside(body: Any, buffers: list[memoryview]) -> Any:
        # Kept for the outer message: a constructor that the decoder calls may make a call of its own.
        outer, references = _arrived.buffers, _arrived.references
        _arrived.buffers, _arrived.references = buffers, None
        try:
            return decode(body)
        finally:
            _arrived.buffers, _arrived.references = outer, references

    return decode_beside


def reference_decoder(
    annotation: Any, carried: Readers = NO_READERS, *, for_loop: bool, counted: bool = True
) -> Callable[..., Any]:
    """A decoder for a type that holds references; it takes the body, and the list of buffers if there are any.

    Args:
        annotation: The type.
        carried: For classes that travel as another type.
        for_loop: Whether the methods of the objects that arrive are to be awaited.
        counted: Whether references are counted. If not, what is decoded cannot be used.

    Raises:
        TypeError: msgspec does not support the type.
    """
    decode = _accepted_first(annotation, _decoder_with_hooks(carried))

    def decode_references(body: Any, buffers: list[memoryview] = []) -> Any:  # noqa: B006 - never changed
        incoming = Incoming(for_loop=for_loop) if counted else Uncounted()
        outer, references = _arrived.buffers, _arrived.references
        _arrived.buffers, _arrived.references = _Once(buffers), incoming
        try:
            return incoming.finish(decode, body)
        finally:
            _arrived.buffers, _arrived.references = outer, references

    return decode_references


class _NoMatter(list[memoryview]):
    """Stands for the buffers of a message of which only keys are decoded: every index that a peer may send is
    accepted.
    """

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: Any) -> Any:
        return memoryview(b"")


def keys_decoder(annotation: Any, carried: Readers = NO_READERS) -> Callable[[bytes], list[dict[Any, None]]]:
    """A decoder for a list of dicts of one key each, whose keys have a type."""
    decode = _beside(_accepted_first(list[dict[annotation, None]], _decoder_with_hooks(carried)))
    buffers = _NoMatter()
    return lambda body: decode(body, buffers)
