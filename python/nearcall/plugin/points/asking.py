"""Calls of extension points, the same for threads and for event loops.

Each kind of extension point is a generator. It yields a list of questions that may be asked at once and gets the list
of their answers, :data:`SKIPPED` for a plugin that gave none; its result is the result of the call. The caller decides
how questions are asked: in a thread (:func:`run`) or in an event loop (:func:`run_in_loop`).

This code may run for every keystroke. So a question is a plain tuple, and the core keeps the deadline of an answer:
each handler is called with the plugin's budget as its time limit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ...call.variables import current_deadline
from ...errors import Cancelled, DeadlineExceeded, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from ..process.circuit import Circuit
    from .points import ExtensionPoint

__all__ = ["SKIPPED", "Handler", "Late", "Question", "begin", "run", "run_in_loop"]

SKIPPED: Final[Any] = object()
"""Stands in place of an answer: the plugin was not asked, was late, or failed."""

_ROUNDING = 0.001
"""Seconds by which the core may report a deadline earlier than this clock."""


class Late(Exception):
    """A plugin did not answer within its budget."""


class Handler:
    """One plugin's handler of one extension point.

    Args:
        point: The extension point.
        plugin: The plugin's id.
        priority: The higher, the earlier.
        method: Calls the handler: in a thread, or to be awaited.
        budget: Seconds that the handler may take.
        circuit: Decides whether the plugin is asked.
        report: Called with the error when the plugin fails, :class:`Late` included, and with ``None`` when it answers
            again.
    """

    def __init__(
        self,
        point: ExtensionPoint[..., Any],
        plugin: str,
        priority: int,
        method: Any,
        budget: float,
        circuit: Circuit,
        report: Callable[[Handler, BaseException | None], None],
    ) -> None:
        self.point = point
        self.plugin = plugin
        self.priority = priority
        self.circuit = circuit
        self._method = method
        self._report = report
        self.limit(budget)

    def limit(self, budget: float) -> None:
        """Sets the budget, in seconds, of each call from now on."""
        self.budget = budget
        self.call = self._method.within(budget)

    def begins(self) -> float:
        """To be called before the handler is called, and to be followed by :meth:`answered`, :meth:`failed` or
        :meth:`given_up`.

        Returns:
            The time, by the monotonic clock; 0.0 if the handler is not to be called, because its plugin is left alone
                or the caller has no time left.
        """
        outer = current_deadline.get()
        now = monotonic()
        if outer is not None and outer <= now:
            return 0.0
        return now if self.circuit.state == "closed" or self.circuit.allows() else 0.0

    def answered(self) -> None:
        """Called when the handler has answered in time."""
        if self.circuit.state != "closed" and self.circuit.answered():
            self._report(self, None)

    def given_up(self) -> None:
        """Called when nobody waits for the handler any more, so that nothing is known of the plugin."""
        self.circuit.given_up()

    def failed(self, error: BaseException, question: Question, began: float) -> bool:
        """Called when the handler's call has raised: finds out whose fault that is, and reports it.

        Args:
            error: The exception.
            question: The question that was asked.
            began: From :meth:`begins`.

        Returns:
            Whether the answer is skipped. Otherwise the error is the caller's, or is meant for it, and is raised there.

        Raises:
            InvalidArgument: the caller's arguments do not fit.
        """
        if not isinstance(error, Exception):
            self.given_up()
            return False
        if isinstance(error, DeadlineExceeded):
            outer = current_deadline.get()
            until = began + self.budget
            if outer is not None and outer < until and monotonic() > outer - _ROUNDING:
                # The caller had less time than the budget: that is not the plugin's fault.
                self.given_up()
                return True
            if monotonic() > until - _ROUNDING:
                self._report(self, Late(error.message))
                return True
        if isinstance(error, InvalidArgument):
            self.given_up()
            _, args, kwargs = question
            arguments = self.point.plan.arguments
            if arguments.encode_named is not None:
                arguments.encode_named(arguments.bind(args, kwargs))
        if isinstance(error, (Cancelled, Unavailable)):
            self.given_up()  # perhaps the plugin is being stopped, or has ended
        else:
            self.answered()
        self._report(self, error)
        return True


Question: TypeAlias = "tuple[Handler, tuple[Any, ...], dict[str, Any]]"
"""A question for one handler: its arguments by position and by name."""
Asking: TypeAlias = "Generator[list[Question], list[Any], Any]"


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
    return [(handler, args, kwargs) for handler in handlers]


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
    for handler in handlers:
        if point.first_by_name:
            question = (handler, tuple(rest), {**kwargs, name: value})
        else:
            question = (handler, (value, *rest), kwargs)
        answer = (yield [question])[0]
        if answer is not SKIPPED:
            value = answer
    return value


def _decider(_point: Any, handlers: Sequence[Handler], args: Any, kwargs: Any) -> Asking:
    for handler in handlers:
        if (yield [(handler, args, kwargs)])[0] is False:
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


def _ask(question: Question) -> Any:
    """Asks one handler, from a thread."""
    handler, args, kwargs = question
    if not (began := handler.begins()):
        return SKIPPED
    try:
        answer = handler.call(*args, **kwargs)
    except BaseException as error:
        if not handler.failed(error, question, began):
            raise
        return SKIPPED
    handler.answered()
    return answer


async def _ask_in_loop(question: Question) -> Any:
    """The same from an event loop."""
    handler, args, kwargs = question
    if not (began := handler.begins()):
        return SKIPPED
    try:
        answer = await cast("Awaitable[Any]", handler.call(*args, **kwargs))
    except BaseException as error:
        if not handler.failed(error, question, began):
            raise
        return SKIPPED
    handler.answered()
    return answer


def run(asking: Asking) -> Any:
    """Runs a call of an extension point in this thread.

    Args:
        asking: The call.
    """
    try:
        questions = next(asking)
        while True:
            questions = asking.send([_ask(questions[0])] if len(questions) == 1 else _ask_all(questions))
    except StopIteration as end:
        return end.value


class _AtOnce:
    """Sends all questions before it waits for the first answer. Calls whose answers were not waited for are given
    up.
    """

    __slots__ = ("_questions", "_under_way")

    def __init__(self, questions: list[Question]) -> None:
        self._questions = questions
        self._under_way: list[_Asked] = []

    def __enter__(self) -> list[_Asked]:
        try:
            for question in self._questions:
                self._under_way.append(_Asked(question))
        except BaseException:
            self.__exit__()
            raise
        return self._under_way

    def __exit__(self, *_error: object) -> None:
        for asked in self._under_way:
            asked.give_up()


class _Asked:
    """A question that was sent. A ``with`` statement gives the call to wait for, or ``None`` if none was sent; failures
    of the plugin end there.
    """

    __slots__ = ("_began", "_call", "_question")

    def __init__(self, question: Question) -> None:
        handler, args, kwargs = self._question = question
        self._call: Any = None
        self._began = handler.begins()
        if self._began:
            try:
                self._call = handler.call.start(*args, **kwargs)
            except BaseException as error:
                if not handler.failed(error, question, self._began):
                    raise

    def __enter__(self) -> Any:
        call, self._call = self._call, None
        if call is None:
            self._began = 0.0
        return call

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        handler = self._question[0]
        if error is not None:
            return handler.failed(error, self._question, self._began)
        if self._began:
            handler.answered()
        return False

    def give_up(self) -> None:
        """Gives the call up, by dropping the last reference to it."""
        if self._call is not None:
            self._call = None
            self._question[0].given_up()


def _ask_all(questions: list[Question]) -> list[Any]:
    """Asks several plugins at once from one thread."""
    answers = [SKIPPED] * len(questions)
    with _AtOnce(questions) as under_way:
        for at, asked in enumerate(under_way):
            with asked as call:
                if call is not None:
                    answers[at] = call.result()
    return answers


async def _ask_all_in_loop(questions: list[Question]) -> list[Any]:
    """The same from an event loop."""
    answers = [SKIPPED] * len(questions)
    with _AtOnce(questions) as under_way:
        for at, asked in enumerate(under_way):
            with asked as call:
                if call is not None:
                    answers[at] = await call
    return answers


async def run_in_loop(asking: Asking) -> Any:
    """Runs a call of an extension point in the running event loop."""
    try:
        questions = next(asking)
        while True:
            if len(questions) == 1:
                questions = asking.send([await _ask_in_loop(questions[0])])
            else:
                questions = asking.send(await _ask_all_in_loop(questions))
    except StopIteration as end:
        return end.value
