"""Checks options: an error is one line, which names the option and says what it may be."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any, Final, TypeVar, cast

from ..errors import InvalidArgument

__all__ = ["check_flag", "check_seconds", "check_url", "check_whole", "with_option"]

E = TypeVar("E", bound=Exception)

_LONGEST: Final = 1e9
"""Seconds; about 31 years. Clocks overflow not far beyond."""
_LARGEST: Final = 2**63 - 1


def with_option(error: E, option: str) -> E:
    """The error, with its attribute ``option`` set: programs need not search the message for the name."""
    cast(Any, error).option = option
    return error


def check_whole(option: str, value: Any, unit: str = "", *, least: int = 1) -> int:
    """A whole number, such as a size.

    Raises:
        InvalidArgument: it is no integer, too small or too large.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not least <= number <= _LARGEST:
        of = f" of {unit}" if unit else ""
        error = InvalidArgument(f"{option} must be a whole number{of} from {least}, not {value!r}")
        raise with_option(error, option)
    return number


def check_seconds(option: str, value: Any, *, otherwise: str = "", endless: bool = False) -> float:
    """A number of seconds.

    Args:
        option: Its name.
        value: The value that was given.
        otherwise: Another value that the option may have, for the message.
        endless: Whether infinity is allowed.

    Raises:
        InvalidArgument: it is no number, negative, or too large.
    """
    number = -1.0
    if not isinstance(value, (str, bytes, bytearray, bool)):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not 0 <= number <= _LONGEST and not (endless and number == math.inf):
        also = f", or {otherwise}" if otherwise else ""
        error = InvalidArgument(f"{option} must be a number of seconds from 0 to 1e9{also}, not {value!r}")
        raise with_option(error, option)
    return number


def check_flag(option: str, value: Any) -> bool:
    """``True`` or ``False``.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(value, bool):
        raise with_option(TypeError(f"{option} must be True or False, not {value!r}"), option)
    return value


def check_url(url: object, *, service: bool = True) -> None:
    """A client's URL, as far as Python can tell.

    Args:
        url: The value that was given.
        service: Whether a service follows it in the call, for the message.

    Raises:
        TypeError: it is no ``str``.
    """
    if isinstance(url, type):
        write = f"connect(url, {url.__name__})" if service else f"Channel(url).client({url.__name__})"
        raise TypeError(f"the URL comes first: write {write}")
    if not isinstance(url, str):
        raise TypeError(f"the URL must be a str such as shm://name, not {url!r}")
