"""Functions that convert between Protobuf's values and Python's, for types that Protobuf does not have.

For a value that does not fit they raise ``ValueError`` or ``TypeError``.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from ...types.hints import describe_value, short_repr
from ..arrays import array_header, read_array, wrong_dtype

__all__ = ["TEXTS", "allowed", "array_from", "array_of_lists", "array_to", "bounded", "within"]


def _of(cls: type, show: Callable[[Any], str]) -> Callable[[Any], str]:
    def text(value: Any) -> str:
        if not isinstance(value, cls) or (cls is datetime.date and isinstance(value, datetime.datetime)):
            raise TypeError(f"expected {cls.__name__}, got {describe_value(value)}")
        return show(value)

    return text


def _decimal(text: str) -> decimal.Decimal:
    try:
        if "_" in text:  # Python skips it
            raise decimal.InvalidOperation
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"{short_repr(text)} is no decimal number") from None


TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime.date: (_of(datetime.date, datetime.date.isoformat), datetime.date.fromisoformat),
    datetime.time: (_of(datetime.time, datetime.time.isoformat), datetime.time.fromisoformat),
    uuid.UUID: (_of(uuid.UUID, str), uuid.UUID),
    decimal.Decimal: (_of(decimal.Decimal, str), _decimal),
}
"""Types that are sent as text: the functions from the value to text, and back."""


def bounded(cls: type, limits: dict[str, Any]) -> Callable[[Any], None]:
    """Makes a check of the limits that ``msgspec.Meta`` sets for a number or a text."""
    annotation = Annotated[cls, msgspec.Meta(**limits)]  # type: ignore[valid-type]

    def check(value: Any) -> None:
        try:
            msgspec.convert(value, annotation)
        except msgspec.ValidationError as problem:
            text = str(problem).replace("`", "")
            raise ValueError(text[:1].lower() + text[1:]) from None

    return check


def within(min_length: int | None = None, max_length: int | None = None) -> Callable[[Sized], None]:
    """Makes a check of a container's length."""

    def check(value: Sized) -> None:
        if min_length is not None and len(value) < min_length:
            raise ValueError(f"expected at least {min_length} items, got {len(value)}")
        if max_length is not None and len(value) > max_length:
            raise ValueError(f"expected at most {max_length} items, got {len(value)}")

    return check


def allowed(values: tuple[Any, ...]) -> Callable[[Any], None]:
    """Makes a check that a value is among those of a ``Literal``."""
    names = ", ".join(map(repr, values))

    def check(value: Any) -> None:
        if not any(type(value) is type(each) and value == each for each in values):
            raise ValueError(f"expected one of {names}, got {short_repr(value)}")

    return check


def array_to(scalar: Any) -> Callable[[Any], tuple[str, tuple[int, ...], bytes]]:
    """Makes a function from an array to its dtype, shape and elements."""

    def to(value: Any) -> tuple[str, tuple[int, ...], bytes]:
        import numpy

        np: Any = numpy
        if not isinstance(value, np.ndarray):
            raise TypeError(f"expected ndarray, got {describe_value(value)}")
        if wrong_dtype(value, scalar):
            raise TypeError(f"expected an array of {scalar.__name__}, got one of {value.dtype}")
        array: Any = np.asarray(value, order="C") if type(value) is np.ndarray else value  # a masked one is refused
        header, data = array_header(array, 0)
        code, shape, order, _ = msgspec.msgpack.decode(header)
        if not isinstance(code, str) or order != "C":
            raise TypeError(f"an array of {value.dtype} cannot be sent in Protobuf: send plain arrays")
        return code, tuple(shape), data.tobytes()

    return to


def array_from(scalar: Any) -> Callable[[tuple[str, tuple[int, ...], bytes]], Any]:
    """Makes a function from dtype, shape and elements to the array, which is read-only."""

    def make(parts: tuple[str, tuple[int, ...], bytes]) -> Any:
        code, shape, data = parts
        array = read_array(msgspec.msgpack.encode((code, shape, "C", 0)), [memoryview(data)])
        if wrong_dtype(array, scalar):
            raise ValueError(f"expected an array of {scalar.__name__}, got one of {array.dtype}")
        return array

    return make


def array_of_lists(scalar: Any) -> Callable[[list[Any]], Any]:
    """Makes a function from numbers in lists, or lists of lists, to the array, which is read-only."""

    def make(numbers: list[Any]) -> Any:
        import numpy

        np: Any = numpy
        try:
            found = np.array(numbers, None if numbers else float)
        except ValueError:  # of different lengths
            found = None
        if found is None or found.dtype.kind not in "biuf":
            raise ValueError("expected an ndarray: numbers in lists of one length, or dtype, shape and data")
        array: Any = found
        if wrong_dtype(found, scalar):
            array = _converted(found, scalar)
        elif scalar is None and found.dtype.kind == "f" and _are_ints(np.array(numbers, object)):
            raise ValueError("expected an ndarray: no dtype has all of these ints")
        array.flags.writeable = False
        return array

    return make


def _converted(found: Any, scalar: Any) -> Any:
    """An array of numbers as one of another dtype.

    Raises:
        ValueError: they would be other numbers.
    """
    with suppress(TypeError):  # an abstract class of numbers
        made = found.astype(scalar)
        # Floats may be rounded, as JSON's numbers are anyway. One in the place of an int may be one that was rounded.
        is_rounded = made.dtype.kind in "biu" and found.dtype.kind == "f" and found.size
        if made.dtype.kind == "f" or (not is_rounded and (made == found).all()):
            return made
    raise ValueError(f"expected an array of {scalar.__name__}, got one of {found.dtype}")


def _are_ints(numbers: Any) -> bool:
    return bool(numbers.size) and not any(isinstance(number, float) for number in numbers.flat)
