"""Functions that are put around the methods of all clients of this process, for profilers. Without any, calls cost what
they cost: a method is wrapped when it is made, once for each client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..service.plan import MethodPlan

__all__ = ["Wrap", "put_around", "startable", "starter", "wrapped"]

Wrap: TypeAlias = "Callable[[MethodPlan, Callable[..., Any], bool], Callable[..., Any]]"
"""Takes a method's plan, its callable, and whether that is for an event loop. Returns what is called in its place,
which may be the same.
"""

_wraps: list[Wrap] = []
_STARTER = "__nearcall_starter__"


def put_around(wrap: Wrap) -> None:
    """Wraps the methods of all clients that are made from now on. Inside interceptors: it sees what is sent."""
    _wraps.append(wrap)


def wrapped(plan: MethodPlan, function: Callable[..., Any], *, for_loop: bool) -> Callable[..., Any]:
    """A method's callable with all that was put around it."""
    for wrap in _wraps:
        function = wrap(plan, function, for_loop)
    return function


def startable(function: Callable[..., Any], start: Callable[..., Any]) -> None:
    """Lets ``nearcall.start`` take a wrapped method: ``start`` takes the arguments, and returns the started call."""
    setattr(function, _STARTER, start)


def starter(function: object) -> Callable[..., Any] | None:
    """What starts a call of a wrapped method, if it can be started."""
    found: Callable[..., Any] | None = getattr(function, _STARTER, None)
    return found
