"""What becomes of a call of an extension point: the same for threads and for event loops.

Each kind of extension point is a generator. It yields a list of questions that may be asked at once and gets the list
of their answers, :data:`SKIPPED` for a plugin that gave none; its result is that of the call. How questions are asked
is the caller's: in a thread (:func:`run`) or in an event loop (:func:`run_in_loop`).
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ..call.deadline import current_deadline, enter_deadline, leave_deadline
from ..errors import Cancelled, DeadlineExceeded, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from .circuit import Circuit
    from .points import ExtensionPoint

__all__ = ["SKIPPED", "Handler", "Late", "Question", "begin", "run", "run_in_loop"]

SKIPPED: Final[Any] = object()
"""In the place of an answer: the plugin was not asked, was late, or failed."""

_ROUNDING = 0.001
"""Seconds by which the core may be earlier with a deadline than this clock."""
_QUICK = 0.001
"""Seconds: handlers that took less are called one after the other, as a hop to another thread costs more than they."""


class Late(Exception):
    """A plugin did not answer within its budget."""


class Handler:
    """One plugin's handler of one extension point.

    Args:
        point: The extension point.
        plugin: The plugin's id.
        priority: The higher, the earlier.
        call: Calls it: in a thread, or to be awaited.
        budget: Seconds that it may take.
        circuit: Whether the plugin is asked.
        report: Told when the plugin fails, with the error, :class:`Late` among them; and when it answers again, with
            ``None``.
    """

    def __init__(
        self,
        point: ExtensionPoint[..., Any],
        plugin: str,
        priority: int,
        call: Callable[..., Any],
        budget: float,
        circuit: Circuit,
        report: Callable[[Handler, BaseException | None], None],
    ) -> None:
        self.point = point
        self.plugin = plugin
        self.priority = priority
        self.call = call
        self.budget = budget
        self.circuit = circuit
        self.took = 0.0
        """Seconds of the last call."""
        self._report = report

    def failed(self, error: BaseException, question: Question, began: float, until: float) -> None:
        """A call raised: finds out whose fault that is, and tells.

        Args:
            error: What was raised.
            question: What was asked.
            began: When, by the monotonic clock.
            until: When the answer had to be there.

        Raises:
            InvalidArgument: it is the caller's.
        """
        self.took = self.budget
        if isinstance(error, DeadlineExceeded) and time.monotonic() > until - _ROUNDING:
            if until < began + self.budget:
                # The caller had less time than the budget: that is not the plugin's fault.
                self.circuit.given_up()
            else:
                self._report(self, Late(error.message))
            return
        if isinstance(error, InvalidArgument):
            self.circuit.given_up()
            arguments = self.point.plan.arguments
            arguments.encode_named(arguments.bind(question.args, question.kwargs))
        if isinstance(error, (Cancelled, Unavailable)):
            self.circuit.given_up()  # it is being stopped, or has ended: the host is told of that
            return
        if self.circuit.answered():
            self._report(self, None)
        self._report(self, error)

    def answered(self, began: float) -> None:
        """A call came back in time."""
        self.took = time.monotonic() - began
        if self.circuit.answered():
            self._report(self, None)


class Question(NamedTuple):
    """What one handler is asked."""

    handler: Handler
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Asking = Generator[list[Question], list[Any], Any]


def begin(
    point: ExtensionPoint[..., Any], handlers: Sequence[Handler], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Asking:
    """A call of an extension point.

    Args:
        point: The extension point.
        handlers: Its handlers in order.
        args: By position.
        kwargs: By name.
    """
    return _KINDS[point.kind](point, handlers, args, kwargs)


def _all(handlers: Sequence[Handler], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Question]:
    return [Question(handler, args, kwargs) for handler in handlers]


def _action(_point: Any, handlers: Sequence[Handler], args: Any, kwargs: Any) -> Asking:
    yield _all(handlers, args, kwargs)


def _filter(point: ExtensionPoint[..., Any], handlers: Sequence[Handler], args: Any, kwargs: Any) -> Asking:
    name = point.parameters[0]
    if args:
        value, *rest = args
    elif name in kwargs:
        kwargs = dict(kwargs)
        value, rest = kwargs.pop(name), []
    else:
        raise InvalidArgument(f"{point.name}() needs '{name}': the value that is passed through")
    by_name = point.signature.parameters[name].kind is point.signature.parameters[name].KEYWORD_ONLY
    for handler in handlers:
        if by_name:
            question = Question(handler, tuple(rest), {**kwargs, name: value})
        else:
            question = Question(handler, (value, *rest), kwargs)
        answer = (yield [question])[0]
        if answer is not SKIPPED:
            value = answer
    return value


def _decider(_point: Any, handlers: Sequence[Handler], args: Any, kwargs: Any) -> Asking:
    for handler in handlers:
        if (yield [Question(handler, args, kwargs)])[0] is False:
            return False
    return True


def _accumulating(point: ExtensionPoint[..., Any], handlers: Sequence[Handler], args: Any, kwargs: Any) -> Asking:
    answers = yield _all(handlers, args, kwargs)
    return point.default if all(answer in (SKIPPED, point.default) for answer in answers) else not point.default


def _chain(_point: Any, handlers: Sequence[Handler], args: Any, kwargs: Any) -> Asking:
    answers = yield _all(handlers, args, kwargs)
    return [item for answer in answers if answer is not SKIPPED for item in answer]


_KINDS: Final[dict[str, Callable[..., Asking]]] = {
    "action": _action,
    "filter": _filter,
    "decider": _decider,
    "accumulating decider": _accumulating,
    "chain": _chain,
}


def _until(handler: Handler, now: float) -> float | None:
    """When the answer has to be there, by the monotonic clock; ``None`` if there is no time left to ask."""
    outer = current_deadline.get()
    until = now + handler.budget
    if outer is None or until <= outer:
        return until
    return outer if now < outer else None


class _Attempt:
    """What is around a plugin's answer, called or awaited: its deadline, and what becomes of a failure."""

    __slots__ = ("_began", "_question", "_token", "_until")

    def __init__(self, question: Question, began: float, until: float) -> None:
        self._question = question
        self._began = began
        self._until = until

    @staticmethod
    def begin(question: Question) -> _Attempt | None:
        """``None`` if the plugin is not to be asked."""
        began = time.monotonic()
        until = _until(question.handler, began)
        if until is None or not question.handler.circuit.allows():
            return None
        return _Attempt(question, began, until)

    def __enter__(self) -> None:
        self._token = enter_deadline(self._until)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        handler = self._question.handler
        try:
            if isinstance(error, Exception):
                handler.failed(error, self._question, self._began, self._until)
            elif error is not None:
                handler.circuit.given_up()
        finally:
            leave_deadline(self._token)
        if error is None:
            handler.answered(self._began)
        return isinstance(error, Exception)


