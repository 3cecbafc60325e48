"""The plan of a method's arguments, made from its parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter as Inspected
from typing import Any, Final, NamedTuple

import msgspec

from ..codec import checks, explain, msgpack, sending
from ..codec.hashed import ANYTHING, together
from ..errors import InvalidArgument
from .binding import Binder
from .plan import BUFFER_FORMS, CODED, NOTHING, PARTS, ArgumentsPlan, Parameter
from .values import Crossing, ProblemFinder, problem_finder

__all__ = ["UNKNOWN", "Argument", "arguments_plan"]

UNKNOWN: Final = msgspec.UNSET
"""In place of an argument that the caller declares and that is not known here: it was not given."""


class Argument(NamedTuple):
    """One parameter with its type worked out."""

    name: str
    crossing: Crossing
    by_position: bool
    required: bool
    default: Any = Inspected.empty
    """What the handler's signature says; ``empty`` if there is no default, or only the server knows it."""

    @property
    def form(self) -> str:
        """The form on the wire: a bare buffer, or a member of the coded group."""
        return self.crossing.form if self.crossing.form in BUFFER_FORMS else CODED


def arguments_plan(
    method: str, arguments: Sequence[Argument], binder: Binder, *, for_loop: bool = False
) -> ArgumentsPlan:
    """The plan of all parameters but the streaming one.

    Args:
        method: The method's full name.
        arguments: The parameters in order.
        binder: Binds calls of the method.
        for_loop: Whether the handler awaits methods of the objects that it gets.
    """
    coded = [argument for argument in arguments if argument.form == CODED]
    names, all_names = (tuple(argument.name for argument in each) for each in (coded, arguments))
    annotation: Any = tuple[tuple(argument.crossing.annotation for argument in coded)]  # type: ignore[misc]
    parts = any(argument.crossing.form == PARTS for argument in coded)
    finders = [(argument.name, problem_finder(argument.crossing)) for argument in arguments]
    encode: Callable[[Any], Any] = msgpack.encode_parts if parts else msgpack.encode
    references = any(argument.crossing.services for argument in arguments)
    # Only data can be encoded a second time, to find out which of them cannot.
    data = [argument.name for argument in arguments if not argument.crossing.services]

    def remake(names: Sequence[str], for_loop: bool) -> ArgumentsPlan:
        known = {argument.name: argument for argument in arguments}
        each = [known.get(name) or _unknown_argument(name) for name in names]
        return arguments_plan(method, each, binder, for_loop=for_loop)

    return ArgumentsPlan(
        names=all_names,
        forms=tuple(argument.form for argument in arguments),
        positional=sum(argument.by_position for argument in arguments),
        parts=parts,
        encode=sending.group_seen_to(encode, names, [argument.crossing.sender for argument in coded]),
        decode=_decoder(annotation, parts=parts, references=references, for_loop=for_loop),
        accepts=tuple(argument.crossing.outer.accepts for argument in arguments),
        check_at=_checker(method, finders),
        bind=binder.bind,
        encode_named=_named_encoder(method, arguments, finders),
        decode_named=_named_decoder(arguments, references=references, for_loop=for_loop),
        encode_error=lambda error, values: explain.explain_encode_error(
            method, names if len(values) == len(names) else all_names, error, values, data
        ),
        decode_error=lambda error: explain.explain_decode_error(method, names, error),
        parameters=tuple(
            Parameter(
                name=argument.name,
                type_name=argument.crossing.type_name,
                form=argument.crossing.form if argument.crossing.form != NOTHING else CODED,
                required=argument.required,
                schema=argument.crossing.schema,
            )
            for argument in arguments
        ),
        references=references,
        remake=remake,
        hashed=together(argument.crossing.hashed for argument in arguments),
    )


def _unknown_argument(name: str) -> Argument:
    crossing = Crossing(Any, PARTS, "Any", "any", checks.outer_type(Any), hashed=ANYTHING)
    return Argument(name, crossing, by_position=True, required=False, default=UNKNOWN)


def _decoder(annotation: Any, *, parts: bool, references: bool, for_loop: bool) -> Callable[..., Any]:
    if references:
        return msgpack.reference_decoder(annotation, for_loop=for_loop)
    return msgpack.parts_decoder(annotation) if parts else msgpack.coded_decoder(annotation)


def _checker(method: str, finders: list[tuple[str, ProblemFinder | None]]) -> Callable[[int, Any], None]:
    def check_at(index: int, value: Any) -> None:
        name, find_problem = finders[index]
        if find_problem is not None and (problem := find_problem(value)):
            raise InvalidArgument(f"{method}(): argument '{name}' {problem}")

    return check_at


def _named_encoder(
    method: str, arguments: Sequence[Argument], finders: list[tuple[str, ProblemFinder | None]]
) -> Callable[[tuple[Any, ...] | dict[str, Any]], tuple[bytes, list[memoryview]]]:
    by_name = dict(finders)
    buffers = {argument.name for argument in arguments if argument.form in BUFFER_FORMS}
    senders = {
        argument.name: argument.crossing.sender for argument in arguments if argument.crossing.sender is not None
    }

    # Checks the values as well: only here is it known which parameters they are for.
    def encode_named(bound: tuple[Any, ...] | dict[str, Any]) -> tuple[bytes, list[memoryview]]:
        values = bound if isinstance(bound, dict) else dict(zip(by_name, bound, strict=True))
        for name, value in values.items():
            find_problem = by_name[name]
            if find_problem is not None and (problem := find_problem(value)):
                raise InvalidArgument(f"{method}(): argument '{name}' {problem}")
        # Any buffer will do for a buffer; an array, say, must not travel as an array here.
        views = {name: memoryview(value) for name, value in values.items() if name in buffers}
        seen = {
            name: sending.seen_argument(name, values[name], senders[name]) for name in senders.keys() & values.keys()
        }
        return msgpack.encode_parts({**values, **views, **seen} if views or seen else values)

    return encode_named


def _named_decoder(
    arguments: Sequence[Argument], *, references: bool, for_loop: bool
) -> Callable[..., tuple[Any, ...]]:
    """A decoder from a map to the tuple of all parameters, which knows their defaults."""

    # Most methods are never called by name, so the decoder is made when first needed.
    @functools.cache
    def decoder() -> Callable[..., Any]:
        fields: list[Any] = []
        for number, argument in enumerate(arguments):
            # A factory, because the handler shall get the very object that its signature holds, as in Python.
            default: Any = {} if argument.required else {"default_factory": functools.partial(_same, argument.default)}
            field = msgspec.field(name=argument.name, **default)
            fields.append((f"p{number}", argument.crossing.annotation, field))
        shape = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        return _decoder(shape, parts=True, references=references, for_loop=for_loop)

    def decode_named(body: Any, buffers: list[memoryview]) -> tuple[Any, ...]:
        return msgspec.structs.astuple(decoder()(body, buffers))

    return decode_named


def _same(value: Any) -> Any:
    return value
