"""Turns handlers' exceptions into statuses for callers, and logs faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from ..codec.statuses import describe_error
from ..errors import RpcError
from ..log import DEBUG, ERROR, WARNING, is_logged, known_peer, log
from ..service.plan import ONEWAY, MethodPlan
from ..status import StatusCode
from ..types.shown import shown
from .error_handlers import ErrorHandlers, replaced

if TYPE_CHECKING:
    from .. import _core

__all__ = ["Describe", "Failures"]

Describe = Callable[[BaseException, "_core.Call"], "tuple[int, str, bytes]"]
"""From a handler's exception and its call to the status that is sent: code, message, details."""

BURST = 5
"""Lines with a traceback that are written about the same fault within :data:`WINDOW`."""
WINDOW = 10.0
"""Seconds after which a line tells how many were left out."""
MOST_FAULTS = 256
"""Faults that are told apart at the same time; further faults of a method count as one."""


UNKNOWN = "nearcall.Unknown.Method"
"""The method that answers calls to paths which a server does not know: its fallback."""


class _Seen:
    """How often a fault was written and left out since its window began."""

    __slots__ = ("left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0


class Failures:
    """The faults of a server's handlers. One object for each server; any thread may use it.

    Args:
        handlers: The server's option ``error_handlers``.
    """

    def __init__(self, handlers: ErrorHandlers | None = None) -> None:
        self._handlers = handlers
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, ...], _Seen] = {}
        self._timer: threading.Timer | None = None

    def describer(self, plan: MethodPlan, declared: Collection[type[Exception]], tracebacks: bool) -> Describe:
        """The function that the core calls with each exception of a method's handler.

        Args:
            plan: The method.
            declared: The application's exceptions that travel as themselves.
            tracebacks: Whether tracebacks are sent to clients.
        """
        status_of = partial(describe_error, declared=declared, tracebacks=tracebacks)
        meant: tuple[type[BaseException], ...] = (RpcError, *declared)

        def describe(error: BaseException, call: _core.Call) -> tuple[int, str, bytes]:
            if self._handlers:
                error = replaced(error, self._handlers)
            try:
                status = status_of(error)
                self._tell(plan, error, call, status[0], isinstance(error, meant))
                return status
            finally:
                # An exception that an error handler raised refers to that handler's frame, and the frame refers to this
                # one. An idle server collects no cycles, so the first exception, and all that it refers to, would live
                # on.
                del error

        return describe

    def _tell(self, plan: MethodPlan, error: BaseException, call: _core.Call, code: int, meant: bool) -> None:
        level = ERROR
        if meant and code != StatusCode.INTERNAL:
            # A status that was raised on purpose: the caller gets it, unless the call is one-way.
            level = WARNING if plan.kind == ONEWAY else DEBUG
        if not is_logged(level):
            return
        name = type(error).__name__
        left_out = self._count(plan.full_name, name, _place(error))
        if left_out is None:
            return
        text = "%s raised %s, called by %s"
        if plan.kind == ONEWAY:
            text += "; it is one-way, so no client learns of it"
        if left_out:
            text += f" (and {left_out} times more since the last line of it)"
        log(level, text, _called(plan, call), name, known_peer(call.peer), error=error, begin_with_user=True)

    def tell(self, what: str, error: BaseException, peer: dict[str, Any]) -> None:
        """Logs what a function of the server's user raised that is no handler: ``on_connect``, for instance."""
        name = type(error).__name__
        left_out = self._count(what, name, _place(error)) if is_logged(ERROR) else None
        if left_out is not None:
            text = "%s raised %s" + (", for the client %s" if peer else "%s")
            if left_out:
                text += f" (and {left_out} times more since the last line of it)"
            log(ERROR, text, what, name, known_peer(peer), error=error, begin_with_user=True)

    def _count(self, method: str, name: str, place: str) -> int | None:
        """How many lines were left out before this one; ``None`` if this one is to be left out, too."""
        now = time.monotonic()
        with self._lock:
            key: tuple[str, ...] = (method, name, place)
            if key not in self._seen and len(self._seen) >= MOST_FAULTS:
                self._seen = {
                    key: seen for key, seen in self._seen.items() if seen.left_out or now - seen.since < WINDOW
                }
                if len(self._seen) >= MOST_FAULTS:
                    key = (method,)
            seen = self._seen.setdefault(key, _Seen(now))
            if now - seen.since >= WINDOW:
                seen.since, seen.written = now, 0
            elif seen.written >= BURST:
                seen.left_out += 1
                self._set_timer()
                return None
            seen.written += 1
            left_out, seen.left_out = seen.left_out, 0
            return left_out

    def _set_timer(self) -> None:
        """Called with the lock held. The timer writes how many lines were left out, even if the fault does not occur
        again.
        """
        if self._timer is None:
            self._timer = threading.Timer(WINDOW, self._on_timer)
            self._timer.daemon = True
            self._timer.name = "nearcall-failures"
            try:
                self._timer.start()
            except RuntimeError:
                self._timer = None  # no more threads: the next fault, or `flush`, writes it

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
        self._tell_left_out(time.monotonic() - WINDOW)

    def flush(self) -> None:
        """Called when the server has ended: writes how many lines were left out."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._tell_left_out(time.monotonic())

    def _tell_left_out(self, until: float) -> None:
        with self._lock:
            over = {key: seen for key, seen in self._seen.items() if seen.since <= until}
            for key in over:
                del self._seen[key]
            if any(seen.left_out for seen in self._seen.values()):
                self._set_timer()
        for (method, *name), seen in over.items():
            if seen.left_out:
                what = name[0] if name else "exceptions of many kinds"
                log(ERROR, "%s raised %s %d times more", method, what, seen.left_out)


def _called(plan: MethodPlan, call: _core.Call) -> str:
    """The method's full name; where a fallback answers, the path that was asked for."""
    if plan.full_name != UNKNOWN:
        return plan.full_name
    path = dict(call.metadata).get(":path", b"")
    return f"the fallback for {shown(path.decode(errors='replace'), 200)}"


def _place(error: BaseException) -> str:
    """Where an exception was raised, which tells faults of one class apart."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
