"""``nearcall.start``: a call that is sent now and waited for later, so that one thread may have several under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .. import _core
from .._core import StartedCall

__all__ = ["StartedCall", "start"]

P = ParamSpec("P")
R = TypeVar("R")


def start(method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> StartedCall[R]:
    """Sends a call and does not wait for its reply, nor for room to send it::

        sums = [nearcall.start(calc.add, number, number) for number in range(10)]
        print([each.result() for each in sums])

    ``result()`` waits, and raises what the call raises; it can be asked once. ``cancel()`` gives the call up, and so
    does letting go of what this returns. The call's deadline is that of the blocks around ``start``, not of those
    around ``result()``.

    Args:
        method: A method of a client for threads, or of an object that came from one, that takes and returns single
            values.
        args: Its arguments.
        kwargs: Those by name.

    Raises:
        TypeError: it is no such method, or the client has interceptors, which wait for their calls.
        InvalidArgument: the arguments do not fit.
        RpcError: it cannot be sent.
    """
    if not isinstance(method, _core.Unary):
        raise TypeError(_advice(method))
    return method.start(*args, **kwargs)


def _advice(given: object) -> str:
    if not callable(given):
        return (
            f"nearcall.start takes a method and its arguments, start(calc.add, 1, 2), not what it returned: {given!r}"
        )
    name = getattr(given, "__qualname__", None) or repr(given)
    return (
        f"{name} cannot be started: that takes a method of a client that nearcall.connect made, without streams, not "
        "one-way, and without interceptors. In an event loop write asyncio.ensure_future(...)"
    )
