"""``Server(error_handlers=...)``: what an exception of a handler becomes before it is sent, by its class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from ..options.checked import with_option

__all__ = ["ErrorHandlers", "check_error_handlers", "replaced"]

ErrorHandlers: TypeAlias = "Mapping[type[Exception], Callable[[Any], Exception]]"
"""From a class of exceptions to a function that returns, or raises, the exception to send in place of one."""


def check_error_handlers(handlers: ErrorHandlers) -> ErrorHandlers:
    """The option as given, copied.

    Raises:
        TypeError: the option is no mapping from exception classes to ordinary functions.
    """
    if not isinstance(cast(object, handlers), Mapping):
        raise _wrong(f"must be a dict from exception classes to functions, not {handlers!r}")
    checked = dict(handlers)
    for cls, handler in cast("dict[object, object]", checked).items():
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise _wrong(f"are by classes of exceptions, and {cls!r} is none")
        if not callable(handler):
            raise _wrong(f"must be functions, and that for {cls.__name__}, {handler!r}, is none")
        if inspect.iscoroutinefunction(handler):
            raise _wrong(f"must be ordinary functions, and that for {cls.__name__} is 'async def'")
    return checked


def replaced(error: BaseException, handlers: ErrorHandlers) -> BaseException:
    """What the error handler for the exception's nearest class makes of it; the exception itself if there is none."""
    handler = next((handlers[cls] for cls in type(error).__mro__ if cls in handlers), None)
    if handler is None:
        return error
    try:
        given = cast(object, handler(error))
    except Exception as raised:
        return raised
    if isinstance(given, Exception):
        if given is not error and given.__cause__ is None:
            given.__cause__ = error
        return given
    name = getattr(handler, "__name__", type(handler).__name__)
    return TypeError(f"the error handler {name} must return the exception to send, not {type(given).__name__}")


def _wrong(problem: str) -> TypeError:
    return with_option(TypeError(f"error_handlers {problem}"), "error_handlers")
