"""``nearcall.depends``: parameters of handlers that the server fills in, and callers do not see."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, NoReturn, TypeAlias, TypeVar, overload

from ..types.shown import shown

__all__ = ["Dependency", "Provider", "depends", "is_asynchronous", "provider_name"]

T = TypeVar("T")
Provider: TypeAlias = "Callable[..., Any]"
"""A function that gives a value."""


class Dependency:
    """The default of a parameter that the server fills in; made by :func:`depends`."""

    __slots__ = ("provider",)

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def __repr__(self) -> str:
        return f"nearcall.depends({provider_name(self.provider)})"

    def __getattr__(self, name: str) -> NoReturn:
        # Code that calls a handler as an ordinary method finds this object in place of a value.
        raise AttributeError(
            f"{self!r} has no '{name}': only a server fills it in; give the argument when you call the method yourself"
        )


@overload
def depends(provider: Callable[..., AsyncIterator[T]], /) -> T: ...
@overload
def depends(provider: Callable[..., Iterator[T]], /) -> T: ...
@overload
def depends(provider: Callable[..., Coroutine[Any, Any, T]], /) -> T: ...
@overload
def depends(provider: Callable[[Any], AbstractAsyncContextManager[T]], /) -> T: ...
@overload
def depends(provider: Callable[[Any], AbstractContextManager[T]], /) -> T: ...
@overload
def depends(provider: Callable[..., T], /) -> T: ...
def depends(provider: Callable[..., Any], /) -> Any:
    """The default of a handler's parameter that the server fills in for each call; callers cannot give it.

    ::

        def order(self, item: str, *, session: Session = nearcall.depends(session)) -> int: ...

    Args:
        provider: Called for each call, in the handler's own thread or task, after interceptors. Its result is the
            value. The value of a generator is what it yields; the code after the ``yield`` runs when the handler has
            ended, before its reply is sent; an exception of the handler is raised at the ``yield``. A provider may be
            ``async def`` if the handler is. Its own parameters have defaults, which may be dependencies as well; within
            a call each provider is asked once. The server's ``lifespan`` is a provider, too: its value is what it
            yielded when the server started.

    Raises:
        TypeError: ``provider`` cannot be called.
    """
    given: Any = provider
    if not isinstance(given, Hashable) or not callable(given):
        raise TypeError(f"depends() takes a function that gives the value, not {shown(repr(provider))}")
    return Dependency(provider)


def is_asynchronous(provider: Provider) -> bool:
    """Whether a function has to be awaited, or is an asynchronous generator."""
    return any(
        check(function)
        for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        for function in (provider, getattr(provider, "__call__", None))  # noqa: B004 - an object may have such a one
    )


def provider_name(provider: Provider) -> str:
    """A provider's name for messages."""
    return shown(getattr(provider, "__name__", None) or type(provider).__name__)
