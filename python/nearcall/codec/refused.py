"""What code of the user's raises over a value: what is told of it, and how it becomes the cause of the call's error.

Such code belongs to a class, such as ``__post_init__``, or to :func:`nearcall.register_type`. The peer has chosen the
value that it sees, so whatever it raises refuses the value, and the error says where that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import RpcError
from ..types.shown import shown
from .senders import MisfitError

__all__ = ["RefusedError", "refusing", "told", "users_error"]


class RefusedError(ValueError):
    """Code of the user's refuses a value that arrived; the cause is what it raised."""


def told(problem: Exception, whose: str) -> str:
    """What an exception says, in one line.

    Args:
        problem: The exception.
        whose: Whose code it is. It is named, with the exception's class, unless that is one for wrong values: the text
            of a ``KeyError``, say, tells little by itself.
    """
    text, name = shown(" ".join(str(problem).split())), type(problem).__name__
    if text and isinstance(problem, (TypeError, ValueError)):
        return text
    return f"{whose} raised {name}: {text}" if text else f"{whose} raised {name}"


def refusing(check: Callable[..., object], whose: str) -> Callable[..., None]:
    """The same check; what it raises becomes a :class:`RefusedError`, so that the decoder says where the value is."""

    def checked(*values: Any) -> None:
        try:
            check(*values)
        except (MemoryError, RpcError):
            raise
        except Exception as problem:  # of any class: the user's code
            raise RefusedError(told(problem, whose)) from problem

    return checked


def users_error(error: BaseException) -> BaseException | None:
    """What code of the user's raised, if that led to an error of an encoder or decoder."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, (MisfitError, RefusedError)):
        found = found.__cause__
    return None if found is None else found.__cause__
