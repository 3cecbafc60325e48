"""The methods of a service in another codec than msgpack: plans that differ only in how values cross."""

from __future__ import annotations

import msgspec

from ..codec.protocol import Codec, Coding
from ..errors import InvalidArgument, RpcError
from .plan import CODED, ONEWAY, UNARY, ArgumentsPlan, MethodPlan, ServicePlan, ValuePlan
from .signature import value_roles
from .values import Roles

__all__ = ["coded_plans"]


def coded_plans(plan: ServicePlan, codec: Codec) -> list[MethodPlan]:
    """The plans of a service's methods in a codec, in order. One-way methods answer, with nothing.

    Raises:
        TypeError: a method has no counterpart in the codec, or only a server's description of the service is known; one
            line that names the method and the parameter.
    """
    types = [method.types for method in plan.methods if method.types is not None]
    if len(types) < len(plan.methods):
        raise TypeError(
            f"{plan.name} is known from a description, which says too little for {codec.name}: give a class"
        )
    codings = codec.service(plan.name, types)
    found: list[MethodPlan] = []
    for method in plan.methods:
        coding = codings[method.name]
        item = method.request_item
        if item is not None and coding.item is not None:
            stream = method.slots[method.stream_position].name
            item = _value(item, coding.item, value_roles(method.full_name, stream=stream))
        roles = value_roles(method.full_name, items=method.types is not None and method.types.streams_out)
        found.append(
            msgspec.structs.replace(
                method,
                kind=UNARY if method.kind == ONEWAY else method.kind,
                arguments=_arguments(method.full_name, method.arguments, coding.arguments),
                request_item=item,
                reply=_value(method.reply, coding.reply, roles),
                always_named=False,
                path=coding.path,
            )
        )
    return found


def _value(plan: ValuePlan, coding: Coding, roles: Roles) -> ValuePlan:
    def encode_error(error: BaseException) -> RpcError:
        return coding.encode_error(error, roles.sender_error, roles.noun)

    def decode_error(error: BaseException) -> RpcError:
        return coding.decode_error(error, roles.receiver_error, roles.noun)

    return msgspec.structs.replace(
        plan,
        form=coding.form,
        encode=coding.encode,
        decode=coding.decode,
        encode_error=encode_error,
        decode_error=decode_error,
        hashed=None,
        references=False,
        decoder=None,
    )


def _arguments(method: str, plan: ArgumentsPlan, coding: Coding) -> ArgumentsPlan:
    def refuse(*_: object) -> tuple[object, ...]:
        raise InvalidArgument(f"{method}(): arguments by name are a matter of nearcall's own transports")

    def encode_error(error: BaseException, _values: object) -> RpcError:
        return coding.encode_error(error, InvalidArgument, f"{method}()")

    def decode_error(error: BaseException) -> RpcError:
        return coding.decode_error(error, InvalidArgument, f"{method}()")

    return msgspec.structs.replace(
        plan,
        forms=(CODED,) * len(plan.forms),
        parts=False,
        encode=coding.encode,
        decode=coding.decode,
        encode_named=refuse,
        decode_named=refuse,
        encode_error=encode_error,
        decode_error=decode_error,
        hashed=None,
        references=False,
        remake=None,
    )
