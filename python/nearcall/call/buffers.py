"""Memory for values that will be sent. Peers on this machine map it, and messages refer to it instead of carrying a
copy.
"""

from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from .. import _core
from .variables import current_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    ScalarT = TypeVar("ScalarT", bound=np.generic)

__all__ = ["buffer", "empty"]

_SHORTEST = 32 * 1024
"""Bytes. Shorter buffers are cheaper to copy, and get ordinary memory."""


def buffer(nbytes: int) -> memoryview:
    """Memory for bytes that will be sent: over shared memory it is handed over and not copied, and so is a part of it.

    Until every receiver has dropped what it got, write to it only if they may see the change. Ask for another buffer
    instead: that costs about a microsecond, because memory that no process uses any more is used again.

    Args:
        nbytes: Bytes, zero or more.

    Returns:
        A writable ``memoryview`` of bytes. It is not cleared. If it has less than 32 KiB, or the
        system has no descriptor left or not as much memory available, it is ordinary memory, which is copied when it is
        sent.

    Raises:
        ValueError: the number is negative.
        MemoryError: the system has no memory left.
    """
    nbytes = operator.index(nbytes)
    if nbytes < 0:
        raise ValueError(f"a buffer cannot have {nbytes} bytes")
    if nbytes < _SHORTEST:
        return memoryview(bytearray(nbytes))
    if nbytes > sys.maxsize:
        raise _no_memory(nbytes)
    request = current_request.get()
    call = _core.current_call() if request is None else request.call()
    try:
        memory: Any = _core.Buffer(nbytes, call)
    except OSError:
        try:
            return memoryview(bytearray(nbytes))
        except MemoryError:
            raise _no_memory(nbytes) from None
    return memoryview(memory)


def _no_memory(nbytes: int) -> MemoryError:
    return MemoryError(f"there is no memory for a buffer of {nbytes} bytes")


@overload
def empty(shape: SupportsIndex | Sequence[SupportsIndex]) -> NDArray[np.float64]: ...
@overload
def empty(
    shape: SupportsIndex | Sequence[SupportsIndex], dtype: type[ScalarT] | np.dtype[ScalarT]
) -> NDArray[ScalarT]: ...
@overload
def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike) -> NDArray[Any]: ...
def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float) -> NDArray[Any]:
    """An array for values that will be sent: over shared memory it is handed over and not copied, and so is any
    contiguous part of it.

    It is a :func:`buffer`, to which the same rule applies: write to it only until it is sent, and make another one for
    the next message.

    Args:
        shape: As for ``numpy.empty``.
        dtype: Anything that numpy takes for a dtype, but no Python objects.

    Returns:
        A writable array in C order. It is not cleared.

    Raises:
        ImportError: numpy is not installed.
        TypeError: the dtype holds Python objects.
        ValueError: a length is negative.
        MemoryError: the system has no memory left.
    """
    import numpy as np

    chosen = np.dtype(dtype)
    if chosen.hasobject:
        raise TypeError(f"an array of dtype {chosen} holds Python objects and cannot be sent")
    lengths = tuple(map(operator.index, (shape,) if isinstance(shape, SupportsIndex) else shape))
    if any(length < 0 for length in lengths):
        raise ValueError(f"an array cannot have the shape {lengths}")
    return np.ndarray(lengths, chosen, buffer(chosen.itemsize * math.prod(lengths)))
