"""What a method returns if its caller is to get the items of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from typing import Any, TypeVar

from .. import _core

__all__ = ["Subscription"]

T_co = TypeVar("T_co", covariant=True)


class Subscription(_core.Subscription, Iterator[T_co], AsyncIterator[T_co]):
    """What a method returns to stream the items of a :class:`Topic` to its caller.

    It fits ``-> Iterator[T]`` and ``-> AsyncIterator[T]`` alike. To iterate over it in the server raises
    :class:`TypeError`: the items are for the method's caller.
    """

    def __next__(self) -> T_co:
        raise TypeError(_FOR_A_CALLER)

    def __anext__(self) -> Awaitable[T_co]:
        raise TypeError(_FOR_A_CALLER)

    def __await__(self) -> Generator[Any, None, Subscription[T_co]]:
        """The subscription itself, at once: for interceptors that await whatever a call returns."""
        yield from ()
        return self


_FOR_A_CALLER = (
    "a subscription is for a caller: return it from a method of a service, without yielding from it; interceptors must "
    "return it as it is, too"
)
