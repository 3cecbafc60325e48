"""NumPy arrays in a message: a small header in the msgpack, the elements as a raw buffer beside it.

numpy is optional. This module imports it only when it meets an array: then other code has imported numpy, or a peer has
sent an array.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ..types.hints import describe_value
from . import dtypes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["array_header", "read_array", "wrong_dtype"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, tuple[int, ...], str, int]).decode

_MAX_DIMENSIONS = 64
_MAX_HEADER = 64 * 1024
"""Bytes of an array's header: enough for a record of a thousand fields."""
_CACHED_DTYPES = 256
_CACHED_CODE = 1024
"""Bytes of the longest description of a dtype that is remembered."""
_dtype_codes: dict[Any, tuple[Any, bool]] = {}
_headers: dict[tuple[Any, ...], tuple[bytes, bool]] = {}


def wrong_dtype(array: Any, scalar: Any) -> bool:
    """Whether an array's elements are of another kind than the annotation's scalar class (which may be abstract)."""
    return scalar is not None and not issubclass(array.dtype.type, scalar)


def array_header(array: np.ndarray[Any, Any], index: int) -> tuple[bytes, memoryview]:
    """The header of an array, and a contiguous view of its elements: no copy if it is contiguous in either order.

    Args:
        array: Any array of numbers, bools, times, fixed-width strings or records of these.
        index: The number of the buffer that will carry the elements.

    Raises:
        TypeError: the elements are Python objects, or their dtype cannot be described.
    """
    np: Any = sys.modules["numpy"]  # imported already, since there is an array
    flat: Any = array
    if type(array) is not np.ndarray:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError("a masked array cannot be sent: send its data and its mask")
        if type(array) is not np.memmap:  # which says only where the elements are
            raise TypeError(
                f"{describe_value(array)} would arrive as ndarray, whose operators may mean something else: "
                "send numpy.asarray(...) of it"
            )
        flat = np.asarray(array)
    order = "C"
    if not array.flags.c_contiguous:
        if array.flags.f_contiguous:
            order = "F"
            flat = flat.T
        else:
            flat = np.ascontiguousarray(flat)
    # Arrays that are sent one after the other often have the same header.
    described = array.dtype, array.shape, order, index
    header, plain = _headers.get(described) or _describe(*described)
    if array.nbytes == 0:
        return header, memoryview(b"")
    if flat.ndim == 0:  # a buffer without dimensions has no shape, and many readers need a shape
        flat = flat.reshape(1)
    if not plain:  # as bytes, because the buffer protocol has no format for times and records
        flat = flat.reshape(-1).view(np.uint8)
    return header, memoryview(flat)


def read_array(header: bytes | memoryview, buffers: list[memoryview]) -> np.ndarray[Any, Any]:
    """The array that a header describes, as a view of its buffer: writable only if the buffer is.

    The header is given to numpy only after its bytes were counted, in Python's exact integers, and found to be the
    buffer's: numpy accepts dtypes that a peer must not send.

    Raises:
        ValueError: the header is malformed or does not fit the buffer.
    """
    if len(header) > _MAX_HEADER:
        raise ValueError(f"malformed array header: {len(header)} bytes, at most {_MAX_HEADER} are accepted")
    if isinstance(header, memoryview):
        header = header.tobytes()
    # Arrays that arrive one after the other often have the same header, such as the frames of a camera.
    layout = _layout(header) if len(header) <= _CACHED_CODE else _read_layout(header)
    make, dtype, shape, order, index, size = layout
    if index >= len(buffers):
        raise ValueError(f"an array refers to buffer {index} of {len(buffers)}")
    buffer = buffers[index]
    if buffer.nbytes != size:
        raise ValueError(f"an array of {size} bytes refers to a buffer of {buffer.nbytes} bytes")
    try:
        # For the usual order there is no keyword: with one, numpy takes four times as long as everything else here.
        array: np.ndarray[Any, Any] = (
            make(shape, dtype, buffer) if order == "C" else make(shape, dtype, buffer, order="F")
        )
    except (TypeError, ValueError, MemoryError, RecursionError) as problem:
        raise ValueError(f"malformed array header: {problem}") from None
    if array.nbytes != size:
        raise ValueError(f"malformed array header: numpy makes {array.nbytes} bytes of {size}")
    return array


def _read_layout(header: bytes) -> tuple[Any, Any, tuple[int, ...], str, int, int]:
    """``numpy.ndarray``, and the array's dtype, shape, order, number of its buffer and length in bytes.

    Raises:
        ValueError: the header is malformed.
    """
    try:
        import numpy as np
    except ImportError:
        raise ValueError("a numpy array arrived, and numpy is not installed here: pip install numpy") from None
    try:
        code, shape, order, index = _decode(header)
        itemsize = dtypes.size_of(code)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as problem:
        raise ValueError(f"malformed array header: {problem}") from None
    if order not in ("C", "F") or len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ValueError("malformed array header: shape or order")
    if index < 0:
        raise ValueError(f"an array refers to buffer {index}")
    try:
        dtype = dtypes.dtype_of(code)
        if dtype.itemsize != itemsize or dtype.hasobject:
            raise ValueError(f"numpy makes {dtype.itemsize} bytes of {itemsize}")
    except (TypeError, ValueError, MemoryError, RecursionError) as problem:
        raise ValueError(f"malformed array header: {problem}") from None
    return np.ndarray, dtype, shape, order, index, itemsize * math.prod(shape)


_layout = functools.lru_cache(maxsize=_CACHED_DTYPES)(_read_layout)  # a refused header is not cached


def _describe(dtype: Any, shape: tuple[int, ...], order: str, index: int) -> tuple[bytes, bool]:
    """The header of an array, and whether a memoryview can hold its elements.

    Raises:
        TypeError: an array of that dtype cannot be sent.
    """
    code, plain = _dtype_codes.get(dtype) or _dtype_code(dtype)
    entry = _encode((code, shape, order, index)), plain
    if len(entry[0]) <= _CACHED_CODE:
        if len(_headers) >= _CACHED_DTYPES:
            _headers.clear()
        _headers[dtype, shape, order, index] = entry
    return entry


def _dtype_code(dtype: Any) -> tuple[Any, bool]:
    """A dtype as plain data (``"<f8"``, or a list of fields for a record), and whether a memoryview can hold it."""
    import numpy as np

    if dtype.hasobject:
        raise TypeError(f"an array of dtype {dtype} holds Python objects and cannot be sent")
    try:
        code = np.lib.format.dtype_to_descr(dtype)
        encoded = _encode(code)
        arrives = msgspec.msgpack.decode(encoded)
        same = dtypes.size_of(arrives) == dtype.itemsize and dtypes.dtype_of(arrives) == dtype
    except ValueError as problem:
        raise TypeError(f"an array of dtype {dtype} cannot be sent: {problem}") from None
    if len(encoded) > _MAX_HEADER - 1024:
        raise TypeError(f"an array cannot be sent: the description of its dtype has {len(encoded)} bytes")
    if not same:
        raise TypeError(f"an array of dtype {dtype} cannot be sent: convert it with astype() first")
    entry = code, dtype.kind in "biufc"
    if len(encoded) <= _CACHED_CODE:
        if len(_dtype_codes) >= _CACHED_DTYPES:  # a program with so many dtypes works them out again
            _dtype_codes.clear()
        _dtype_codes[dtype] = entry
    return entry
