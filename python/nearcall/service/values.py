"""From an annotation to the plan of how its values cross."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec import inspect as shapes

from ..codec import checks, explain, inspection, msgpack, senders, sending
from ..codec.arrays import dtype_name
from ..codec.hashed import HashedKeys, hashed_keys
from ..errors import RpcError
from ..types.hints import type_name, unwrap
from ..types.schema import SchemaBuilder
from .plan import BYTEARRAY, BYTES, CODED, MEMORYVIEW, NOTHING, PARTS, ValuePlan

__all__ = ["Crossing", "ProblemFinder", "Roles", "buffer_decodes_as", "cross", "problem_finder", "value_plan"]

_BUFFER_SHAPES: dict[type, str] = {
    shapes.BytesType: BYTES,
    shapes.ByteArrayType: BYTEARRAY,
    shapes.MemoryViewType: MEMORYVIEW,
}
buffer_decodes_as: dict[str, type] = {BYTES: bytes, BYTEARRAY: bytearray, MEMORYVIEW: memoryview}
"""The Python type of each buffer form."""


ProblemFinder: TypeAlias = "Callable[[Any], str | None]"
"""The check of a value: ``must be int, got str``, or ``None`` if it fits."""


class Crossing(NamedTuple):
    """What is known of an annotation."""

    annotation: Any
    form: str
    type_name: str
    schema: Any
    outer: checks.OuterType
    sender: senders.Sender | None = None
    """Sees to it that values arrive as they left; ``None`` if there is nothing to see to."""
    hashed: HashedKeys | None = None
    """Keys that must be looked at before a value is decoded; ``None`` if there are none."""
    services: tuple[type, ...] = ()
    """The service classes in it, whose objects travel as references."""


class Roles(NamedTuple):
    """How to speak of a value in errors, and which errors each side raises over it."""

    noun: str
    """``"Calculator.add(): the result"``"""
    sender_error: type[RpcError]
    receiver_error: type[RpcError]


def cross(annotation: Any, builder: SchemaBuilder) -> Crossing:
    """Works out how values of an annotation cross.

    Raises:
        UnsupportedTypeError: they cannot.
        NameError: the annotation refers to a name that does not exist (yet).
    """
    shape = inspection.inspect_type(annotation)
    services = inspection.services_in(shape)
    is_array = isinstance(shape, shapes.CustomType) and not services
    schema = {"array": dtype_name(unwrap(annotation))} if is_array else builder.schema(shape)
    form = _form(shape)
    sender = sending.sender(shape, annotation) if form in (CODED, PARTS) else None
    hashed = hashed_keys(shape) if form in (CODED, PARTS) else None
    outer = checks.outer_type(annotation)
    return Crossing(annotation, form, type_name(annotation), schema, outer, sender, hashed, services)


def value_plan(crossing: Crossing, roles: Roles, *, for_loop: bool = False) -> ValuePlan:
    """The plan of a result or of a stream's items. ``for_loop``: its receiver awaits methods of objects in it."""
    form, annotation = crossing.form, crossing.annotation
    encode: Callable[[Any], Any] | None = None
    decode: Callable[..., Any] | None = None
    if form == CODED:
        encode, decode = sending.seen_to(msgpack.encode, crossing.sender), msgpack.coded_decoder(annotation)
    elif form == PARTS:
        encode, decode = sending.seen_to(msgpack.encode_parts, crossing.sender), msgpack.parts_decoder(annotation)
    decoder: Callable[[bool], Callable[..., Any]] | None = None
    if crossing.services:
        decoder = partial(_decoder, annotation)
        decode = decoder(for_loop)
    return ValuePlan(
        form=form,
        encode=encode,
        decode=decode,
        accepts=crossing.outer.accepts,
        check=_checker(crossing, roles),
        type_name=crossing.type_name,
        schema=crossing.schema,
        encode_error=explain.explain_value_encode_error(roles.noun, roles.sender_error),
        decode_error=explain.explain_value_decode_error(roles.noun, crossing.type_name, roles.receiver_error),
        references=bool(crossing.services),
        decoder=decoder,
        hashed=crossing.hashed,
    )


def _decoder(annotation: Any, for_loop: bool) -> Callable[..., Any]:
    return msgpack.reference_decoder(annotation, for_loop=for_loop)


def _form(shape: shapes.Type) -> str:
    if isinstance(shape, shapes.NoneType):
        return NOTHING
    form = _BUFFER_SHAPES.get(type(shape))
    if form is not None and _is_unbounded(shape):
        return form
    return PARTS if inspection.holds_arrays(shape) else CODED


def _is_unbounded(shape: Any) -> bool:
    # A length limit (Annotated[bytes, Meta(max_length=...)]) is for the decoder to enforce: not a bare buffer then.
    return shape.min_length is None and shape.max_length is None


def problem_finder(crossing: Crossing) -> ProblemFinder | None:
    """The check of values that cross; ``None`` if everything fits."""
    annotation, fits = crossing.annotation, crossing.outer.fits
    if crossing.form in buffer_decodes_as:
        return lambda value: checks.problem_with_buffer(value, annotation)
    if fits is None:
        return None
    return lambda value: None if fits(value) else checks.problem_with(value, annotation)


def _checker(crossing: Crossing, roles: Roles) -> Callable[[Any], None] | None:
    find_problem = problem_finder(crossing)
    if find_problem is None:
        return None

    def check(value: Any) -> None:
        if problem := find_problem(value):
            raise roles.sender_error(f"{roles.noun} {problem}")

    return check
