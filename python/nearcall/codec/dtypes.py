"""The element types of arrays as they are sent: a small language of nearcall's own, which is checked before numpy reads
it.

numpy accepts far more than it writes: ``"S0"`` becomes ``"S1"``, ``"(1000000000,)i4"`` is an array within an array, and
names, commas and offsets have meanings of their own. So this module first reads what a peer sends. Here every element
type has one spelling, which tells its size.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from ..types.guards import is_list

__all__ = ["dtype_of", "size_of"]

_MAX_ITEM: Final = 2**31 - 1
"""Bytes of the largest element that numpy can have."""
_MAX_FIELDS: Final = 1024
"""Fields of a record, those of the records in it included."""
_MAX_DEPTH: Final = 16
_MAX_DIMENSIONS: Final = 32
"""Dimensions of a field that is an array itself."""

_NUMBER = r"[<>|](?:b(?P<b>1)|[iu](?P<i>[1248])|f(?P<f>2|4|8|12|16)|c(?P<c>8|16|24|32))"
_TEXT = r"[<>|](?P<kind>[SUV])(?P<length>[1-9][0-9]{0,9})"
_TIME = r"[<>|][mM]8(?:\[(?:[1-9][0-9]{0,8})?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"


def size_of(code: Any) -> int:
    """Bytes of one element.

    Args:
        code: A dtype as it is sent: ``"<f8"``, or for a record a list of ``[name, dtype]`` or ``[name, dtype, shape]``.

    Raises:
        ValueError: nearcall does not send this dtype, or its elements have no bytes.
    """
    return _size(code, 0)[0]


def dtype_of(code: Any) -> Any:
    """The numpy dtype of a code for which :func:`size_of` has found a size.

    Raises:
        ValueError: numpy refuses it, for example because two fields have the same name.
    """
    if isinstance(code, str):
        return _plain(code)
    import numpy as np

    return np.lib.format.descr_to_dtype(_tuples(code))


@functools.lru_cache(maxsize=256)
def _plain(code: str) -> Any:
    import numpy as np

    return np.dtype(code)


def _size(code: Any, depth: int) -> tuple[int, int]:
    """Bytes of one element, and how many fields are in it."""
    if isinstance(code, str):
        return _plain_size(code), 0
    if not is_list(code) or not code or depth == _MAX_DEPTH:
        raise ValueError("a dtype is a text or a list of fields")
    size, count = 0, 0
    for field in code:
        name, kind, length = _field(field)
        inner, fields = _size(kind, depth + 1)
        size, count = size + inner * length, count + fields + 1
        if count > _MAX_FIELDS:
            raise ValueError(f"a record of more than {_MAX_FIELDS} fields")
        if size > _MAX_ITEM:
            raise ValueError(f"elements of more than {_MAX_ITEM} bytes")
        if not _is_name(name):
            raise ValueError("the name of a field is a text, or a title and a text")
    return size, count


@functools.lru_cache(maxsize=256)  # refused codes are not cached, and the others are short
def _plain_size(code: str) -> int:
    if len(code) > 32:
        raise ValueError("no dtype that nearcall carries")
    if found := re.fullmatch(_NUMBER, code):
        return int(found[found.lastgroup or 0])
    if found := re.fullmatch(_TEXT, code):
        size = int(found["length"]) * (4 if found["kind"] == "U" else 1)
        if size <= _MAX_ITEM:
            return size
    elif re.fullmatch(_TIME, code):
        return 8
    raise ValueError(f"no dtype that nearcall carries: {code!r}")


def _field(field: Any) -> tuple[Any, Any, int]:
    """A field's name, its dtype, and how many elements it holds."""
    if not is_list(field) or len(field) not in (2, 3):
        raise ValueError("a field is a name, a dtype and perhaps a shape")
    shape: Any = field[2] if len(field) == 3 else []
    if not is_list(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError("the shape of a field is a list of lengths")
    length = 1
    for side in shape:
        if type(side) is not int or not 1 <= side <= _MAX_ITEM:
            raise ValueError("the shape of a field has lengths of 1 or more")
        length *= side
    return field[0], field[1], length


def _is_name(name: Any) -> bool:
    if is_list(name):
        return len(name) == 2 and all(type(part) is str for part in name)
    return type(name) is str


def _tuples(code: Any) -> Any:
    """A dtype's description with tuples where msgpack made lists of them, as numpy requires."""
    if not is_list(code):
        return code
    return [(tuple(name) if is_list(name) else name, _tuples(kind), *map(tuple, shape)) for name, kind, *shape in code]
