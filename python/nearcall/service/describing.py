"""The description of services, made from their plans."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ..codec.protocol import ParameterType
from .description import VERSION, Description, MethodInfo, ParameterInfo, ServiceInfo, StreamInfo, ValueInfo
from .plan import MethodPlan, ServicePlan
from .reading import Malformed, check_limits

__all__ = ["describe", "described_as_text", "method_info"]


def describe(
    plans: Sequence[ServicePlan], introspection: ServicePlan | None = None, references: Sequence[ServicePlan] = ()
) -> dict[str, Any]:
    """The description of a server that serves these services, as plain data ready for JSON.

    Args:
        plans: The services that it serves.
        introspection: The server's own service.
        references: The services whose objects travel as references.
    """
    own = msgspec.UNSET if introspection is None else _service_info(introspection)
    passed = [_service_info(plan) for plan in references] or msgspec.UNSET
    description: dict[str, Any] = msgspec.to_builtins(
        Description(VERSION, [_service_info(plan) for plan in plans], own, passed)
    )
    return description


def described_as_text(
    plans: Sequence[ServicePlan], introspection: ServicePlan | None = None, references: Sequence[ServicePlan] = ()
) -> str:
    """The description as JSON, for clients.

    Raises:
        ValueError: the description is more than clients accept; the message says what there is too much of.
    """
    described = describe(plans, introspection, references)
    encoded = msgspec.json.encode(described)
    try:
        check_limits(described, len(encoded))
    except Malformed as problem:
        raise ValueError(
            f"no client would accept this server's description: {problem}: serve some of it elsewhere"
        ) from None
    return encoded.decode()


def _service_info(plan: ServicePlan) -> ServiceInfo:
    methods = [method_info(method) for method in plan.methods]
    return ServiceInfo(name=plan.name, methods=methods, doc=plan.doc, types=plan.types)


def method_info(plan: MethodPlan) -> MethodInfo:
    """The description of one method."""
    stream = None
    slots = {slot.name: slot for slot in plan.slots}
    defaults = {} if plan.types is None else {each.name: _default(each) for each in plan.types.parameters}
    if plan.request_item is not None:
        slot, item = plan.slots[plan.stream_position], plan.request_item
        stream = StreamInfo(
            slot.name,
            plan.stream_position,
            item.type_name,
            item.coding.form,
            slot.by_position,
            slot.by_name,
            item.schema,
        )
    return MethodInfo(
        name=plan.name,
        kind=plan.kind,
        parameters=[
            ParameterInfo(
                name=parameter.name,
                type=parameter.type_name,
                form=form,
                required=parameter.required,
                by_position=slots[parameter.name].by_position,
                by_name=slots[parameter.name].by_name,
                schema=parameter.schema,
                default=defaults.get(parameter.name, msgspec.UNSET),
            )
            for parameter, form in zip(plan.arguments.parameters, plan.arguments.coding.forms, strict=True)
        ],
        returns=ValueInfo(plan.reply.type_name, plan.reply.coding.form, plan.reply.schema),
        stream=stream,
        signature=plan.signature,
        doc=plan.doc,
        idempotent=plan.idempotent,
    )


def _default(parameter: ParameterType) -> Any:
    """What a description says of a parameter's default."""
    value = parameter.fallback if parameter.default is ... else parameter.default
    if isinstance(value, enum.Enum):
        value = value.value
    is_plain = value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
    return msgspec.UNSET if parameter.required or not is_plain else value
