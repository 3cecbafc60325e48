"""From the types of a method to its plan, in any codec."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..codec.msgpack.service import Msgpack
from ..codec.protocol import Codec, MethodTypes, Roles
from ..types.functions import full_name
from .arguments import arguments_plan
from .binding import Binder, make_adapter
from .depends import Dependency
from .plan import ONEWAY, UNARY, MethodPlan, ServicePlan, Slot
from .values import value_plan

__all__ = ["in_codec", "make_method"]

_MSGPACK = Msgpack()
"""The codec of every new plan: nearcall's own transports use no other unless both sides want it, and descriptions
describe plans in it.
"""


def make_method(
    service: str,
    types: MethodTypes,
    *,
    kind: str,
    slots: Sequence[Slot],
    signature: str,
    idempotent: bool,
    dependencies: tuple[tuple[str, Dependency], ...] = (),
) -> MethodPlan:
    """The plan of a method, in msgpack.

    Args:
        service: The service's name.
        types: The types of the method.
        kind: What kind of method it is.
        slots: All parameters in order, the streaming one among them.
        signature: The signature as one would write it.
        idempotent: Whether calls may be repeated.
        dependencies: Parameters of the handler that its server fills in.
    """
    full, stream = full_name(service, types.name), types.stream
    binder = Binder(full, slots, signature, None if stream is None else stream.name)
    coding = _MSGPACK.service(service, [types])[types.name]
    item, names = None, [slot.name for slot in slots]
    if stream is not None and coding.item is not None:
        item = value_plan(stream.type, coding.item, Roles.of_stream(full, stream.name))
    taken = [*types.parameters, *([] if stream is None else [stream])]
    positional = sum(slot.by_position for slot in slots if stream is None or slot.name != stream.name)
    return MethodPlan(
        service=service,
        name=types.name,
        kind=kind,
        arguments=arguments_plan(full, types.parameters, coding.arguments, binder, positional),
        request_item=item,
        slots=tuple(slots),
        stream_position=-1 if stream is None else names.index(stream.name),
        reply=value_plan(types.result, coding.reply, Roles.of_result(full, items=types.streams_out)),
        handler_is_async=types.in_loop,
        split=binder.split,
        adapt=make_adapter(slots),
        signature=signature,
        idempotent=idempotent,
        no_side_effects=types.no_side_effects,
        doc=types.doc,
        takes=tuple(dict.fromkeys(cls for each in taken for cls in each.type.services)),
        gives=types.result.services,
        types=None if types.result.described else types,
        dependencies=dependencies,
    )


def in_codec(plan: ServicePlan, codec: Codec, *, by_path: bool = True) -> ServicePlan:
    """The same service in another codec: the same methods with the codec's encoding of their values.

    Args:
        plan: The service.
        codec: The codec.
        by_path: Whether its methods are called by their paths, over HTTP; otherwise by numbers.

    Raises:
        TypeError: a method has no counterpart in the codec, or only a server's description of the service is known. The
            message is one line that names the method and the parameter.
    """
    if plan.encoded:
        if not by_path:
            return plan
        methods = [msgspec.structs.replace(method, path=f"/{plan.name}/{method.name}") for method in plan.methods]
        return msgspec.structs.replace(plan, methods=tuple(methods))
    types = [method.types for method in plan.methods if method.types is not None]
    if len(types) < len(plan.methods):
        raise TypeError(
            f"{plan.name} is known from a description, which says too little for {codec.name}: give a class"
        )
    codings = codec.service(plan.name, types)
    changed = list[MethodPlan]()
    for method in plan.methods:
        coding, item = codings[method.name], method.request_item
        path = coding.path if by_path else None
        if item is not None and coding.item is not None:
            item = msgspec.structs.replace(item, coding=coding.item)
        changed.append(
            msgspec.structs.replace(
                method,
                # A one-way method that is called by a path, over HTTP, answers all the same, with nothing.
                kind=UNARY if method.kind == ONEWAY and path else method.kind,
                arguments=msgspec.structs.replace(method.arguments, coding=coding.arguments, encode_named=None),
                request_item=item,
                reply=msgspec.structs.replace(method.reply, coding=coding.reply),
                always_named=False,
                path=path,
            )
        )
    return msgspec.structs.replace(plan, methods=tuple(changed))
