"""The dtype in an annotation of numpy's arrays, read without importing numpy."""

from __future__ import annotations

import sys
from typing import Any, get_args, get_origin

__all__ = ["dtype_name", "dtype_of_annotation", "is_array_type"]

# numpy's scalar classes that stand for several dtypes, and classes whose name does not tell their size or unit.
_ABSTRACT = frozenset(
    {
        *("generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating"),
        *("complexfloating", "flexible", "character", "bytes_", "str_", "void", "datetime64", "timedelta64"),
    }
)


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
