"""Names of options: one that is unknown is an error that says which one was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import unwrap
from typing import Any, Final, TypeVar, cast

__all__ = ["check_names", "checks_names", "option_names", "with_checked_names"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

_ELSEWHERE: Final = {
    "dependency_overrides": "overrides",
    "exception_handlers": "error_handlers",
    "max_message_length": "max_message_size",
    "max_receive_message_length": "max_message_size",
    "max_retries": "retry",
    "max_workers": "max_concurrency",
    "maximum_concurrent_rpcs": "max_concurrency",
    "middleware": "interceptors",
    "ssl": "tls",
}
"""What other libraries call it."""


_OF_SERVE: Final = {name: f"{name} is one of nearcall.serve" for name in ("grace", "on_ready", "workers")}
"""Options of the function beside the class ``Server``."""


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Looks for options that there are not.

    Args:
        given: The names that were written.
        known: Those that there are.

    Raises:
        TypeError: one is unknown; says which one was meant, or which there are.
    """
    names = list(known)
    for name in given:
        if name not in names:
            raise TypeError(f"there is no option '{name}': {_OF_SERVE.get(name) or _hint(name, names)}")


def _hint(name: str, known: list[str]) -> str:
    import difflib  # only on the way to an error

    spellings = {each: each for each in known} | {other: own for other, own in _ELSEWHERE.items() if own in known}
    close = difflib.get_close_matches(name, spellings, n=1)
    if close:
        return f"did you mean '{spellings[close[0]]}'?"
    return f"there {'are' if len(known) > 1 else 'is only'} {', '.join(known)}"


def option_names(function: Callable[..., Any]) -> list[str]:
    """What a function takes by name; its ``**options`` are not among them."""
    code = unwrap(function).__code__
    names = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    return [name for name in names if name != "self"]


def checks_names(function: F) -> F:
    """A decorator: calls with options that the function does not have say what was meant."""
    options = option_names(function)

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check_names(kwargs, options)
        return function(*args, **kwargs)

    return cast(F, checked)


def with_checked_names(cls: C) -> C:
    """The same for a class."""
    cast(Any, cls).__init__ = checks_names(cast(Any, cls).__init__)
    return cls
