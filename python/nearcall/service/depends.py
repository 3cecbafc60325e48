"""``nearcall.depends``: parameters of handlers that the server fills in, of which callers know nothing."""

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
    """What stands where a server fills in a value; made by :func:`depends`."""

    __slots__ = ("provider",)

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def __repr__(self) -> str:
        return f"nearcall.depends({provider_name(self.provider)})"

    def __getattr__(self, name: str) -> NoReturn:
        # Whoever calls a handler as an ordinary method meets this in the place of a value.
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
            value. If it is a generator, that is what it yields, and what comes after the ``yield`` runs when the
            handler is through, before its reply is sent; an exception of the handler is raised at the ``yield``. It
            may be ``async def`` for handlers that are. Its own parameters have defaults, which may be dependencies as
            well; within a call each provider is asked once. The server's ``lifespan`` is a provider, too: it gives what
            it has yielded when the server started.

    Raises:
        TypeError: it cannot be called.
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
    """How messages speak of it."""
    return shown(getattr(provider, "__name__", None) or type(provider).__name__)
