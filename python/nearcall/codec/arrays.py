"""NumPy arrays in a message: a small header in the msgpack, the elements as a raw buffer beside it.

numpy is optional. Nothing here imports it before an array was met, which only happens once somebody else has
imported it or a peer has sent one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

import msgspec

if TYPE_CHECKING:
    import numpy as np

__all__ = ["array_header", "dtype_name", "dtype_of_annotation", "is_array_type", "read_array", "wrong_dtype"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, tuple[int, ...], str, int]).decode

# numpy's scalar classes that stand for several dtypes, and those whose size or unit is not in the name.
_ABSTRACT = frozenset(
    {
        *("generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating"),
        *("complexfloating", "flexible", "character", "bytes_", "str_", "void", "datetime64", "timedelta64"),
    }
)
_MAX_DIMENSIONS = 64
_CACHED_DTYPES = 256
_dtype_codes: dict[Any, tuple[Any, bool]] = {}
_dtypes: dict[str, Any] = {}


def is_array_type(cls: Any) -> bool:
    """Whether a class is ``numpy.ndarray``, asked without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and cls is getattr(numpy, "ndarray", None)


def dtype_of_annotation(annotation: Any) -> Any:
    """The scalar class of ``NDArray[float64]``; ``None`` if any dtype will do."""
    args = get_args(annotation)
    dtype = args[-1] if get_origin(annotation) is not None and args else None
    scalars = get_args(dtype)
    if not scalars or scalars[0] is Any:
        return None
    scalar = get_origin(scalars[0]) or scalars[0]  # floating[Any] is floating
    return scalar if isinstance(scalar, type) else None


def dtype_name(annotation: Any) -> str | None:
    """``"float64"`` for ``NDArray[float64]``; ``None`` if the annotation leaves open which dtype it is."""
    scalar = dtype_of_annotation(annotation)
    name = getattr(scalar, "__name__", None)
    return None if name in _ABSTRACT else name


def wrong_dtype(array: Any, scalar: Any) -> bool:
    """Whether an array's elements are of another kind than the annotation's scalar class (which may be abstract)."""
    return scalar is not None and not issubclass(array.dtype.type, scalar)


def array_header(array: np.ndarray[Any, Any], index: int) -> tuple[bytes, memoryview]:
    """The header of an array, and a contiguous view of its elements: no copy if it is contiguous in either order.

    Args:
        array: Any array of numbers, bools, times, fixed-width strings or records of these.
        index: The number of the buffer that will carry the elements.

    Raises:
        TypeError: the elements are Python objects, or of a type that its name does not define.
    """
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("a masked array cannot be sent: send its data and its mask")
    code, plain = _dtype_codes.get(array.dtype) or _dtype_code(array.dtype)
    order = "C"
    flat: Any = cast(Any, np.asarray(array))
    if not array.flags.c_contiguous:
        if array.flags.f_contiguous:
            order = "F"
            flat = flat.T
        else:
            flat = cast(Any, np.ascontiguousarray(flat))
    header = _encode((code, array.shape, order, index))
    if array.nbytes == 0:
        return header, memoryview(b"")
    if flat.ndim == 0:  # a buffer without dimensions has no shape, and many readers want one
        flat = flat.reshape(1)
    if not plain:  # as bytes, because times and records have no format that the buffer protocol knows
        flat = flat.reshape(-1).view(np.uint8)
    return header, memoryview(flat)


def read_array(header: bytes | memoryview, buffers: list[memoryview]) -> np.ndarray[Any, Any]:
    """The array that a header describes, as a view of its buffer: writable only if the buffer is.

    Raises:
        ValueError: the header is malformed or does not fit the buffer.
    """
    try:
        import numpy as np
    except ImportError:
        raise ValueError("a numpy array arrived, and numpy is not installed here: pip install numpy") from None
    try:
        code, shape, order, index = _decode(header)
        dtype = _dtype_of(code)
    except (msgspec.MsgspecError, TypeError, ValueError, SyntaxError) as problem:
        raise ValueError(f"malformed array header: {problem}") from None
    if dtype.hasobject:
        raise ValueError("an array of Python objects is not accepted")
    if order not in ("C", "F") or len(shape) > _MAX_DIMENSIONS or any(length < 0 for length in shape):
        raise ValueError("malformed array header: shape or order")
    if not 0 <= index < len(buffers):
        raise ValueError(f"an array refers to buffer {index} of {len(buffers)}")
    size = dtype.itemsize
    for length in shape:
        size *= length
    buffer = buffers[index]
    if buffer.nbytes != size:
        raise ValueError(f"an array of {size} bytes refers to a buffer of {buffer.nbytes} bytes")
    if size == 0:
        return np.empty(shape, dtype)
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, buffer, order="C" if order == "C" else "F")
    return array


def _dtype_code(dtype: Any) -> tuple[Any, bool]:
    """A dtype as plain data (``"<f8"``, or a list of fields for a record), and whether a memoryview can hold it."""
    import numpy as np

    if dtype.hasobject:
        raise TypeError(f"an array of dtype {dtype} holds Python objects and cannot be sent")
    code = np.lib.format.dtype_to_descr(dtype)
    if np.lib.format.descr_to_dtype(_tuples(code)) != dtype:
        raise TypeError(f"an array of dtype {dtype} cannot be sent: convert it with astype() first")
    entry = code, dtype.kind in "biufc"
    if len(_dtype_codes) < _CACHED_DTYPES:
        _dtype_codes[dtype] = entry
    return entry


def _dtype_of(code: Any) -> Any:
    import numpy as np

    if not isinstance(code, str):
        return np.lib.format.descr_to_dtype(_tuples(code))
    dtype = _dtypes.get(code)
    if dtype is None:
        dtype = np.dtype(code)
        if len(_dtypes) < _CACHED_DTYPES:
            _dtypes[code] = dtype
    return dtype


def _tuples(code: Any) -> Any:
    """A dtype's description with the tuples that msgpack turned into lists; numpy insists on them."""
    if not isinstance(code, list):
        return code
    fields: list[Any] = []
    for field in cast("list[list[Any]]", code):
        name, kind, *shape = field
        fields.append((tuple(cast(Any, name)) if isinstance(name, list) else name, _tuples(kind), *map(tuple, shape)))
    return fields
