"""What a server tells about itself, and what a client makes of it.

A description is plain data that travels as JSON. A client that has a class compares it with the description when it
connects (:mod:`nearcall.agreement`); a client that has none makes its plans from it (:func:`plans_from`).

Methods are numbered in order of appearance over all services of a description; the number stands for the method on
the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from .arguments import Argument, arguments_plan
from .binding import Binder, make_adapter
from .codec.checks import outer_type
from .codec.described import described_sender
from .description_check import Malformed, check_depth, check_description
from .errors import FailedPrecondition
from .plan import (
    BIDI_STREAM,
    BUFFER_FORMS,
    NOTHING,
    PARTS,
    SERVER_STREAM,
    MethodPlan,
    ServicePlan,
    Slot,
    ValuePlan,
)
from .shown import shown
from .signature import value_roles
from .values import Crossing, buffer_decodes_as, value_plan

__all__ = [
    "VERSION",
    "Description",
    "MethodInfo",
    "ServiceInfo",
    "describe",
    "method_info",
    "plans_from",
    "read_description",
]

VERSION = 1
"""The version of the format. Raised when an older reader would misread a description; new fields do not raise it."""


class ValueInfo(msgspec.Struct, frozen=True):
    """A result or a stream."""

    type: str
    form: str
    schema: Any = "any"


class ParameterInfo(msgspec.Struct, frozen=True):
    """A parameter; ``form`` is that of its value, or of its items if it is the stream."""

    name: str
    type: str
    form: str
    required: bool
    by_position: bool = True
    by_name: bool = True
    schema: Any = "any"


class StreamInfo(msgspec.Struct, frozen=True):
    """The streaming parameter."""

    name: str
    position: int
    type: str
    form: str
    by_position: bool = True
    by_name: bool = True
    schema: Any = "any"


class MethodInfo(msgspec.Struct, frozen=True):
    """A method."""

    name: str
    kind: str
    parameters: list[ParameterInfo]
    returns: ValueInfo
    stream: StreamInfo | None = None
    signature: str = ""
    doc: str | None = None
    idempotent: bool = False


class ServiceInfo(msgspec.Struct, frozen=True):
    """A service."""

    name: str
    methods: list[MethodInfo]
    doc: str | None = None
    types: dict[str, Any] = {}


class Description(msgspec.Struct, frozen=True):
    """Everything that a server serves."""

    nearcall: int
    services: list[ServiceInfo]
    introspection: ServiceInfo | msgspec.UnsetType = msgspec.UNSET
    """The server's own service, numbered after the others; left out if it is switched off."""

    def numbered(self, *, introspection: bool = False) -> Iterator[tuple[int, ServiceInfo, MethodInfo]]:
        """All methods with their numbers, those of the server's own service only if asked for."""
        number = 0
        services = list(self.services)
        if introspection and self.introspection is not msgspec.UNSET:
            services.append(self.introspection)
        for service in services:
            for method in service.methods:
                yield number, service, method
                number += 1


def describe(plans: Sequence[ServicePlan], introspection: ServicePlan | None = None) -> dict[str, Any]:
    """The description of a server that serves these services, as plain data ready for JSON."""
    own = msgspec.UNSET if introspection is None else _service_info(introspection)
    description: dict[str, Any] = msgspec.to_builtins(
        Description(VERSION, [_service_info(plan) for plan in plans], own)
    )
    return description


def _service_info(plan: ServicePlan) -> ServiceInfo:
    methods = [method_info(method) for method in plan.methods]
    return ServiceInfo(name=plan.name, methods=methods, doc=plan.doc, types=plan.types)


def read_description(data: Mapping[str, Any] | bytes) -> Description:
    """Reads a description that arrived, as JSON or already as plain data.

    Raises:
        FailedPrecondition: it is malformed, or of a version that this library does not know.
    """
    try:
        if isinstance(data, bytes):
            data = msgspec.json.decode(data, type=dict[str, Any])
        check_depth(data)
        version = data.get("nearcall")
        if isinstance(version, int) and VERSION < version < 1 << 32:
            raise FailedPrecondition(
                f"the server describes itself in format {version}, and this nearcall knows format {VERSION}: update it"
            )
        read = msgspec.convert(data, Description)
        check_description(read)
        return read
    except (Malformed, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise FailedPrecondition(f"the server's description of itself is malformed: {shown(str(problem))}") from None


def method_info(plan: MethodPlan) -> MethodInfo:
    """The description of one method."""
    stream = None
    slots = {slot.name: slot for slot in plan.slots}
    if plan.request_item is not None:
        slot, item = plan.slots[plan.stream_position], plan.request_item
        stream = StreamInfo(
            slot.name, plan.stream_position, item.type_name, item.form, slot.by_position, slot.by_name, item.schema
        )
    return MethodInfo(
        name=plan.name,
        kind=plan.kind,
        parameters=[
            ParameterInfo(
                name=parameter.name,
                type=parameter.type_name,
                form=parameter.form,
                required=parameter.required,
                by_position=slots[parameter.name].by_position,
                by_name=slots[parameter.name].by_name,
                schema=parameter.schema,
            )
            for parameter in plan.arguments.parameters
        ],
        returns=ValueInfo(plan.reply.type_name, plan.reply.form, plan.reply.schema),
        stream=stream,
        signature=plan.signature,
        doc=plan.doc,
        idempotent=plan.idempotent,
    )


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
    return Crossing(Any, PARTS, value.type, value.schema, outer_type(Any), sender)


def _dynamic_value(value: ValueInfo | StreamInfo, types: Mapping[str, Any], roles: Any) -> ValuePlan:
    return value_plan(_dynamic_crossing(value, types), roles)