def _ask(question: Question) -> Any:
    """Asks one plugin from a thread."""
    answer = SKIPPED
    if attempt := _Attempt.begin(question):
        with attempt:
            answer = question.handler.call(*question.args, **question.kwargs)
    return answer


async def _ask_in_loop(question: Question) -> Any:
    """The same from an event loop."""
    answer = SKIPPED
    if attempt := _Attempt.begin(question):
        with attempt:
            answer = await cast("Awaitable[Any]", question.handler.call(*question.args, **question.kwargs))
    return answer


def run(asking: Asking, threads: Callable[[], Executor]) -> Any:
    """Runs a call of an extension point in this thread.

    Args:
        asking: The call.
        threads: Where handlers run that took long the last time, if several may be asked at once.
    """
    try:
        questions = next(asking)
        while True:
            answers = [_ask(questions[0])] if len(questions) == 1 else _ask_all(questions, threads)
            questions = asking.send(answers)
    except StopIteration as end:
        return end.value


def _ask_all(questions: list[Question], threads: Callable[[], Executor]) -> list[Any]:
    aside: dict[int, Future[Any]] = {}
    slow = [at for at, question in enumerate(questions) if question.handler.took > _QUICK]
    if len(slow) > 1:
        for at in slow:
            aside[at] = threads().submit(contextvars.copy_context().run, _ask, questions[at])
    answers = [SKIPPED if at in aside else _ask(question) for at, question in enumerate(questions)]
    for at, future in aside.items():
        answers[at] = future.result()
    return answers


async def run_in_loop(asking: Asking) -> Any:
    """Runs a call of an extension point in the running event loop."""
    try:
        questions = next(asking)
        while True:
            if len(questions) == 1:
                answers = [await _ask_in_loop(questions[0])]
            else:
                import asyncio

                answers = list(await asyncio.gather(*map(_ask_in_loop, questions)))
            questions = asking.send(answers)
    except StopIteration as end:
        return end.value
