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
        raise TypeError(
            f"{method!r} cannot be started: that takes a method without streams of a client that nearcall.connect "
            "made, and without interceptors. In an event loop write asyncio.ensure_future(...)"
        )
    return method.start(*args, **kwargs)
