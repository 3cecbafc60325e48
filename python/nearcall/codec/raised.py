"""What an exception holds, wherever it holds it, and an exception of a class that holds the same again.

Python's own exceptions keep much outside ``args`` and ``__dict__``: an ``OSError`` its file's name, a ``UnicodeError``
all that its text says. Their own ``__init__``, in C, only stores; that of an application's class is not run.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from .construction import base_in_c, is_in_python, members_of

__all__ = ["attributes_of", "empty_error", "exceptions_in", "set_attributes", "with_context"]

_IN_C: Final = frozenset({"filename", "filename2", "name", "path"})
"""What Python's own exceptions keep in C and leave out of ``args``. They may hold any object: Python checks it where it
uses it. The rest comes from ``args``, and Python's constructors check it: some of it would harm the process.
"""

E = TypeVar("E", bound=BaseException)
_context: Final[Any] = vars(BaseException)["__context__"]


def with_context(error: E) -> E:
    """An exception that is raised next by the core; its context is what is being handled where it is raised.

    Python's own ``raise`` sees to that, but not what raises in Rust.
    """
    _context.__set__(error, sys.exc_info()[1])  # no code of its class runs
    return error


def attributes_of(error: BaseException) -> dict[str, Any]:
    """The attributes of an exception, also those that are kept in slots or in C."""
    held = {name: getattr(error, name, None) for name in _slots(cast(Any, type(error)))}
    return {**{name: value for name, value in held.items() if value is not None}, **vars(error)}


def set_attributes(error: BaseException, attributes: dict[str, Any]) -> None:
    """Gives an exception its attributes. No code of its class runs."""
    slots = _slots(cast(Any, type(error)))
    for name, value in attributes.items():
        if name in slots:
            slots[name].__set__(error, value)
        else:
            error.__dict__[name] = value


def empty_error(cls: type[Exception], args: Sequence[Any]) -> Exception:
    """An exception of a class, made as Python's own base of it makes one of these arguments."""
    base = base_in_c(cls)
    error: Exception = base.__new__(cls, *args)
    if issubclass(cls, UnicodeError) and any(isinstance(arg, int) and arg < 0 for arg in args):
        return error  # its text would be read from before the object's beginning
    # An application's class may have set arguments that its base does not take.
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        base.__init__(error, *args)
    return error


def exceptions_in(error: BaseException) -> Sequence[BaseException] | None:
    """The exceptions in a group; ``None`` if it is none."""
    inner = getattr(error, "exceptions", None)
    is_group = any(cls.__name__ == "BaseExceptionGroup" and cls.__module__ == "builtins" for cls in type(error).__mro__)
    return cast("Sequence[BaseException]", inner) if is_group else None


@functools.lru_cache(maxsize=256)
def _slots(cls: Any) -> dict[str, Any]:
    """The descriptors of the attributes that are kept in slots or in C, by name."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        in_python = is_in_python(base)
        members = {name: each for name, each in members_of(base).items() if inspect.ismemberdescriptor(each)}
        found |= {name: each for name, each in members.items() if in_python or name in _IN_C}
    return found
