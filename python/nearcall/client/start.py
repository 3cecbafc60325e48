"""``nearcall.start``: a call that is sent now and waited for later, so that one thread may have several under way."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from .. import _core
from .._core import StartedCall
from ..call.around import starter
from ..call.interceptors import interceptors_that_wait
from ..errors import Cancelled
from ..log import ERROR, log

__all__ = ["StartedCall", "as_completed", "start"]

P = ParamSpec("P")
R = TypeVar("R")


def start(method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> StartedCall[R]:
    """Sends a call and does not wait for its reply, nor for room to send it::

        sums = [nearcall.start(calc.add, number, number) for number in range(10)]
        print([each.result() for each in sums])

    ``result()`` waits, and raises what the call raises; ``exception()`` waits and returns that; ``done()`` tells at
    once whether the call has ended, and ``add_done_callback(function)`` calls a function then. ``cancel()`` gives the
    call up, and so does dropping the last reference to what this returns. The call's deadline is that of the blocks
    around ``start``, not of those around ``result()``. For several calls, :func:`as_completed` yields each as it ends.

    Args:
        method: A method of a client for threads, or of an object that came from one, that takes and returns single
            values.
        args: Its arguments.
        kwargs: Its arguments by name.

    Raises:
        TypeError: it is no such method, or the client has interceptors: they wait for their calls, so each needs a
            thread, such as one of a ``ThreadPoolExecutor``.
        InvalidArgument: the arguments do not fit.
        RpcError: the call cannot be sent.
    """
    if isinstance(method, _core.Unary):
        return method.start(*args, **kwargs)
    begin = starter(method)
    if begin is None:
        raise TypeError(_advice(method))
    return cast("StartedCall[R]", begin(*args, **kwargs))


def as_completed(calls: Iterable[StartedCall[R]], timeout: float | None = None) -> Iterator[StartedCall[R]]:
    """Yields each call as soon as it has ended. The calls may be of any number of servers::

        asked = [nearcall.start(replica.find, "ada") for replica in replicas]
        first = next(nearcall.as_completed(asked)).result()

    Args:
        calls: Calls that ``start`` returned; each is yielded once.
        timeout: Seconds from now on for all of them.

    Raises:
        TypeError: something else is among them.
        TimeoutError: from the iterator: the time is over before all calls have ended. The remaining calls go on.
    """
    pending = list(dict.fromkeys(calls))
    for call in pending:
        if not isinstance(cast(object, call), StartedCall):
            raise TypeError(f"as_completed takes what nearcall.start returns, and {call!r} is something else")
    return _as_completed(pending, None if timeout is None else time.monotonic() + timeout)


def _as_completed(pending: list[StartedCall[R]], until: float | None) -> Iterator[StartedCall[R]]:
    count = len(pending)
    while pending:
        places = _core.wait_for_started(pending, None if until is None else max(0.0, until - time.monotonic()))
        if not places:
            raise TimeoutError(f"{len(pending)} of {count} calls have not ended; they are still under way")
        ended = [pending[place] for place in places]
        gone = set(places)
        pending = [call for place, call in enumerate(pending) if place not in gone]
        while ended:
            yield ended.pop(0)


def _watch(call: StartedCall[Any], function: Callable[[StartedCall[Any]], object]) -> None:
    if not callable(function):
        raise TypeError(f"add_done_callback takes a function, not {function!r}")
    if call.done():
        _tell(call, function)
    else:
        threading.Thread(target=_tell, args=(call, function), name="nearcall-done", daemon=True).start()


def _tell(call: StartedCall[Any], function: Callable[[StartedCall[Any]], object]) -> None:
    with contextlib.suppress(Cancelled):  # it was given up
        call.exception()
    try:
        function(call)
    except Exception as error:
        log(ERROR, "what %r calls at its end raised", call, error=error)


_core.set_watch_of_started(_watch)


def _advice(given: object) -> str:
    if not callable(given):
        return (
            f"nearcall.start takes a method and its arguments, start(calc.add, 1, 2), not what it returned: {given!r}"
        )
    name = getattr(given, "__qualname__", None) or repr(given)
    interceptors = interceptors_that_wait(given)
    if interceptors is not None:
        return (
            f"{name} cannot be started: this client has interceptors ({interceptors}), which wait for their calls. Let "
            "a thread do so, ThreadPoolExecutor().submit(...), or start calls of a client without interceptors"
        )
    return (
        f"{name} cannot be started: that takes a method of a client that nearcall.connect made, without streams and "
        "not one-way. In an event loop write asyncio.ensure_future(...)"
    )
