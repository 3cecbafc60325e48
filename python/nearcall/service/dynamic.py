"""Plans made from a server's description, for a client that has no class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codec.checks import outer_type
from ..codec.described import described_sender
from ..codec.hashed import ANYTHING
from ..errors import FailedPrecondition
from ..types.shown import shown
from .arguments import Argument, arguments_plan
from .binding import Binder, make_adapter
from .description import MethodInfo, ParameterInfo, StreamInfo, ValueInfo
from .plan import BIDI_STREAM, BUFFER_FORMS, NOTHING, PARTS, SERVER_STREAM, MethodPlan, ServicePlan, Slot, ValuePlan
from .reading import read_description
from .signature import value_roles
from .values import Crossing, buffer_decodes_as, value_plan

__all__ = ["plans_from"]


def plans_from(description: Mapping[str, Any] | bytes) -> list[ServicePlan]:
    """Plans for a client that has no class: values are plain data, buffers and arrays cross as everywhere.

    The arguments' number and names are checked before a call leaves, their types by the server. A dataclass is sent
    and received as a dict.

    Raises:
        FailedPrecondition: the description is malformed or of an unknown version.
    """
    return [
        ServicePlan(
            name=service.name,
            methods=tuple(_dynamic_method(service.name, method, service.types) for method in service.methods),
            doc=service.doc,
            types=service.types,
            plain=True,
        )
        for service in read_description(description).services
    ]


def _dynamic_method(service: str, method: MethodInfo, types: Mapping[str, Any]) -> MethodPlan:
    full_name = f"{service}.{method.name}"
    slots = [
        Slot(parameter.name, parameter.by_position, parameter.by_name, parameter.required)
        for parameter in method.parameters
    ]
    request_item, position, stream = None, -1, method.stream
    if stream is not None:
        position = min(max(stream.position, 0), len(slots))
        slots.insert(position, Slot(stream.name, stream.by_position, stream.by_name, True))
        request_item = _dynamic_value(stream, types, value_roles(full_name, stream=stream.name))
    signature = shown(method.signature)
    binder = Binder(full_name, slots, signature, None if stream is None else stream.name)
    arguments = [
        Argument(parameter.name, _dynamic_crossing(parameter, types), parameter.by_position, parameter.required)
        for parameter in method.parameters
    ]
    return MethodPlan(
        service=service,
        name=method.name,
        kind=method.kind,
        arguments=arguments_plan(full_name, arguments, binder),
        request_item=request_item,
        slots=tuple(slots),
        stream_position=position,
        reply=_dynamic_value(
            method.returns, types, value_roles(full_name, items=method.kind in (SERVER_STREAM, BIDI_STREAM))
        ),
        handler_is_async=False,
        split=binder.split,
        adapt=make_adapter(slots),
        signature=signature,
        idempotent=method.idempotent,
        doc=method.doc,
    )


def _dynamic_crossing(value: ValueInfo | ParameterInfo | StreamInfo, types: Mapping[str, Any]) -> Crossing:
    if value.form in BUFFER_FORMS:
        annotation: Any = buffer_decodes_as[value.form]
        return Crossing(annotation, value.form, value.type, value.schema, outer_type(annotation))
    if value.form == NOTHING:
        return Crossing(None, NOTHING, value.type, value.schema, outer_type(None))
    try:
        sender = described_sender(value.schema, types)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise FailedPrecondition("the server's description of its types is malformed") from None
    return Crossing(Any, PARTS, value.type, value.schema, outer_type(Any), sender, ANYTHING)


def _dynamic_value(value: ValueInfo | StreamInfo, types: Mapping[str, Any], roles: Any) -> ValuePlan:
    return value_plan(_dynamic_crossing(value, types), roles)
