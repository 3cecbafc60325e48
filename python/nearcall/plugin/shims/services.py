"""Functions of the host's modules, called from plugins, and the host's side of that."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

from ..addon import use as use_service
from .turns import turn

__all__ = ["ERRORS", "Run", "at_once", "load", "use"]

ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of Python that code of one process catches: what the host's module raises arrives as the same class, or as
the nearest of these."""

T = TypeVar("T")


class _Away:
    """A service of the host; who calls it gives the turn away until the answer is there."""

    def __init__(self, service: object) -> None:
        self._nearcall_service = service

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._nearcall_service, name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with turn.away():
                return method(*args, **kwargs)

        return call


def use(permission: str, service: Callable[..., T]) -> T:
    """A service of the host, as :func:`nearcall.plugin.use` gives it. While it is called, other code of the plugin may
    run: see :class:`Turn`.

    Raises:
        TypeError, ValueError: as there.
    """
    return cast("T", _Away(use_service(permission, service)))


def load(*modules: str) -> list[ModuleType]:
    """Imports a plugin's modules when its turn comes. In the entry function the host has connected: so code that calls
    the host while it is imported works.

    Args:
        modules: Their names.

    Returns:
        The modules.
    """
    with turn:
        return [importlib.import_module(name) for name in modules]


class Run(Protocol):
    """Calls a function where a host wants its own code to run, such as in its main thread, and gives its result."""

    def __call__(self, function: Callable[[], T], /) -> T: ...  # noqa: D102


def at_once(function: Callable[[], T]) -> T:
    """Calls a function in the thread that asks, which is one of several: for hosts whose code allows that."""
    return function()
