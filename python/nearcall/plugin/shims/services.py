"""Functions of the host's modules, called from plugins, and the host's side of that."""

from __future__ import annotations

import functools
import importlib
from abc import ABCMeta
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

from ..addon import use as use_service
from .turns import turn

__all__ = ["ERRORS", "AtPlugin", "Run", "at_host", "at_once", "at_plugin", "away", "load", "use"]

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


def away(made: T) -> T:
    """An object of the host's, to be called as what :func:`use` gives."""
    return cast("T", _Away(made))


C = TypeVar("C", bound=type)


def at_host(cls: C) -> C:
    """For stubs: objects of this class are the host's. An add-on that makes one has it made there, and calls it."""
    return cls


def at_plugin(cls: C) -> C:
    """For stubs: add-ons derive from this class. The host is handed each object that is made, and calls its methods."""
    return cls


class _Handing(ABCMeta):
    """Hands objects to the host when they are complete."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made._nearcall_hand_over()
        return made


class AtPlugin(metaclass=_Handing):
    """What add-ons derive from, where the host calls their objects."""

    def _nearcall_hand_over(self) -> None:
        raise NotImplementedError


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
