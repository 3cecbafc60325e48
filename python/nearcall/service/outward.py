"""What the callable of a method shows of itself to ``inspect``, ``help`` and interactive shells."""

from __future__ import annotations

import collections.abc
import itertools
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature
from keyword import iskeyword
from typing import Any, cast

from ..types.shown import shown
from .plan import BIDI_STREAM, SERVER_STREAM, MethodPlan, Slot

__all__ = ["called_as", "dressed", "text_of", "text_of_service"]

_LONGEST_NAME = 200
"""Characters of a type's name that a server says."""
MOST_LISTED = 100
"""Methods that the text of a service lists; a server may have thousands."""


class _Written(str):
    """What only its text is known of. It is shown as it is written, without quotes."""

    __slots__ = ()

    __repr__ = str.__str__


def dressed(function: Callable[..., Any], plan: MethodPlan, *, for_loop: bool) -> Callable[..., Any]:
    """A function that calls a method, with the name, the signature and the docstring of the method."""
    named: Any = function
    named.__name__, named.__qualname__, named.__doc__ = plan.name, plan.full_name, text_of(plan)
    named.__signature__ = called_as(plan, for_loop)
    return function


def called_as(plan: MethodPlan, for_loop: bool) -> Signature:
    """The signature by which callers see a method, without ``self``; it is made once, and kept with the plan.

    Args:
        plan: The method.
        for_loop: Whether it is called in an event loop, where its streams are asynchronous. A result that is awaited is
            annotated as that of an ``async def``.
    """
    kept = cast("dict[Any, Signature]", plan.__dict__)
    if (known := kept.get(for_loop)) is None:
        known = kept[for_loop] = _made(plan, for_loop)
    return known


def _made(plan: MethodPlan, for_loop: bool) -> Signature:
    types = _types_of(plan)
    defaults = {} if plan.types is None else {each.name: each.default for each in plan.types.parameters}
    parameters = [
        Parameter(
            slot.name,
            _kind(slot),
            default=Parameter.empty if slot.required else _default(defaults.get(slot.name, ...)),
            annotation=types[slot.name],
        )
        for slot in plan.slots
    ]
    abc = collections.abc
    if plan.stream_position >= 0:
        stream = parameters[plan.stream_position]
        item: Any = stream.annotation
        items: Any = abc.Iterable[item]
        if for_loop:
            items = items | abc.AsyncIterable[item]
        parameters[plan.stream_position] = stream.replace(annotation=items)
    result: Any = types["return"]
    if plan.kind in (SERVER_STREAM, BIDI_STREAM):
        result = abc.AsyncIterator[result] if for_loop else abc.Iterator[result]
    # Not validated: a server may describe parameters in an order that Python does not have.
    return Signature(parameters, return_annotation=result, __validate_parameters__=False)


def text_of(plan: MethodPlan) -> str | None:
    """The docstring of a method, fit to be shown in a terminal if a server has described it."""
    return plan.doc if plan.doc is None or plan.types is not None else shown(plan.doc, keep="\n")


def text_of_service(doc: str | None, methods: Iterable[MethodPlan], count: int, *, for_loop: bool) -> str:
    """What a client of a service is shown as its docstring: the service's own, and the methods.

    Args:
        doc: The docstring of the service.
        methods: Its methods, of which the first hundred are taken.
        count: How many there are.
        for_loop: Whether they are called in an event loop.
    """
    lines: list[str] = []
    for plan in itertools.islice(methods, MOST_LISTED):
        lines += ["", f"    {plan.signature}"]
        text = text_of(plan)
        if text:
            lines += [f"        {line}".rstrip() for line in text.partition("\n\n")[0].splitlines()]
    if count > MOST_LISTED:
        lines += ["", f"    and {count - MOST_LISTED} more"]
    head = "Methods, each to be awaited, or iterated over with 'async for':" if for_loop else "Methods:"
    return "\n".join([*([doc, ""] if doc else []), head, *lines])


def _types_of(plan: MethodPlan) -> Mapping[str, Any]:
    """The types of parameters, of items for a stream, and of the result as ``return``."""
    if plan.types is not None:
        declared = [*plan.types.parameters, *([] if plan.types.stream is None else [plan.types.stream])]
        return {**{each.name: each.type.written for each in declared}, "return": plan.types.result.written}
    written = {each.name: each.type_name for each in plan.arguments.parameters}
    if plan.request_item is not None:
        written[plan.slots[plan.stream_position].name] = plan.request_item.type_name
    written["return"] = plan.reply.type_name
    return {name: _Written(shown(text, _LONGEST_NAME)) for name, text in written.items()}


def _default(value: Any) -> Any:
    return _Written("...") if value is ... else value  # only the handler knows


def _kind(slot: Slot) -> Any:
    if not slot.by_name or iskeyword(slot.name):  # a server in another language may have such a parameter
        return Parameter.POSITIONAL_ONLY
    return Parameter.POSITIONAL_OR_KEYWORD if slot.by_position else Parameter.KEYWORD_ONLY
