"""Calls of functions in the host's modules, from plugins, and the host's side of these calls."""

from __future__ import annotations

import functools
import importlib
from abc import ABCMeta
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

from ..inside.addon import use as use_service
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
"""Built-in exceptions that code written for one process may catch: an exception of the host's module arrives as the
same class, or as the nearest of these.
"""

T = TypeVar("T")


class _Away:
    """A service of the host. A thread that calls it gives the turn away until the answer has arrived."""

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
    """A service of the host, as :func:`nearcall.plugin.use` gives it. During a call of it, other code of the plugin may
    run: see :class:`Turn`.

    Raises:
        TypeError, ValueError: as for :func:`nearcall.plugin.use`.
    """
    return cast("T", _Away(use_service(permission, service)))


def away(made: T) -> T:
    """An object of the host, to be called like a service from :func:`use`."""
    return cast("T", _Away(made))


C = TypeVar("C", bound=type)


def at_host(cls: C) -> C:
    """For stubs: objects of this class live in the host. If an add-on makes one, it is made there, and the add-on calls
    it.
    """
    return cls


def at_plugin(cls: C) -> C:
    """For stubs: add-ons derive from this class. The host gets each object that is made, and calls its methods."""
    return cls


class _Handing(ABCMeta):
    """Passes objects to the host when their ``__init__`` has ended."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made._nearcall_hand_over()
        return made


class AtPlugin(metaclass=_Handing):
    """The base of classes whose objects the host calls."""

    def _nearcall_hand_over(self) -> None:
        raise NotImplementedError


def load(*modules: str) -> list[ModuleType]:
    """Imports a plugin's modules, with the turn held. Call it in the entry function: the host has connected by then, so
    modules may call the host while they are imported.

    Args:
        modules: Their names.

    Returns:
        The modules.
    """
    with turn:
        return [importlib.import_module(name) for name in modules]


class Run(Protocol):
    """Calls a function where a host's own code must run, such as in its main thread, and returns its result."""

    def __call__(self, function: Callable[[], T], /) -> T: ...  # noqa: D102


def at_once(function: Callable[[], T]) -> T:
    """Calls a function in the thread that serves the call, which is one of several: for hosts whose code allows
    that.
    """
    return function()
